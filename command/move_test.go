//go:build unix

package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// mover is a user's program. Its standard input is a handle, or an empty line, and then the end or
// another line. It adopts the handle or acquires the lock. At the end of its input it frees the
// lock; at another line it exports the lease, and prints the handle.
func mover(url, name string) error {
	ctx := context.Background()
	client, err := openWithPatience(ctx, url)
	if err != nil {
		return err
	}
	defer client.Close()
	fmt.Println("ready")
	input := bufio.NewScanner(os.Stdin)
	input.Scan()
	lease, err := lockOrAdopt(ctx, client, name, input.Text())
	switch {
	case errors.Is(err, dlock.ErrLost):
		fmt.Println("lost")
		return nil
	case err != nil:
		return err
	}
	tell("held", lease, 0)
	if !input.Scan() {
		tell("freed", lease, 0)
		return lease.Unlock(ctx)
	}
	handle, err := lease.Export(ctx)
	if err != nil {
		return err
	}
	fmt.Println(handle)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func lockOrAdopt(
	ctx context.Context, client *dlock.Client, name, handle string,
) (*dlock.Lease, error) {
	if handle == "" {
		return client.Lock(ctx, name)
	}
	return client.Adopt(ctx, handle)
}

// startMover starts a mover, and waits until it is connected.
func (p *partition) startMover() *dlockProcess {
	p.t.Helper()
	m, _ := p.startAs("mover")
	m.expect("ready")
	return m
}

// write gives a line to the program.
func (p *dlockProcess) write(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.input, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// TestLeaseMovesBetweenProcesses exports a lease from a process that is then killed. Another
// process adopts it, while a third one waits for the lock. The third process gets the lock when the
// adopter frees it, and not before. A second adoption fails.
func TestLeaseMovesBetweenProcesses(t *testing.T) {
	t.Parallel()
	for _, b := range serverBackends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			p := newPartition(t, b)
			if !p.capabilities().Move {
				return // UnclaimedMovesAreRefused checks it
			}
			first, second, late := p.startMover(), p.startMover(), p.startMover()
			third, _ := p.start()
			first.write("")
			exported := first.event("held")
			third.expect("waiting")
			p.awaitQueued()
			first.write("export")
			handle := first.line()
			first.send(syscall.SIGKILL)
			first.awaitEnd()
			second.write(handle)
			adopted := second.event("held")
			late.write(handle)
			late.expect("lost")
			freed := second.end()
			next := third.event("held")
			third.end()
			if adopted.fence < exported.fence || next.fence <= adopted.fence {
				t.Errorf("the fences are %d, %d and %d", exported.fence, adopted.fence, next.fence)
			}
			if next.at < freed.at {
				t.Errorf("the third process held the lock %d ns too early", freed.at-next.at)
			}
		})
	}
}

// capabilities returns the capabilities of the backend.
func (p *partition) capabilities() backend.Capabilities {
	p.t.Helper()
	c, err := openWithPatience(p.t.Context(), p.server.URL)
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	return c.Capabilities()
}
