//go:build unix

package command

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// listened are the signals that a listener prints.
var listened = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT,
}

func TestRunsFollowEachOther(t *testing.T) {
	t.Parallel()
	url, log := fileURL(t), filepath.Join(t.TempDir(), "log")
	script := `echo begin >>"$1"; echo in; read line; echo end >>"$1"`
	first := startDlock(t, url, "run", "x", "--", "sh", "-c", script, "sh", log)
	first.expect("in")
	second := startDlock(t, url, "run", "-v", "x", "--", "sh", "-c", script, "sh", log)
	second.noted("waiting")
	first.input.Close()
	second.expect("in")
	first.code(0)
	second.input.Close()
	second.code(0)
	text, err := os.ReadFile(log)
	if want := "begin\nend\nbegin\nend\n"; err != nil || string(text) != want {
		t.Errorf("the commands wrote %q, want %q (%v)", text, want, err)
	}
}

// The TTL is an hour, so only the end of the process can have freed the lock.
func TestKilledHolderLetsNextIn(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	first := startDlock(t, url, "run", "--ttl", "1h", "x", "--",
		"sh", "-c", "echo in; exec sleep 1000")
	first.expect("in")
	second := startDlock(t, url, "run", "-v", "--ttl", "1h", "x", "--", "echo", "in")
	second.noted("waiting")
	first.send(syscall.SIGKILL)
	second.expect("in")
	second.code(0)
	first.silent() // its command ended with it
}

func TestSignalsAreForwarded(t *testing.T) {
	t.Parallel()
	p := startDlock(t, fileURL(t), append([]string{"run", "x", "--"}, listener()...)...)
	p.expect("ready")
	for _, sig := range listened {
		p.send(sig.(syscall.Signal))
		p.expect(sig.String())
	}
	p.input.Close()
	p.code(0)
}

// SIGUSR1 reaches COMMAND, and no other process of its group. The child would write its line before
// it ends by SIGTERM.
func TestUserSignalReachesTheCommandAlone(t *testing.T) {
	t.Parallel()
	const child = `trap "echo child" USR1; trap "exit 0" TERM; echo ready; ` +
		`while :; do sleep 0.05; done`
	p := startDlock(t, fileURL(t), "run", "x", "--", "sh", "-c",
		`trap 'echo command; kill -TERM $!; wait $!; exit 0' USR1
		sh -c '`+child+`' & wait`)
	p.expect("ready")
	p.send(syscall.SIGUSR1)
	p.expect("command")
	p.code(0)
	if line, ok := p.next(p.lines); ok {
		t.Errorf("the signal also reached the child of COMMAND: %q", line)
	}
}

func TestSignalReachesGroup(t *testing.T) {
	t.Parallel()
	p := startDlock(t, fileURL(t), "run", "x", "--", "sh", "-c", "sleep 1000 & echo ready; wait")
	p.expect("ready")
	p.send(syscall.SIGTERM)
	p.silent() // sleep has the same standard output
	p.code(128 + int(syscall.SIGTERM))
}

// A signal ends a dlock that waits. dlock ends by SIGINT, SIGTERM and SIGHUP, as a shell expects,
// and with an exit code after SIGQUIT.
func TestSignalBeforeLockIsHeld(t *testing.T) {
	t.Parallel()
	for sig, isSignaled := range map[syscall.Signal]bool{
		syscall.SIGINT: true, syscall.SIGTERM: true, syscall.SIGHUP: true, syscall.SIGQUIT: false,
	} {
		url := fileURL(t)
		first := startDlock(t, url, "run", "x", "--", "sh", "-c", "echo in; read line; exit 0")
		first.expect("in")
		second := startDlock(t, url, "run", "-v", "x", "--", "echo", "in")
		second.noted("waiting")
		second.send(sig)
		second.code(128 + int(sig))
		if got := wasSignaled(second.cmd); got != isSignaled {
			t.Errorf("after %v dlock ended by a signal: %v, want %v", sig, got, isSignaled)
		}
		second.silent()
		first.input.Close()
		first.code(0)
		if got := dlockRun(t, on(url), "try", "x", "--", "true"); got.code != 0 {
			t.Errorf("after %v the lock is not free: %s", sig, got.stderr)
		}
	}
}

