//go:build linux

package command

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/internal/testenv"
)

// onTerminal starts dlock as the foreground job of a new terminal, which is its
// standard input. What is written to input is typed; all that the terminal
// shows comes as lines.
func onTerminal(t *testing.T, url string, args ...string) *dlockProcess {
	t.Helper()
	keyboard, screen := newTerminal(t)
	return launchOn(t, dlockCommand(t.Context(), on(url), args...), keyboard, screen)
}

// newTerminal leaves the descriptor of the keyboard non-blocking, so that Close ends
// a Read.
func newTerminal(t *testing.T) (keyboard, screen *os.File) {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	check(err)
	check(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	check(err)
	check(unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 4, Col: 40}))
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	check(err)
	return os.NewFile(uintptr(fd), "/dev/ptmx"), screen
}

// launchOn starts cmd as the leader of a session on a terminal.
func launchOn(t *testing.T, cmd *exec.Cmd, keyboard, screen *os.File) *dlockProcess {
	t.Helper()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = screen, screen, screen
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p := &dlockProcess{t: t, cmd: cmd, input: keyboard, lines: make(chan string, 1000), ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	closeAll(screen)
	read := make(chan struct{})
	go func() {
		defer close(read)
		scan(keyboard, p.lines, &p.stderr) // ends with an error when the last one closes the terminal
	}()
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
		closeAll(keyboard)
		<-read
	})
	return p
}

func (p *dlockProcess) keys(keys string) {
	p.t.Helper()
	if _, err := p.input.Write([]byte(keys)); err != nil {
		p.t.Fatal(err)
	}
}

// shows waits for a line that contains text.
func (p *dlockProcess) shows(text string) {
	p.t.Helper()
	for !strings.Contains(p.line(), text) {
		continue
	}
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// On a terminal the command shares dlock's group and gets each key from the
// terminal: nothing may come a second time, from dlock.
func TestTerminalSignalsComeOnce(t *testing.T) {
	t.Parallel()
	p := onTerminal(t, fileURL(t), append([]string{"run", "x", "--"}, listener()...)...)
	p.shows("ready")
	p.keys(ctrlC)
	p.shows(syscall.SIGINT.String())
	p.send(syscall.SIGUSR1) // what only a program sends is handed on, and behind the key
	if line := p.line(); !strings.Contains(line, syscall.SIGUSR1.String()) {
		t.Errorf("after one key comes %q", line)
	}
	p.send(syscall.SIGTERM)
	p.shows(syscall.SIGTERM.String())
	p.keys("\x04") // the end of its standard input
	p.code(0)
}

// Under a shell with job control: the key stops both, and fg wakes both.
func TestTerminalStopsBoth(t *testing.T) {
	t.Parallel()
	keyboard, screen := newTerminal(t)
	cmd := dlockCommand(t.Context(), on(fileURL(t)), "run", "x", "--", "sh", "-c", "echo pid $$; read line; echo got $line")
	shell := `set -m; "$@"; echo stopped; read line; fg; echo code $?`
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", shell, "sh"}, cmd.Args...)
	p := launchOn(t, cmd, keyboard, screen)
	var pid int
	if _, err := fmt.Sscanf(p.line(), "pid %d", &pid); err != nil {
		t.Fatal(err)
	}
	p.keys(ctrlZ)
	p.shows("stopped")
	awaitStop(t, pid)
	p.keys("\n")
	p.keys("on\n")
	p.shows("got on")
	p.shows("code 0")
	p.code(0)
}

// Without a terminal the stop is dlock's to hand on, before it stops itself.
func TestStopAndContinue(t *testing.T) {
	t.Parallel()
	command := append([]string{"sh", "-c", `echo pid $$; exec "$@"`, "sh"}, listener()...)
	p := startDlock(t, fileURL(t), append([]string{"run", "--ttl", "1h", "x", "--"}, command...)...)
	var pid int
	if _, err := fmt.Sscanf(p.line(), "pid %d", &pid); err != nil {
		t.Fatal(err)
	}
	p.expect("ready")
	p.send(syscall.SIGTSTP)
	awaitStop(t, pid)
	awaitStop(t, p.cmd.Process.Pid)
	p.send(syscall.SIGCONT)
	p.expect(syscall.SIGCONT.String())
	p.input.Close()
	p.code(0)
}

// awaitStop waits until a process is stopped. Nobody but its parent is told.
func awaitStop(t *testing.T, pid int) {
	t.Helper()
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for end := time.Now().Add(patience); stateOf(t, pid) != "T"; <-look.C {
		if time.Now().After(end) {
			t.Fatalf("process %d is not stopped but in state %s", pid, stateOf(t, pid))
		}
	}
}

// stateOf is the letter of a process's state.
func stateOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:1]
}

