//go:build unix

package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	_ "github.com/dlock-go/dlock/etcdbackend"
	"github.com/dlock-go/dlock/internal/testenv"
	_ "github.com/dlock-go/dlock/membackend"
	_ "github.com/dlock-go/dlock/memcachedbackend"
	_ "github.com/dlock-go/dlock/mysqlbackend"
	_ "github.com/dlock-go/dlock/pgbackend"
	_ "github.com/dlock-go/dlock/redisbackend"
	_ "github.com/dlock-go/dlock/zkbackend"
)

// roleVariable gives the test binary another role. It can be dlock itself, so that the tests run
// the real program with the race detector. It can also be a command for dlock, or a user's program.
const roleVariable = "DLOCK_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "dlock":
		logging.Disable() // go-redis would print errors that dlock reports, too
		Main()
	case "listener":
		listen()
	case "program":
		exit(program(os.Args[1], os.Args[2]))
	case "mover":
		exit(mover(os.Args[1], os.Args[2]))
	default:
		// Under nohup, each dlock that the tests start would ignore SIGHUP, too.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		// In the background of a shell without job control, the same is true of SIGINT.
		if signal.Ignored(os.Interrupt) {
			signal.Notify(make(chan os.Signal, 1), os.Interrupt)
		}
		testenv.Main(m)
	}
}

// exit ends a user's program.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// patience limits every wait for an event that must happen.
const patience = time.Minute

// listen is a command that prints each signal that it receives, until its standard input ends.
func listen() {
	signals := make(chan os.Signal, 32)
	signal.Notify(signals, listened...)
	end := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(end)
	}()
	fmt.Println("ready")
	for {
		select {
		case sig := <-signals:
			fmt.Println(sig)
		case <-end:
			return
		}
	}
}

// listener is the command line that runs listen.
func listener() []string {
	return []string{"env", roleVariable + "=listener", os.Args[0]}
}

// dlockProcess is a running dlock.
type dlockProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	input  io.WriteCloser
	lines  chan string // of standard output; closed when the last writer has ended
	notes  chan string // lines of standard error, likewise
	stderr lockedBuffer
	ended  chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) line(s string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.WriteString(s + "\n")
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.String()
}

// dlockCommand returns dlock with these arguments. Its environment has no variable of the test
// process that dlock would read.
func dlockCommand(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append([]string{
		roleVariable + "=dlock",
		"PATH=" + os.Getenv("PATH"),
		"GORACE=atexit_sleep_ms=0", // the race detector would wait a second at each exit
	}, env...)
	return cmd
}

// startDlock starts dlock on a backend, with a pipe as standard input.
func startDlock(t *testing.T, url string, args ...string) *dlockProcess {
	t.Helper()
	cmd := dlockCommand(t.Context(), []string{"DLOCK_URL=" + url}, args...)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	return launch(t, cmd, input)
}

// launch starts cmd and reads its output.
func launch(t *testing.T, cmd *exec.Cmd, input io.WriteCloser) *dlockProcess {
	t.Helper()
	return launchTo(t, cmd, input, nil)
}

// launchTo is launch, but the standard error of cmd is stderr unless that is nil.
func launchTo(t *testing.T, cmd *exec.Cmd, input io.WriteCloser, stderr *os.File) *dlockProcess {
	t.Helper()
	p := &dlockProcess{
		t: t, cmd: cmd, input: input,
		lines: make(chan string, 1000), notes: make(chan string, 1000), ended: make(chan struct{}),
	}
	// The test makes its own pipes: Wait closes the pipes of package exec, even with unread output.
	stdout, out := pipes(t)
	notes, err := pipes(t)
	cmd.Stdout, cmd.Stderr = out, err
	if stderr != nil {
		cmd.Stderr = stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	closeAll(out, err)
	if stderr != nil {
		closeAll(stderr)
	}
	var readers sync.WaitGroup
	readers.Go(func() { scan(stdout, p.lines, nil) })
	readers.Go(func() { scan(notes, p.notes, &p.stderr) })
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
		_ = input.Close()
		closeAll(stdout, notes)
		readers.Wait()
	})
	return p
}

func pipes(t *testing.T) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(read, write) })
	return read, write
}

func closeAll(files ...*os.File) {
	for _, file := range files {
		_ = file.Close()
	}
}

func scan(r io.Reader, lines chan<- string, keep *lockedBuffer) {
	defer close(lines)
	for scanner := bufio.NewScanner(r); scanner.Scan(); {
		if keep != nil {
			keep.line(scanner.Text())
		}
		lines <- scanner.Text()
	}
}

// line returns the next line of standard output.
func (p *dlockProcess) line() string {
	p.t.Helper()
	line, ok := p.next(p.lines)
	if !ok {
		p.awaitEnd()
		p.t.Fatalf("standard output ended, with code %d; standard error: %s",
			codeOf(p.cmd), p.stderr.text())
	}
	return line
}

func (p *dlockProcess) next(lines <-chan string) (line string, ok bool) {
	p.t.Helper()
	select {
	case line, ok = <-lines:
	case <-time.After(patience):
		p.t.Fatalf("no line for %v; standard error: %s", patience, p.stderr.text())
	}
	return line, ok
}

// expect reads the next lines of standard output and checks them.
func (p *dlockProcess) expect(want ...string) {
	p.t.Helper()
	for _, w := range want {
		if got := p.line(); got != w {
			p.t.Fatalf("standard output has the line %q, want %q", got, w)
		}
	}
}

// noted waits for a line on standard error that contains text.
func (p *dlockProcess) noted(text string) {
	p.t.Helper()
	for {
		line, ok := p.next(p.notes)
		if !ok {
			p.t.Fatalf("standard error ended without %q: %s", text, p.stderr.text())
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

// silent waits until standard output has no writer left: neither the command nor
// any process that it started.
func (p *dlockProcess) silent() {
	p.t.Helper()
	for {
		if _, ok := p.next(p.lines); !ok {
			return
		}
	}
}

// code waits until dlock has ended, and checks its exit code.
func (p *dlockProcess) code(want int) {
	p.t.Helper()
	p.awaitEnd()
	if got := codeOf(p.cmd); got != want {
		p.t.Errorf("exit code %d, want %d; standard error: %s", got, want, p.stderr.text())
	}
}

// awaitEnd waits until dlock has ended, which may take a long term.
func (p *dlockProcess) awaitEnd() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(5 * patience):
		p.t.Fatalf("dlock has not ended after %v; standard error: %s", 5*patience, p.stderr.text())
	}
}

func (p *dlockProcess) send(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// wasSignaled reports whether a signal ended cmd.
func wasSignaled(cmd *exec.Cmd) bool {
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// codeOf returns the exit code as a shell shows it.
func codeOf(cmd *exec.Cmd) int {
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// result is the exit code and the output of a dlock that has ended.
type result struct {
	code           int
	stdout, stderr string
}

// dlockRun runs dlock to its end, without standard input.
func dlockRun(t *testing.T, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := dlockCommand(ctx, env, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok || ctx.Err() != nil {
		t.Fatalf("dlock %q: %v %v", args, err, ctx.Err())
	}
	return result{codeOf(cmd), stdout.String(), stderr.String()}
}

// on returns the environment of a dlock that uses this URL.
func on(url string) []string { return []string{"DLOCK_URL=" + url} }

// fileURL returns the URL of a backend that no other test uses.
func fileURL(t *testing.T) string {
	t.Helper()
	return "file:" + t.TempDir()
}
