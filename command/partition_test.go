//go:build unix

package command

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/command/internal/guard"
	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/mysqlbackend"
)

const (
	// partitionTTL is the TTL of the programs. The sessions of a backend follow it.
	partitionTTL = 10 * time.Second
	// partitionBound is how long after the end of a term a lock may still be taken: a server may
	// count in whole seconds.
	partitionBound = 2 * time.Second
	// partitionTicks is the same for ZooKeeper, which counts in ticks of two seconds.
	partitionTicks = 5 * time.Second
	// partitionLate is how long after the end of its lease a program may notice that end, less the
	// lag of its process.
	partitionLate = time.Second
)

// program is a user's program. It acquires a lock, prints events with their times, and
// frees the lock when its standard input ends. A Lock that fails because the server
// does not answer is repeated.
func program(url, name string) error {
	// ctx ends with standard input, because the test may have been killed.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	end := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(end)
		cancel()
	}()
	meter := lag.Start()
	defer meter.Stop()
	client, err := openWithPatience(ctx, url)
	if err != nil {
		return err
	}
	defer client.Close()
	asked := time.Now()
	lease, err := client.TryLock(ctx, name)
	if errors.Is(err, dlock.ErrNotAcquired) {
		fmt.Println("waiting")
	}
	for ctx.Err() == nil &&
		(errors.Is(err, dlock.ErrNotAcquired) || errors.Is(err, dlock.ErrUnavailable)) {
		lease, err = client.Lock(ctx, name)
	}
	if err != nil {
		return err
	}
	tell("held", lease, meter.Worst(asked))
	select {
	case <-lease.Lost():
		tell("lost", lease, meter.Worst(lease.Deadline()))
		<-end
		return nil
	case <-end:
		tell("freed", lease, 0)
		// After ErrUncertain, Close repeats the release.
		if err := lease.Unlock(context.Background()); !errors.Is(err, dlock.ErrUncertain) {
			return err
		}
		return nil
	}
}

// openWithPatience repeats Open while a busy machine keeps the server from answering.
func openWithPatience(ctx context.Context, url string) (client *dlock.Client, err error) {
	for end := time.Now().Add(patience); ; {
		client, err = dlock.Open(ctx, url)
		if !errors.Is(err, dlock.ErrUnavailable) || time.Now().After(end) {
			return client, err
		}
	}
}

// tell prints an event with the current time, the end of the lease, its fence, and the
// possible lag of the process.
func tell(what string, lease *dlock.Lease, late time.Duration) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	fmt.Println(what, now.Nano(), now.Nano()+int64(time.Until(lease.Deadline())),
		lease.Fence(), int64(late))
}

// event is a line that a program has printed. All processes of the machine share its clock.
type event struct {
	at    int64 // ns
	end   int64 // of the lease
	fence uint64
	// Lag of the process: the worst while it waited, or since the end of a lost lease.
	lag time.Duration
}

// event reads the next event of a program and checks that it is want.
func (p *dlockProcess) event(want string) (e event) {
	p.t.Helper()
	var what string
	line := p.line()
	_, err := fmt.Sscan(line, &what, &e.at, &e.end, &e.fence, &e.lag)
	if err != nil || what != want {
		p.t.Fatalf("the program printed %q, want %q; standard error: %s",
			line, want, p.stderr.text())
	}
	return e
}

// end lets the program free its lock, and returns the event at which it begins to do so.
func (p *dlockProcess) end() event {
	p.t.Helper()
	p.input.Close()
	freed := p.event("freed")
	p.code(0)
	return freed
}

// partition is a lock that each program reaches over a separate network.
type partition struct {
	t      *testing.T
	server testenv.Server
	name   string
	bound  time.Duration
}

func newPartition(t *testing.T, b serverBackend) *partition {
	t.Helper()
	p := &partition{t: t, server: *b.shared(t), name: nameFor(t), bound: partitionBound}
	if b.name == "zk" {
		p.bound = partitionTicks
	}
	p.with("ttl", partitionTTL.String())
	return p
}

// with sets a parameter of the programs' URLs.
func (p *partition) with(name, value string) {
	p.server.URL = withParameter(p.server.URL, name, value)
}

// start starts a program, and the network between it and the server.
func (p *partition) start() (*dlockProcess, *testenv.Harness[testenv.TB]) {
	p.t.Helper()
	return p.startAs("program")
}

// startAs is start for a program with another role.
func (p *partition) startAs(role string) (*dlockProcess, *testenv.Harness[testenv.TB]) {
	p.t.Helper()
	network := testenv.NewHarness[testenv.TB](p.t, &p.server)
	cmd := dlockCommand(p.t.Context(), []string{roleVariable + "=" + role}, network.URL(), p.name)
	input, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	return launch(p.t, cmd, input), network
}