// A waiter that a signal has ended has left the queue.
func TestSignalledWaiterLeavesQueue(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	name := "queue " + t.TempDir()
	holder := startDlock(t, server.URL, "run", "--fair", name, "--",
		"sh", "-c", "echo in; read line; exit 0")
	holder.expect("in")
	waiter := startDlock(t, server.URL, "run", "--fair", "--ttl", "1h", name, "--", "true")
	awaitWaiters(t, server.URL, name, 1)
	waiter.send(syscall.SIGTERM)
	waiter.code(128 + int(syscall.SIGTERM))
	if n := waitersOf(t, server.URL, name); n != 0 {
		t.Errorf("%d waiters are left", n)
	}
	holder.input.Close()
	holder.code(0)
}

func waitersOf(t *testing.T, url, name string) int {
	t.Helper()
	return statusOf(t, url, name).Waiters
}

// statusOf repeats the command while the server does not answer. On a busy machine a restarted
// server may need more time than one command waits.
func statusOf(t *testing.T, url, name string) (info lockJSON) {
	t.Helper()
	got := dlockRun(t, on(url), "status", "--json", name)
	for end := time.Now().Add(patience); got.code == exitUnavailable && time.Now().Before(end); {
		got = dlockRun(t, on(url), "status", "--json", name)
	}
	if err := json.Unmarshal([]byte(got.stdout), &info); err != nil {
		t.Fatalf("status: %v; standard error: %s", err, got.stderr)
	}
	return info
}

func awaitWaiters(t *testing.T, url, name string, want int) {
	t.Helper()
	for end := time.Now().Add(patience); waitersOf(t, url, name) != want; {
		if time.Now().After(end) {
			t.Fatalf("there are %d waiters, want %d", waitersOf(t, url, name), want)
		}
	}
}

func TestMaxHoldEndsCommand(t *testing.T) {
	t.Parallel()
	p := startDlock(t, fileURL(t), "run", "--ttl", "10s", "--max-hold", "500ms", "x", "--",
		"sleep", "1000")
	p.silent()
	p.code(exitLost)
}