func TestBreakAsksOnTerminal(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	name := "ask " + t.TempDir()
	holder := startDlock(t, server.URL, "run", "--meta", "somebody", name, "--", "sh", "-c", "echo ready; read line")
	holder.expect("ready")

	no := onTerminal(t, server.URL, "break", name)
	no.keys("\n")
	no.shows("held by somebody")
	no.code(exitNo)
	interrupted := onTerminal(t, server.URL, "break", "-v", name)
	interrupted.keys(ctrlC)
	interrupted.code(128 + int(syscall.SIGINT))
	if got := dlockRun(t, on(server.URL), "status", "--exit-code", name); got.code != 0 {
		t.Fatal("the lock was broken without a yes")
	}

	yes := onTerminal(t, server.URL, "break", name)
	yes.keys("y\n")
	yes.shows("was taken from somebody")
	yes.code(0)
	holder.code(exitLost)
}

// While the question stands the lock may pass to somebody who was not shown.
func TestBreakSparesNextHolder(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	name := "spare " + t.TempDir()
	script := []string{name, "--", "sh", "-c", "echo ready; read line; exit 0"}
	first := startDlock(t, server.URL, append([]string{"run", "--meta", "first"}, script...)...)
	first.expect("ready")
	breaker := onTerminal(t, server.URL, "break", name)
	breaker.shows("held by first")
	first.input.Close()
	first.code(0)
	second := startDlock(t, server.URL, append([]string{"run", "--meta", "second"}, script...)...)
	second.expect("ready")
	breaker.keys("y\n")
	breaker.shows("no longer held by first")
	breaker.code(exitNo)
	second.input.Close()
	second.code(0)
}

func TestWatchKeepsTableOnTerminal(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	watcher := onTerminal(t, url, "ls", "--watch")
	watcher.shows("NAME")
	holder := startDlock(t, url, "run", "appears", "--", "sh", "-c", "echo ready; read line; exit 0")
	watcher.shows("appears")
	holder.input.Close()
	holder.code(0)
	watcher.keys(ctrlC)
	watcher.code(128 + int(syscall.SIGINT))
}

// The progress stands in one line below the findings, each of which fits the terminal.
func TestVerifyOnTerminal(t *testing.T) {
	t.Parallel()
	p := onTerminal(t, "", "verify", "--run", "^(AcquireGrantsAFreeLock|TryDoDoesNotWait)$", fileURL(t))
	for _, text := range []string{"beneath dlock-verify/", "] 0/2: ", "] 1/2: ", "2 of 2 promises kept"} {
		p.shows(text)
	}
	p.code(0)
	drawn := strings.FieldsFunc(strings.ReplaceAll(p.stderr.text(), "\x1b[K", ""), func(r rune) bool { return r == '\r' || r == '\n' })
	for _, line := range drawn[1:] { // without the heading
		if len([]rune(line)) > 40 {
			t.Errorf("%q wraps", line)
		}
	}
}

func TestFrameFitsTerminal(t *testing.T) {
	t.Parallel()
	table := []byte("NAME  HOLDER\nä     me\nb     me\nc     me\n")
	got := string(frame(table, 7, 4))
	want := "\x1b[HNAME  H\x1b[K\r\nä     m\x1b[K\r\n... and\x1b[K\r\n\x1b[J"
	if got != want {
		t.Errorf("frame is %q, want %q", got, want)
	}
}