// awaitQueued returns when the server has a record of a waiter. Memcached never has one,
// so there it does not wait.
func (p *partition) awaitQueued() {
	p.t.Helper()
	switch p.server.Name {
	case "memcached":
	case "mysql", "mariadb":
		p.awaitSignal()
	default:
		awaitWaiters(p.t, p.server.URL, p.name, 1)
	}
}

// awaitSignal returns when a connection of the server is the first waiter of the name.
// That connection then holds a user-level lock, which the driver names after the
// database, the table and the lock.
func (p *partition) awaitSignal() {
	p.t.Helper()
	u, err := url.Parse(p.server.URL)
	if err != nil {
		p.t.Fatal(err)
	}
	database := strings.TrimPrefix(u.Path, "/")
	sum := sha256.Sum256([]byte(database + "\x00" + mysqlbackend.DefaultTable + "\x00" + p.name))
	lock := "dlock:" + hex.EncodeToString(sum[:16])
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = "root", "tcp", p.server.Addr
	connector, err := mysql.NewConnector(config)
	if err != nil {
		p.t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	look := time.NewTicker(guard.LookInterval)
	defer look.Stop()
	var first sql.NullInt64
	for end := time.Now().Add(patience); !first.Valid; <-look.C {
		err := db.QueryRowContext(p.t.Context(), "SELECT IS_USED_LOCK(?)", lock).Scan(&first)
		if err != nil || time.Now().After(end) {
			p.t.Fatalf("the server has no waiter (%v)", err)
		}
	}
}

// A process that is cut off from the server notices the end of its lease before
// another process gets the lock.
func TestIsolatedHolderLosesFirst(t *testing.T) {
	t.Parallel()
	for _, b := range serverBackends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			isolateHolder(newPartition(t, b))
		})
	}
}

func isolateHolder(p *partition) {
	p.t.Helper()
	holder, network := p.start()
	first := holder.event("held")
	waiter, _ := p.start()
	waiter.expect("waiting")
	heal := network.Cut(p.t)
	lost, next := holder.event("lost"), waiter.event("held")
	if ahead := time.Duration(next.at - lost.end); ahead <= 0 {
		p.t.Errorf("the waiter had the lock %v before the lease of the isolated holder was over",
			-ahead)
	}
	if late := time.Duration(lost.at-lost.end) - lost.lag; late > partitionLate {
		p.t.Errorf("the holder noticed the loss %v after the end of its lease, less a lag of %v",
			late, lost.lag)
	}
	p.t.Logf("the holder noticed the loss %v before the waiter had the lock",
		time.Duration(next.at-lost.at))
	if next.fence <= first.fence {
		p.t.Errorf("fence %d after %d", next.fence, first.fence)
	}
	heal()
	holder.input.Close()
	holder.code(0)
	waiter.end() // the isolated holder has left nothing that frees the lock
}

// A waiter that is cut off does not block a later waiter. It gets its turn when
// the network works again.
func TestIsolatedWaiterIsNoGhost(t *testing.T) {
	t.Parallel()
	for _, b := range serverBackends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			isolateWaiter(newPartition(t, b))
		})
	}
}

// In a queue on the server, the entry of the isolated waiter comes first.
func TestIsolatedFairWaiterIsNoGhost(t *testing.T) {
	t.Parallel()
	p := newPartition(t, serverBackends[0])
	p.with("fair", "1")
	isolateWaiter(p)
}

func isolateWaiter(p *partition) {
	p.t.Helper()
	holder, _ := p.start()
	first := holder.event("held")
	waiter, network := p.start()
	waiter.expect("waiting")
	p.awaitQueued()
	heal := network.Cut(p.t)
	third, _ := p.start()
	third.expect("waiting")
	freed := holder.end()
	second := third.event("held")
	took := time.Duration(second.at - freed.at)
	p.t.Logf("the third program had the lock %v after its release", took)
	if most := partitionTTL + p.bound; took <= 0 || took-second.lag > most {
		p.t.Errorf("it had the lock after %v, want at most %v and a lag of %v",
			took, most, second.lag)
	}
	heal()
	freed = third.end()
	last := waiter.event("held")
	if last.at <= freed.at || first.fence >= second.fence || second.fence >= last.fence {
		p.t.Errorf("the isolated waiter had the lock %v after the release, fences %d, %d, %d",
			time.Duration(last.at-freed.at), first.fence, second.fence, last.fence)
	}
	waiter.end()
}