// A signal that was ignored when dlock started stays ignored.
func TestNohup(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	cmd := dlockCommand(t.Context(), on(url), append([]string{"run", "x", "--"}, listener()...)...)
	shell := []string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`, os.Args[0]}
	cmd.Args = append(shell, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := launch(t, cmd, input)
	p.expect("ready")
	p.send(syscall.SIGHUP)
	p.send(syscall.SIGUSR1)
	p.expect(syscall.SIGUSR1.String())
	p.input.Close()
	p.code(0)
}

func TestBreakEndsCommand(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	name := "break " + t.TempDir()
	// The command ends by SIGTERM; its child does not.
	p := startDlock(t, server.URL, "run", "--ttl", "30s", "--grace", "1s", name, "--",
		"sh", "-c", `(trap "" TERM; echo ready; while :; do sleep 1; done) & wait`)
	p.expect("ready")
	got := dlockRun(t, on(server.URL), "break", "--yes", name)
	if got.code != 0 || !strings.Contains(got.stdout, filepath.Base(os.Args[0])+"@") {
		t.Fatalf("break: exit code %d, standard output %q, standard error %q",
			got.code, got.stdout, got.stderr)
	}
	p.noted("lost")
	p.code(exitLost)
	p.silent()
	if got := dlockRun(t, on(server.URL), "break", "--yes", name); got.code != exitNo {
		t.Errorf("break of a free lock: exit code %d, want %d: %s", got.code, exitNo, got.stderr)
	}
}

func TestLossMayBeOutlived(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	name := "outlive " + t.TempDir()
	p := startDlock(t, server.URL, "run", "--on-lost", "continue", name, "--",
		"sh", "-c", "echo ready; read line; exit 5")
	p.expect("ready")
	if got := dlockRun(t, on(server.URL), "break", "--yes", name); got.code != 0 {
		t.Fatalf("break: exit code %d: %s", got.code, got.stderr)
	}
	p.noted("goes on without it")
	p.input.Close()
	p.code(5)
}

// Standard error is a full pipe that is not read: the command still ends with its lock.
func TestBlockedMessagesDelayNothing(t *testing.T) {
	t.Parallel()
	read, write := pipes(t)
	fillPipe(t, write)
	url, name := testenv.Redis(t).URL, nameFor(t)
	cmd := dlockCommand(t.Context(), on(url), "run", "-v", name, "--",
		"sh", "-c", "echo in; sleep 1000")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := launchTo(t, cmd, input, write)
	p.expect("in")
	breakLock(t, url, name)
	p.silent()
	go func() { _, _ = io.Copy(io.Discard, read) }() // ends with the pipe
	p.code(exitLost)
}

// breakLock takes the lock from its holder.
func breakLock(t *testing.T, url, name string) {
	t.Helper()
	if got := dlockRun(t, on(url), "break", "--yes", name); got.code != 0 {
		t.Fatalf("dlock break: exit code %d: %s", got.code, got.stderr)
	}
}

// fillPipe writes until the pipe is full.
func fillPipe(t *testing.T, pipe *os.File) {
	t.Helper()
	_ = pipe.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for {
		if _, err := pipe.Write(make([]byte, 4096)); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	_ = pipe.SetWriteDeadline(time.Time{})
}

// A message to a closed standard error ends neither dlock nor its command.
func TestClosedStandardError(t *testing.T) {
	t.Parallel()
	read, write := pipes(t)
	closeAll(read)
	cmd := dlockCommand(t.Context(), on(fileURL(t)),
		"run", "-v", "--on-lost", "continue", "--max-hold", "500ms", "x", "--",
		"sh", "-c", "exec 2>/dev/null; echo in; sleep 1; echo there; exit 5")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := launchTo(t, cmd, input, write)
	p.expect("in", "there")
	p.code(5)
}

// Without a URL dlock says which one it uses. A standard error that nothing reads does not keep
// the command from running.
func TestUnreadStandardErrorWithoutURL(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, read, write *os.File){
		"closed": func(_ *testing.T, read, _ *os.File) { closeAll(read) },
		"full":   func(t *testing.T, _, write *os.File) { t.Helper(); fillPipe(t, write) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, write := pipes(t)
			prepare(t, read, write)
			cmd := dlockCommand(t.Context(), []string{"XDG_STATE_HOME=" + t.TempDir()},
				"run", "x", "--", "sh", "-c", "echo in; exit 5")
			input, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			p := launchTo(t, cmd, input, write)
			p.expect("in")
			p.code(5)
		})
	}
}

// A candidate whose standard error is full stands again.
func TestElectOutlivesUnreadStandardError(t *testing.T) {
	t.Parallel()
	_, write := pipes(t)
	fillPipe(t, write)
	cmd := dlockCommand(t.Context(), on(fileURL(t)), "elect", "x", "--", "echo", "leading")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := launchTo(t, cmd, input, write)
	p.expect("leading", "leading")
	p.send(syscall.SIGTERM)
	p.code(exitSignal + int(syscall.SIGTERM))
}

// A subcommand that waits for the writer of --url-file ends with the first signal.
func TestSignalWhileReadingTheURL(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"status", "x"}, {"ls"}, {"break", "--yes", "x"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			pipe := filepath.Join(t.TempDir(), "url")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			p := startDlock(t, "", append(args, "--url-file", pipe)...)
			// Without a reader this fails. As long as it is open, the reader waits for text.
			fd, err := -1, error(syscall.ENXIO)
			for end := time.Now().Add(patience); errors.Is(err, syscall.ENXIO); {
				if time.Now().After(end) {
					t.Fatal("dlock does not read the file")
				}
				time.Sleep(time.Millisecond)
				fd, err = syscall.Open(pipe, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer syscall.Close(fd)
			p.send(syscall.SIGTERM)
			select {
			case <-p.ended:
				p.code(exitSignal + int(syscall.SIGTERM))
			case <-time.After(patience):
				t.Error("dlock goes on after the signal")
			}
		})
	}
}
