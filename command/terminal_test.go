//go:build linux

package command

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/command/internal/guard"
	"github.com/dlock-go/dlock/internal/testenv"
)

// onTerminal starts dlock as the foreground job of a new terminal. The terminal is its standard
// input: the test types by writing to p.input. The lines that the terminal shows arrive in p.lines.
func onTerminal(t *testing.T, url string, args ...string) *dlockProcess {
	t.Helper()
	keyboard, screen := newTerminal(t)
	return launchOn(t, dlockCommand(t.Context(), on(url), args...), keyboard, screen)
}

// newTerminal returns both sides of a new terminal. The descriptor of the keyboard is non-blocking,
// so that Close ends a Read.
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
	p := &dlockProcess{
		t: t, cmd: cmd, input: keyboard, lines: make(chan string, 1000), ended: make(chan struct{}),
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	closeAll(screen)
	read := make(chan struct{})
	go func() {
		defer close(read)
		// The read ends with an error when the last process closes the terminal.
		scan(keyboard, p.lines, &p.stderr)
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

// reads waits until the group in the foreground reads from the terminal. A key can get lost while
// the terminal passes to another group, as with every shell.
func (p *dlockProcess) reads() {
	p.t.Helper()
	p.waitsIn("tty_read", "wait_woken")
}

// stop types Ctrl-Z while the group in the foreground reads, and waits until all of the group has
// stopped. Before that, a process of the group could still read the next key.
func (p *dlockProcess) stop() {
	p.t.Helper()
	p.reads()
	group := p.foreground()
	p.keys(ctrlZ)
	runs := func(pid int) bool {
		state := stateOf(p.t, pid)
		return state != "T" && state != "Z" && state != ""
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(patience); slices.ContainsFunc(processesOf(group), runs); <-look.C {
		if time.Now().After(end) {
			p.t.Fatalf("group %d does not stop: it waits in %q", group, waitsOf(group))
		}
	}
}

// waitsIn waits until a thread of the group in the foreground waits in one of these functions of
// the kernel. A part of its name is enough.
func (p *dlockProcess) waitsIn(functions ...string) {
	p.t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(patience); ; <-look.C {
		where := waitsOf(p.foreground())
		isIn := func(function string) bool { return strings.Contains(where, function) }
		if slices.ContainsFunc(functions, isIn) {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("the foreground waits in %q, not in %q", where, functions)
		}
	}
}

// foreground returns the group in the foreground of the terminal.
func (p *dlockProcess) foreground() (group int) {
	p.t.Helper()
	raw, err := p.input.(*os.File).SyscallConn()
	if err != nil {
		p.t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { group, _ = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) })
	return group
}

// processesOf returns the processes of a group.
func processesOf(group int) (pids []int) {
	directories, _ := filepath.Glob("/proc/[1-9]*")
	for _, directory := range directories {
		pid, _ := strconv.Atoi(filepath.Base(directory))
		if of, err := unix.Getpgid(pid); err != nil || of != group {
			continue
		}
		pids = append(pids, pid)
	}
	return pids
}

// waitsOf returns the functions of the kernel in which the threads of a group wait.
func waitsOf(group int) string {
	var waits []string
	for _, pid := range processesOf(group) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", pid))
		for _, thread := range threads {
			wait, _ := os.ReadFile(thread)
			waits = append(waits, string(wait))
		}
	}
	return strings.Join(waits, " ")
}

// shows waits for a line that contains text.
func (p *dlockProcess) shows(text string) {
	p.t.Helper()
	for limit := time.Now().Add(patience); !strings.Contains(p.line(), text); {
		if time.Now().After(limit) {
			p.t.Fatalf("no %q for %v; the terminal shows: %s", text, patience, p.stderr.text())
		}
	}
}

// ends waits until the terminal is closed. No line may contain text before that.
func (p *dlockProcess) ends(text string) {
	p.t.Helper()
	for line, ok := p.next(p.lines); ok; line, ok = p.next(p.lines) {
		if strings.Contains(line, text) {
			p.t.Fatalf("the terminal shows %q", line)
		}
	}
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// The group of the command is in the foreground of the terminal and gets each key once.
func TestTerminalSignalsComeOnce(t *testing.T) {
	t.Parallel()
	p := onTerminal(t, fileURL(t), append([]string{"run", "x", "--"}, listener()...)...)
	p.shows("ready")
	p.keys(ctrlC)
	p.shows(syscall.SIGINT.String())
	// Only a program sends SIGUSR1. dlock forwards it, and it arrives after the signal of the key.
	p.send(syscall.SIGUSR1)
	if line := p.line(); !strings.Contains(line, syscall.SIGUSR1.String()) {
		t.Errorf("after one key the next line is %q", line)
	}
	p.send(syscall.SIGTERM)
	p.shows(syscall.SIGTERM.String())
	p.keys("\x04") // the end of its standard input
	p.code(0)
}

// A key that ends the command of dlock elect ends dlock, too: dlock itself does not receive it.
func TestKeyEndsElect(t *testing.T) {
	t.Parallel()
	p := onTerminal(t, fileURL(t), "elect", "x", "--", "sh", "-c", "echo ready; exec sleep 1000")
	p.shows("ready")
	p.keys(ctrlC)
	p.ends("ready")
	p.code(exitSignal + int(syscall.SIGINT))
}

// Under a shell with job control, the key stops dlock and its command, and fg continues both.
func TestTerminalStopsBoth(t *testing.T) {
	t.Parallel()
	keyboard, screen := newTerminal(t)
	cmd := dlockCommand(t.Context(), on(fileURL(t)), "run", "x", "--",
		"sh", "-c", "echo pid $$; read line; echo got $line")
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

// stopsAndContinues is a script that shows the group of dlock, runs dlock until it is stopped, and
// continues it after a line of input.
const stopsAndContinues = `sh -c 'echo group $$; exec "$@"' sh "$@"; echo stopped; read line; fg`

// keyStops starts dlock in a shell with job control on a new terminal, and waits for its first line
// with text. Then it calls ready, stops dlock by a key, continues it and ends it by another key.
func keyStops(t *testing.T, url, text string, ready func(p *dlockProcess), args ...string) {
	t.Helper()
	p := inJobs(t, url, stopsAndContinues, args)
	var group int
	if _, err := fmt.Sscanf(p.line(), "group %d", &group); err != nil {
		t.Fatal(err)
	}
	p.shows(text)
	ready(p)
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	// The first key may come before the guard of the job has ended.
	for end := time.Now().Add(patience); stateOf(t, group) != "T"; <-poll.C {
		if time.Now().After(end) {
			t.Fatalf("process %d is in state %s, not stopped", group, stateOf(t, group))
		}
		p.keys(ctrlZ)
	}
	p.shows("stopped")
	p.keys("\n")
	p.awaitForeground(group)
	p.keys(ctrlC)
	p.code(exitSignal + int(syscall.SIGINT))
}

// inJobs starts a script on a new terminal, in a shell with job control. "$@" in it is dlock.
func inJobs(t *testing.T, url, script string, args []string) *dlockProcess {
	t.Helper()
	keyboard, screen := newTerminal(t)
	cmd := dlockCommand(t.Context(), on(url), args...)
	words := []string{"sh", "-c", "set -m; " + script, "sh"}
	cmd.Path, cmd.Args = "/bin/sh", append(words, cmd.Args...)
	return launchOn(t, cmd, keyboard, screen)
}

// awaitForeground waits until group is in the foreground.
func (p *dlockProcess) awaitForeground(group int) {
	p.t.Helper()
	poll := time.NewTicker(guard.LookInterval)
	defer poll.Stop()
	for end := time.Now().Add(patience); p.foreground() != group; <-poll.C {
		if time.Now().After(end) {
			p.t.Fatalf("group %d is in the foreground, not %d", p.foreground(), group)
		}
	}
}

// The key stops dlock also when its job has ended, while --min-hold keeps the lock.
func TestKeyStopsAMinimumHold(t *testing.T) {
	t.Parallel()
	keyStops(t, fileURL(t), "until --min-hold is over", func(*dlockProcess) {},
		"run", "-v", "--min-hold", "1h", "x", "--", "true")
}

// The key stops dlock elect while it waits for its second term.
func TestKeyStopsElect(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	var leader *dlockProcess
	keyStops(t, url, "ready", func(p *dlockProcess) {
		leader = startDlock(t, url, "run", "-v", "x", "--", "sh", "-c", untilInput)
		leader.noted("waiting for")
		p.keys("\n")
		leader.expect("in")
		p.shows("standing again")
	}, "elect", "x", "--", "sh", "-c", "echo ready; read line")
	leader.input.Close()
	leader.code(0)
}

// In a group that no shell can continue, the key does not stop dlock elect after its first term.
func TestKeyStopsNoOrphan(t *testing.T) {
	t.Parallel()
	p := onTerminal(t, fileURL(t), "elect", "x", "--", "true")
	p.shows("standing again in 1s")
	p.keys(ctrlZ)
	p.shows("standing again in 2s")
	p.send(syscall.SIGTERM)
	p.code(exitSignal + int(syscall.SIGTERM))
}

// In a second term, a stop of dlock stops its job, too, and one fg continues both.
func TestStopOfASecondTerm(t *testing.T) {
	t.Parallel()
	p := inJobs(t, fileURL(t), stopsAndContinues, []string{
		"elect", "x", "--", "sh", "-c", "echo pid $$; read line",
	})
	var group, pid int
	if _, err := fmt.Sscanf(p.line(), "group %d", &group); err != nil {
		t.Fatal(err)
	}
	p.shows("pid")
	p.keys("\n")
	p.shows("standing again in 1s")
	if _, err := fmt.Sscanf(p.line(), "pid %d", &pid); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(group, syscall.SIGTSTP)
	awaitStop(t, pid)
	p.shows("stopped")
	p.keys("\n")
	p.reads()
	p.awaitForeground(pid)
	p.keys("\n")
	p.shows("standing again in 2s")
	_ = syscall.Kill(group, syscall.SIGTERM)
	p.code(exitSignal + int(syscall.SIGTERM))
}

// A message from the background stops dlock elect if the terminal requires that, and once only.
func TestMessageStopsElect(t *testing.T) {
	t.Parallel()
	script := `stty tostop; "$@" & ` +
		`until read pid name state rest </proc/$!/stat; [ $state = T ]; do sleep 0.1; done; ` +
		`echo stopped; read line; fg`
	p := inJobs(t, fileURL(t), script, []string{"elect", "x", "--", "true"})
	p.shows("stopped")
	p.keys("\n")
	p.shows("standing again in 1s")
	p.shows("standing again in 2s")
	closeAll(p.input.(*os.File)) // the terminal hangs up
	p.code(exitSignal + int(syscall.SIGHUP))
}

// A SIGTTOU does not stop dlock elect while it has the terminal, as after fg. In a second term it
// does not stop dlock either: the guard lends the terminal.
func TestLateSignalStopsNoElect(t *testing.T) {
	t.Parallel()
	script := `sh -c 'echo group $$; exec "$@"' sh "$@"; echo stopped`
	p := inJobs(t, fileURL(t), script, []string{
		"elect", "x", "--", "sh", "-c", "echo ready; read line",
	})
	var group int
	if _, err := fmt.Sscanf(p.line(), "group %d", &group); err != nil {
		t.Fatal(err)
	}
	p.shows("ready")
	p.keys("\n")
	p.shows("standing again in 1s")
	_ = syscall.Kill(group, syscall.SIGTTOU)
	p.shows("ready")
	p.reads()
	for range 100 { // dlock must have handled one of them before the job ends
		_ = syscall.Kill(group, syscall.SIGTTOU)
		time.Sleep(time.Millisecond)
	}
	p.keys("\n")
	p.shows("standing again in 2s")
	_ = syscall.Kill(group, syscall.SIGTERM)
	p.ends("ready")
}

// Without a terminal, dlock forwards the stop before it stops itself.
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

// A signal from elsewhere has stopped the command before. dlock stops its other processes as well.
func TestStopOfAStoppedCommand(t *testing.T) {
	t.Parallel()
	p := startDlock(t, fileURL(t), "run", "--ttl", "1h", "x", "--",
		"sh", "-c", `sleep 1000 & echo pids $$ $!; wait $!; exit 3`)
	var command, child int
	if _, err := fmt.Sscanf(p.line(), "pids %d %d", &command, &child); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(command, syscall.SIGSTOP)
	awaitStop(t, command)
	p.send(syscall.SIGTSTP)
	awaitStop(t, p.cmd.Process.Pid)
	awaitStop(t, child)
	p.send(syscall.SIGCONT)
	_ = syscall.Kill(child, syscall.SIGKILL)
	p.code(3)
}

// A process may stop itself after SIGTERM, as su does when its child is stopped. It goes on and has
// its grace, in the group of the command and outside of it.
func TestProcessThatStopsLateHasItsGrace(t *testing.T) {
	t.Parallel()
	for _, start := range []string{"", "setsid"} {
		p := startDlock(t, fileURL(t), "run", "--ttl", "1h", "--grace", "1m", "x", "--", "sh", "-c",
			start+` sh -c 'trap "sleep 0.03; kill -STOP \$\$; echo ended; exit" TERM; echo ready
			while :; do sleep 0.1; done' & read line; exit 3`)
		p.expect("ready")
		p.input.Close()
		p.expect("ended")
		p.code(3)
	}
}

// stopSet returns a set with SIGTSTP.
func stopSet() (set unix.Sigset_t) {
	set.Val[0] = 1 << (syscall.SIGTSTP - 1)
	return set
}

// The command inherits a blocked SIGTSTP, as under flock, and no signal that dlock has blocked for
// the guard. Signals for which the Go runtime has a handler may be unblocked, such as SIGTERM.
func TestCommandInheritsBlockedSignals(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	words := []string{"grep", "^SigBlk", "/proc/self/status"}
	for _, blocked := range []unix.Sigset_t{{}, stopSet()} {
		var before unix.Sigset_t
		if err := unix.PthreadSigmask(unix.SIG_SETMASK, &blocked, &before); err != nil {
			t.Fatal(err)
		}
		want, err := exec.CommandContext(t.Context(), words[0], words[1:]...).Output()
		got := dlockRun(t, on(fileURL(t)), append([]string{"run", "x", "--"}, words...)...)
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
		if err != nil || got.stdout != string(want) {
			t.Errorf("%s inherits %q, want %q: %v", words[0], got.stdout, want, err)
		}
	}
}

// awaitStop polls until a process is stopped: the system reports a stop only to the parent.
func awaitStop(t *testing.T, pid int) {
	t.Helper()
	look := time.NewTicker(guard.LookInterval)
	defer look.Stop()
	for end := time.Now().Add(patience); stateOf(t, pid) != "T"; <-look.C {
		if time.Now().After(end) {
			t.Fatalf("process %d is in state %s, not stopped", pid, stateOf(t, pid))
		}
	}
}

// stateOf returns the letter of the state of a process, or "" if there is no such process.
func stateOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:1]
}

func TestBreakOnTerminalNeedsAYes(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	name := "ask " + t.TempDir()
	holder := startDlock(t, server.URL, "run", "--meta", "somebody", name, "--",
		"sh", "-c", "echo ready; read line")
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

// While break waits for an answer, the lock may pass to a holder that break has not shown. That
// holder keeps the lock.
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

// Of three readers, one has gone before break takes the lock from it, and one is spared by the
// answer. The third one loses the lock.
func TestBreakGoesOnToTheNextHolder(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	name := "next " + t.TempDir()
	readers := map[string]*dlockProcess{}
	for _, meta := range []string{"r0", "r1", "r2"} {
		readers[meta] = startDlock(t, server.URL, "run", "--shared", "--meta", meta, name, "--",
			"sh", "-c", untilInput)
		readers[meta].expect("in")
	}
	breaker := onTerminal(t, server.URL, "break", name)
	gone := readers[shownReader(breaker)]
	gone.input.Close()
	gone.code(0)
	breaker.keys("y\n")
	spared := readers[shownReader(breaker)]
	breaker.keys("n\n")
	broken := readers[shownReader(breaker)]
	breaker.keys("y\n")
	breaker.shows("was taken from")
	breaker.code(0)
	broken.code(exitLost)
	spared.input.Close()
	spared.code(0)
}

// shownReader returns the next reader for which break asks: r0, r1 or r2.
func shownReader(p *dlockProcess) string {
	p.t.Helper()
	for {
		if _, text, ok := strings.Cut(p.line(), " is held by "); ok {
			return text[:len("r0")]
		}
	}
}

func TestWatchKeepsTableOnTerminal(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	watcher := onTerminal(t, url, "ls", "--watch")
	watcher.shows("NAME")
	holder := startDlock(t, url, "run", "appears", "--",
		"sh", "-c", "echo ready; read line; exit 0")
	watcher.shows("appears")
	holder.input.Close()
	holder.code(0)
	watcher.keys(ctrlC)
	watcher.code(128 + int(syscall.SIGINT))
}

// The error of a failed poll is shown above the last table. The next poll that
// succeeds replaces both.
func TestWatchOutlivesAFailedPoll(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	proxy := testenv.NewProxy(t, server.Addr)
	prefix := "w" + rand.Text()[:8] + "/" // the terminal is narrow
	watcher := onTerminal(t, "redis://"+proxy.Addr()+"?timeout=1m", "ls", "--watch", prefix)
	watcher.shows("NAME")
	heal := proxy.Cut(t)
	watcher.shows("the table is old: ")
	heal()
	holder := startDlock(t, server.URL, "run", "--prefix", prefix, "new", "--",
		"sh", "-c", "echo ready; read line; exit 0")
	holder.expect("ready")
	watcher.shows("new")
	watcher.keys(ctrlC)
	watcher.code(exitSignal + int(syscall.SIGINT))
}

// The error above the table is a message, as those on standard error are.
func TestWatchShowsNoPassword(t *testing.T) {
	t.Parallel()
	keyboard, screen := newTerminal(t)
	if err := draw(screen, []byte("NAME\n"), errors.New("redis:u:SECRET@h is away")); err != nil {
		t.Fatal(err)
	}
	shown := make([]byte, 1000)
	n, err := keyboard.Read(shown)
	if text := string(shown[:n]); err != nil || !strings.Contains(text, "redis:xxxxx@h") {
		t.Errorf("the terminal shows %q, %v", text, err)
	}
}

// A serial line does not report its size, or reports its columns only.
func TestTerminalWithoutASize(t *testing.T) {
	t.Parallel()
	_, screen := newTerminal(t)
	for reported, want := range map[unix.Winsize][2]int{
		{}: {80, 24}, {Col: 40}: {40, 24}, {Row: 4}: {80, 4}, {Col: 40, Row: 4}: {40, 4},
	} {
		err := unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &reported)
		if err != nil {
			t.Fatal(err)
		}
		if width, height, err := size(screen); [2]int{width, height} != want || err != nil {
			t.Errorf("the size of %+v is %d columns and %d rows, %v; want %d",
				reported, width, height, err, want)
		}
	}
}

// The progress is one line below the findings, and all of these lines fit the terminal.
func TestVerifyOnTerminal(t *testing.T) {
	t.Parallel()
	p := onTerminal(t, "",
		"verify", "--run", "^(AcquireGrantsAFreeLock|TryDoDoesNotWait)$", fileURL(t))
	for _, text := range []string{
		"below dlock-verify/", "] 0/2: ", "] 1/2: ", "2 of 2 promises kept",
	} {
		p.shows(text)
	}
	p.code(0)
	text := strings.ReplaceAll(p.stderr.text(), "\x1b[K", "")
	drawn := strings.FieldsFunc(text, func(r rune) bool { return r == '\r' || r == '\n' })
	for _, line := range drawn[1:] { // without the heading
		if len([]rune(line)) > 40 {
			t.Errorf("the line %q wraps", line)
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
	got = string(frame([]byte("漢字漢字 x\n"), 7, 4)) // each of them has two columns
	if want := "\x1b[H漢字漢\x1b[K\r\n\x1b[J"; got != want {
		t.Errorf("frame is %q, want %q", got, want)
	}
}
