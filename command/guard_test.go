//go:build linux

package command

import (
	"bufio"
	"fmt"
	"io"
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
	"github.com/dlock-go/dlock/internal/announce"
	"github.com/dlock-go/dlock/internal/testenv"
)

// Orders of dlock, and answers of the guard.
const (
	orderTerminate = "terminate"
	orderKill      = "kill"

	answerStarted = "started"
	answerLate    = "late"
	answerKilling = "killing"
	answerEnded   = "ended"
	answerEmpty   = "empty"
	answerGone    = "gone"
)

// uptime reads the clock of the deadlines of a guard.
func uptime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return time.Duration(now.Nano())
}

// Processes that a shell started before it became dlock do not belong to the command.
func TestChildrenOfTheCallerLive(t *testing.T) {
	t.Parallel()
	cmd := dlockCommand(t.Context(), on(fileURL(t)), "run", "x", "--", "true")
	p, pid := launchBy(t, cmd, `sleep 1000 >/dev/null 2>&1 & echo $!; exec "$@"`)
	p.code(0)
	if state := stateOf(t, pid); state != "S" {
		t.Errorf("the child of the caller is in state %q, want S", state)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// launchBy starts cmd by a shell, which prints the number of another process and then becomes cmd.
func launchBy(t *testing.T, cmd *exec.Cmd, script string) (p *dlockProcess, pid int) {
	t.Helper()
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", script, "sh"}, cmd.Args...)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p = launch(t, cmd, input)
	if _, err := fmt.Sscan(p.line(), &pid); err != nil {
		t.Fatal(err)
	}
	return p, pid
}

// When dlock is killed, processes end even if they hide from a search by group, session,
// environment and parent.
func TestKilledDlockTakesHiddenProcesses(t *testing.T) {
	t.Parallel()
	const hiding = `(env -i setsid \
	sh -c 'trap "" TERM; echo pid $$; while :; do sleep 0.1; done' &)
read pid name state parent rest </proc/$PPID/stat
echo pid $$; echo pid $PPID; echo pid $parent; read line`
	p := startDlock(t, testenv.Redis(t).URL, "run", nameFor(t), "--", "sh", "-c", hiding)
	pids := strayPids(t, p)
	p.send(syscall.SIGKILL)
	for _, ok := p.next(p.lines); ok; _, ok = p.next(p.lines) { // the last writer has ended
		continue
	}
	p.awaitEnd()
	allGone(t, pids)
}

// If the guard is killed, or a debugger has stopped it, dlock ends the job itself.
func TestDlockTakesOver(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, flag string
		isTraced   bool
	}{
		{"killed", "-v", false},
		{"killed with -o", "-o", false},
		{"traced", "-v", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			url, lock := testenv.Redis(t).URL, nameFor(t)
			p := startDlock(t, url, "run", "--grace", "0.5s", row.flag, lock, "--",
				"sh", "-c", "echo $PPID; "+straying)
			var guard int
			if _, err := fmt.Sscan(p.line(), &guard); err != nil {
				t.Fatal(err)
			}
			pids := strayPids(t, p)
			if row.isTraced {
				trace(t, guard)
				breakLock(t, url, lock)
				p.noted("did not answer")
				p.code(exitLost)
			} else {
				if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				p.code(exitSignal + int(syscall.SIGKILL))
			}
			allGone(t, append(pids, guard))
		})
	}
}

// trace stops a process as a debugger does, until the goroutine of the test ends.
func trace(t *testing.T, pid int) {
	t.Helper()
	runtime.LockOSThread() // the thread is the tracer
	if err := unix.PtraceSeize(pid); err != nil {
		t.Skipf("does not apply: no debuggers here: %v", err)
	}
	if err := unix.PtraceInterrupt(pid); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
		t.Fatal(err)
	}
}

// A guard that is stopped goes on when its dlock is killed, and ends the job. The system does this
// for a group that becomes orphaned. Under an outer dlock it does not: the outer guard, which
// adopts the guard, is in the same session.
func TestStoppedGuardOutlivesItsDlock(t *testing.T) {
	t.Parallel()
	for range 3 { // dlock may run on any of its threads
		p := startDlock(t, fileURL(t), "run", "outer", "--",
			"sh", "-c", `"$@"; read line`, "sh", os.Args[0], "run", "x", "--",
			"sh", "-c", `read pid name state parent rest </proc/$PPID/stat
				echo pid $$; echo pid $parent; echo $PPID; while :; do sleep 0.1; done`)
		pids := pidsFrom(t, p, 2)
		var guard int
		if _, err := fmt.Sscan(p.line(), &guard); err != nil {
			t.Fatal(err)
		}
		for _, pid := range []int{pids[1], guard} { // only a stopped dlock leaves its guard stopped
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			awaitStop(t, pid)
		}
		if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(patience / 3); stateOf(t, guard) != ""; {
			if time.Now().After(end) {
				_ = syscall.Kill(guard, syscall.SIGKILL)
				t.Fatalf("the guard has not ended; its state is %s", stateOf(t, guard))
			}
			time.Sleep(10 * time.Millisecond)
		}
		allGone(t, pids)
		p.input.Close()
		p.awaitEnd()
	}
}

// A guard that a signal has stopped goes on at once. It reports the end of the command, forwards
// signals and ends the job, which has its grace.
func TestStoppedGuardGoesOn(t *testing.T) {
	t.Parallel()
	const loop = "echo stopped; while :; do sleep 0.1; done"
	for name, row := range map[string]struct {
		command string
		act     func(t *testing.T, p *dlockProcess, url, lock string)
		code    int
	}{
		"when the command ends": {command: "echo stopped; exit 3", code: 3},
		"when a signal comes": {
			command: "trap 'echo usr1; exit 4' USR1; " + loop,
			act: func(_ *testing.T, p *dlockProcess, _, _ string) {
				p.send(syscall.SIGUSR1)
				p.expect("usr1")
			},
			code: 4,
		},
		"when the lock is lost": {
			command: "trap 'echo term; exit 5' TERM; " + loop,
			act: func(t *testing.T, p *dlockProcess, url, lock string) {
				t.Helper()
				breakLock(t, url, lock)
				p.expect("term")
			},
			code: exitLost,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, lock := testenv.Redis(t).URL, nameFor(t)
			p := startDlock(t, url, "run", "--grace", "5s", lock, "--",
				"sh", "-c", "echo $PPID; kill -STOP $PPID; "+row.command)
			var guard int
			if _, err := fmt.Sscan(p.line(), &guard); err != nil {
				t.Fatal(err)
			}
			// If the guard stays stopped, dlock and the job wait for ever.
			timer := time.AfterFunc(patience, func() { _ = syscall.Kill(guard, syscall.SIGKILL) })
			defer timer.Stop()
			p.expect("stopped")
			if row.act != nil {
				row.act(t, p, url, lock)
			}
			p.code(row.code)
		})
	}
}

// If dlock and its guard are killed at once, a process that is left keeps the lock file.
func TestJobInheritsTheLockFile(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	p := startDlock(t, url, "run", "x", "--",
		"sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $! $PPID; read line")
	var left, guard int
	if _, err := fmt.Sscan(p.line(), &left, &guard); err != nil {
		t.Fatal(err)
	}
	both := []int{p.cmd.Process.Pid, guard}
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range both {
			if err := syscall.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
			if sig == syscall.SIGSTOP {
				awaitStop(t, pid)
			}
		}
	}
	p.awaitEnd()
	if got := dlockRun(t, on(url), "try", "x", "--", "true"); got.code != exitNotAcquired {
		t.Errorf("while a process is left: exit code %d: %s", got.code, got.stderr)
	}
	_ = syscall.Kill(left, syscall.SIGKILL)
	if got := dlockRun(t, on(url), "run", "--wait", "1m", "x", "--", "true"); got.code != 0 {
		t.Errorf("when none is left: exit code %d: %s", got.code, got.stderr)
	}
}

// dlock does not give up a guard that is busy with many processes to kill. The
// command keeps its exit code.
func TestBusyGuardIsKept(t *testing.T) {
	t.Parallel()
	const many = `trap '' TERM; i=0; ` +
		`while [ $i -lt 300 ]; do setsid sleep 1000 & i=$((i+1)); done; exit 5`
	got := dlockRun(t, on(fileURL(t)), "run", "--grace", "0.05s", "x", "--", "sh", "-c", many)
	if got.code != 5 {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}

// A command that ended before its guard was killed keeps its exit code.
func TestKilledGuardKeepsTheExitCode(t *testing.T) {
	t.Parallel()
	got := dlockRun(t, on(fileURL(t)), "run", "--ttl", "1m", "--grace", "10s", "x", "--",
		"sh", "-c", `g=$PPID; ready=$(trap "" TERM; `+
			`(while kill -0 $$ 2>/dev/null; do sleep 0.05; done; `+
			`sleep 0.2; kill -9 $g; sleep 1000) >/dev/null 2>&1 & echo); exit 5`)
	if got.code != 5 || !strings.Contains(got.stderr, "was killed") {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}

// hasChild reports whether a process has a child that has not been reaped.
func hasChild(pid int) bool { return len(childrenOf(pid)) > 0 }

// childrenOf returns the processes that the threads of a process have started, except those that
// have been reaped.
func childrenOf(pid int) (children []string) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		children = append(children, strings.Fields(string(text))...)
	}
	return children
}

// No process of dlock bench has the password of a URL in its words.
func TestBenchShowsNoPassword(t *testing.T) {
	t.Parallel()
	const password = "knocknock"
	url := testenv.NewRedis(t, "--requirepass", password).URL
	p := startDlock(t, url, benchTiny("--workloads", "W4", "--duration", "1s")...)
	self := strconv.Itoa(p.cmd.Process.Pid)
	hasStarted := false // a process that shows its words
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for hasEnded := false; !hasEnded; {
		select {
		case <-p.ended:
			hasEnded = true
		case <-look.C:
		}
		for _, pid := range append(childrenOf(p.cmd.Process.Pid), self) {
			words, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			if strings.Contains(string(words), password) {
				t.Fatalf("the words of a process are %q", words)
			}
			hasStarted = hasStarted || pid != self && len(words) > 0
		}
	}
	if p.code(0); !hasStarted {
		t.Error("bench started no process")
	}
}

// Neither dlock run nor its guard has the password of a URL in its words.
func TestRunShowsNoPassword(t *testing.T) {
	t.Parallel()
	const password = "knocknock"
	url := testenv.NewRedis(t, "--requirepass", password).URL
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte(url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*dlockProcess{
		"DLOCK_URL": startDlock(t, url, "run", "a", "--", "sh", "-c", "echo $PPID; read line"),
		"--url-file": startDlock(t, "", "run", "--url-file", file, "b", "--",
			"sh", "-c", "echo $PPID; read line"),
	} {
		guard, self := p.line(), strconv.Itoa(p.cmd.Process.Pid)
		for _, pid := range []string{self, guard} {
			words, err := os.ReadFile("/proc/" + pid + "/cmdline")
			if err != nil || len(words) == 0 || strings.Contains(string(words), password) {
				t.Errorf("%s: the words of process %s are %q, %v", name, pid, words, err)
			}
		}
		p.write("end")
		p.code(0)
	}
}

// A signal for dlock's group ends dlock, even while its guard starts.
func TestSignalWhileTheGuardStarts(t *testing.T) {
	t.Parallel()
	for range 10 {
		cmd := dlockCommand(t.Context(), on(fileURL(t)), "run", "x", "--",
			"sh", "-c", "exec sleep 1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for !hasChild(cmd.Process.Pid) {
			time.Sleep(time.Millisecond)
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		_ = cmd.Wait()
		if got := codeOf(cmd); got != exitSignal+int(syscall.SIGINT) {
			t.Errorf("exit code %d: %s", got, &stderr)
		}
	}
}

// Descendants of the shell that became dlock do not belong to the job, even if dlock
// has to end the job itself.
func TestDlockSparesEarlierChildren(t *testing.T) {
	t.Parallel()
	cmd := dlockCommand(t.Context(), on(fileURL(t)), "run", "x", "--",
		"sh", "-c", "sleep 1; kill -9 $PPID; sleep 1000")
	p, pid := launchBy(t, cmd, `(sleep 1000 >/dev/null 2>&1 & echo $!; sleep 0.5) & exec "$@"`)
	p.code(exitSignal + int(syscall.SIGKILL))
	if state := stateOf(t, pid); state != "S" {
		t.Errorf("a process from before the start is in state %q, want S", state)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// rawGuard is a guard that the test controls in place of dlock.
type rawGuard struct {
	cmd     *exec.Cmd
	orders  *os.File
	answers *bufio.Scanner
	output  *bufio.Scanner // of the command
}

func startRawGuard(t *testing.T, until time.Duration, argv ...string) *rawGuard {
	t.Helper()
	orders, ordersEnd := pipes(t)
	answers, answersEnd := pipes(t)
	cmd := dlockCommand(t.Context(), nil, guard.Name, "3", "4", "5", fmt.Sprint(int64(until)), "0")
	words := wordsOf(t, append([]string{argv[0]}, argv...))
	cmd.ExtraFiles = []*os.File{orders, answersEnd, words}
	output, outputEnd := pipes(t)
	cmd.Stdout = outputEnd
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	closeAll(orders, answersEnd, words, outputEnd)
	_ = answers.SetReadDeadline(time.Now().Add(patience))
	t.Cleanup(func() {
		closeAll(ordersEnd)
		_ = cmd.Wait()
	})
	return &rawGuard{cmd, ordersEnd, bufio.NewScanner(answers), bufio.NewScanner(output)}
}

// wordsOf returns a pipe with the path, the words and the environment of a command, as dlock sends
// them.
func wordsOf(t *testing.T, words []string) *os.File {
	t.Helper()
	read, write := pipes(t)
	text := strings.Join(slices.Concat(words, os.Environ()), "\x00")
	fmt.Fprintf(write, "%d %d\x00%s\x00", len(words), len(os.Environ()), text)
	closeAll(write)
	return read
}

func (g *rawGuard) expect(t *testing.T, want string) {
	t.Helper()
	if !g.answers.Scan() || !strings.HasPrefix(g.answers.Text(), want) {
		t.Fatalf("the guard answers %q, want %q: %v", g.answers.Text(), want, g.answers.Err())
	}
}

// expectGone expects the end of the command, and then of all other processes if some are left.
func (g *rawGuard) expectGone(t *testing.T) {
	t.Helper()
	g.expect(t, answerEnded)
	if !strings.HasSuffix(g.answers.Text(), "true") {
		return
	}
	for g.answers.Scan() && g.answers.Text() == answerEmpty {
		continue
	}
	if got := g.answers.Text(); got != answerGone {
		t.Fatalf("the guard answers %q, want %q: %v", got, answerGone, g.answers.Err())
	}
}

// A guard ends the processes in the group of the command, and the processes that
// have left it, in any session.
func TestGuardEndsEverything(t *testing.T) {
	t.Parallel()
	g := startRawGuard(t, 0, "/bin/sh", "-c", straying)
	g.expect(t, answerStarted)
	var pids []int
	for range 4 {
		var pid int
		if !g.output.Scan() {
			t.Fatal(g.output.Err())
		}
		if _, err := fmt.Sscanf(g.output.Text(), "pid %d", &pid); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	fmt.Fprintln(g.orders, orderKill)
	g.expect(t, answerKilling)
	g.expectGone(t)
	allGone(t, pids)
}

// When a command has ended and has left nothing behind, one answer says both. Otherwise dlock would
// end processes that do not exist.
func TestGuardAnswersOnce(t *testing.T) {
	t.Parallel()
	for script, left := range map[string]bool{
		"exit 3": false, "sleep 1000 >/dev/null & exit 3": true,
	} {
		g := startRawGuard(t, 0, "/bin/sh", "-c", script)
		g.expect(t, answerStarted)
		g.expect(t, fmt.Sprintf("%s %d false %t", answerEnded, 3<<8, left))
	}
}

// A guard does not start a command after its deadline, as after a stop of dlock. It does not start
// a command that has to end already, or whose dlock has ended.
func TestGuardStartsNothingLate(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		until  time.Duration
		orders string
		ended  bool // dlock
		answer string
	}{
		"late":       {until: 1, answer: answerLate + "\n"},
		"moved back": {orders: "until 1\n", answer: answerLate + "\n"},
		"to end":     {orders: orderTerminate + "\n", answer: answerGone + "\n"},
		"to die":     {orders: orderKill + "\n", answer: answerKilling + "\n" + answerGone + "\n"},
		"no dlock":   {ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trace := filepath.Join(t.TempDir(), "trace")
			orders, ordersEnd := pipes(t)
			answers, answersEnd := pipes(t)
			if _, err := io.WriteString(ordersEnd, row.orders); err != nil {
				t.Fatal(err)
			}
			if row.ended {
				closeAll(ordersEnd)
			}
			cmd := dlockCommand(t.Context(), nil,
				guard.Name, "3", "4", "5", fmt.Sprint(int64(row.until)), "0")
			words := wordsOf(t, []string{"/bin/sh", "sh", "-c", "echo ran >" + trace})
			cmd.ExtraFiles = []*os.File{orders, answersEnd, words}
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			closeAll(orders, answersEnd, words)
			if text, _ := io.ReadAll(answers); string(text) != row.answer {
				t.Errorf("the guard answers %q, want %q", text, row.answer)
			}
			if _, err := os.Stat(trace); err == nil {
				t.Error("the command ran")
			}
		})
	}
}

// maxVoid is how often a test repeats an observation that was void.
const maxVoid = 5

// After a stop, a guard executes the orders that dlock has sent meanwhile
// before it checks its clock.
func TestGuardReadsBeforeItKills(t *testing.T) {
	t.Parallel()
	const rounds = 12 // the guard reads its clock and its orders in any order
	for good, void := 0, 0; good < rounds; {
		took := stopGuardBeforeItsDeadline(t)
		switch {
		case took == 0:
			good++
		case void == maxVoid:
			t.Fatalf("%d times this process took too long to stop the guard", void+1)
		default:
			void++
			t.Log(announce.Void(fmt.Sprintf("this process took %v to stop the guard", took)))
		}
	}
}

// stopGuardBeforeItsDeadline moves the deadline of a guard while the guard is stopped, and
// continues the guard after the former deadline. It returns 0, or the time that it took to stop the
// guard if that was too long: the deadline could have come first.
func stopGuardBeforeItsDeadline(t *testing.T) (tooLong time.Duration) {
	t.Helper()
	const term = 2 * time.Second
	g := startRawGuard(t, uptime()+time.Hour, "/bin/sleep", "1000")
	g.expect(t, answerStarted)
	_ = g.cmd.Process.Signal(syscall.SIGSTOP)
	awaitStop(t, g.cmd.Process.Pid)
	begun := uptime()
	fmt.Fprintf(g.orders, "until %d\n", begun+term)
	_ = g.cmd.Process.Signal(syscall.SIGCONT)
	for unread(t, g.orders) > 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(term / 20) // the guard sets its timer
	if took := uptime() - begun; took > term/2 {
		return took
	}
	_ = g.cmd.Process.Signal(syscall.SIGSTOP)
	awaitStop(t, g.cmd.Process.Pid)
	fmt.Fprintf(g.orders, "until %d\n", uptime()+time.Hour)
	time.Sleep(term)
	_ = g.cmd.Process.Signal(syscall.SIGCONT)
	fmt.Fprintln(g.orders, orderKill)
	g.expect(t, answerKilling)
	g.expect(t, answerEnded)
	return 0
}

// unread returns how many bytes of a pipe have not been read yet.
func unread(t *testing.T, pipe *os.File) int {
	t.Helper()
	n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A guard ends the job at its deadline, and reports this.
func TestGuardEndsALateJob(t *testing.T) {
	t.Parallel()
	g := startRawGuard(t, uptime()+time.Hour,
		"/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")
	g.expect(t, answerStarted)
	fmt.Fprintf(g.orders, "until %d\n", uptime()+time.Millisecond)
	g.expect(t, answerLate)
	g.expectGone(t)
}

// As the first process of a container, dlock cannot end by a signal. It exits with 128 plus the
// number of the signal.
func TestFirstProcessExitsWithTheSignal(t *testing.T) {
	t.Parallel()
	unshare := []string{"--user", "--map-root-user", "--pid", "--fork", "--mount-proc"}
	if err := exec.Command("unshare", append(unshare, "true")...).Run(); err != nil {
		t.Skipf("does not apply: no namespaces here: %v", err)
	}
	cmd := dlockCommand(t.Context(), on(fileURL(t)), "run", "x", "--", "sh", "-c", "kill -TERM $$")
	cmd.Args = append(append([]string{"unshare"}, unshare...), cmd.Args...)
	var err error
	if cmd.Path, err = exec.LookPath("unshare"); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Run()
	if got := codeOf(cmd); got != exitSignal+int(syscall.SIGTERM) {
		t.Errorf("exit code %d", got)
	}
}

// No process gets a signal because it has the number of a process or of a group that has ended, and
// no process of the job is spared because of its number.
func TestNumbersAreUsedAgain(t *testing.T) {
	t.Parallel()
	// In a namespace of its own, a process can choose the number of its next child.
	const next = `next() { echo $(($1 - 1)) >/proc/sys/kernel/ns_last_pid; }
		leads() { until read pid name state parent group rest </proc/$1/stat
			test $group = $1; do sleep 0.05; done; }; `
	const begin = `"$@" & d=$!; until test -s pids; do sleep 0.05; done; read c g <pids; `
	const another = `until ! kill -0 -$c 2>/dev/null; do sleep 0.05; done; sleep 0.1
		next $c; setsid sleep 1000 & if test $! = $c; then leads $c; else echo void; fi; `
	const end = `wait $d; kill -TERM $c; wait $c; test $? = 143 && echo spared`
	const stray = `(setsid sh -c 'trap "" TERM; echo >ready; exec sleep 1000' &) >/dev/null
		until test -s ready; do sleep 0.05; done; `
	for name, row := range map[string]struct{ outer, command, want string }{
		"the group, in the grace time": {
			outer: begin + another + end, want: "spared",
			command: stray + `(trap '' TERM; sleep 0.5) & echo $$ $PPID >pids`,
		},
		"the group, of a killed guard": {
			outer: begin + another + `kill -9 $g; ` + end, want: "spared",
			command: stray + `(trap '' TERM; sleep 0.5) & echo $$ $PPID >pids`,
		},
		"the group, after the guard was killed": {
			outer: begin + `sleep 0.2; kill -9 $g; ` + another + end, want: "spared",
			command: stray + `(trap '' TERM; sleep 1) & echo $$ $PPID >pids`,
		},
		"a process from before the start": {
			outer: `sh -c '(sleep 1000 & echo $! >before; wait; sleep 1000) >/dev/null 2>&1 &
				until test -s before; do sleep 0.05; done; exec "$@"' sh "$@"
				kill -0 $(cat before) 2>/dev/null || echo ended`,
			want: "ended",
			command: `until read b <before; do sleep 0.05; done; kill $b
				until ! kill -0 $b 2>/dev/null; do sleep 0.05; done
				(next $b; setsid sleep 1000 >/dev/null &
				if test $! = $b; then leads $b; else echo void; fi) # its parent ends
				kill -9 $PPID; sleep 1000`,
		},
		"the group, of a process that was left": {
			outer: `timeout 30 "$@"; read c <number && ! kill -0 $c 2>/dev/null && echo ended`,
			want:  "ended",
			command: `(setsid sh -c 'trap "" TERM; echo >ready; c=$1
				until ! kill -0 -$c 2>/dev/null; do sleep 0.05; done; sleep 0.1
				echo $((c - 1)) >/proc/sys/kernel/ns_last_pid; setsid sleep 1000 >/dev/null &
				test $! = $c || echo void; echo $c >number; wait' sh $$ &)
				until test -s ready; do sleep 0.05; done`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, stderr := inNamespace(t, next+row.outer, next+row.command)
			for void := 0; strings.Contains(got, "void"); void++ {
				if void == maxVoid {
					t.Fatalf("%d times another process got the number", void+1)
				}
				t.Log(announce.Void("another process got the number"))
				got, stderr = inNamespace(t, next+row.outer, next+row.command)
			}
			if got != row.want {
				t.Errorf("got %q, want %q: %s", got, row.want, stderr)
			}
		})
	}
}

// inNamespace runs a script as the first process of a namespace of its own, and returns its output.
// In the script, "$@" is dlock with a command, which is a script, too.
func inNamespace(
	t *testing.T, script, command string, flags ...string,
) (stdout, stderr string) {
	t.Helper()
	unshare := []string{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"}
	if err := exec.Command(unshare[0], append(unshare[1:], "true")...).Run(); err != nil {
		t.Skipf("does not apply: no namespaces here: %v", err)
	}
	run := slices.Concat([]string{"run", "--grace", "3s"}, flags,
		[]string{"x", "--", "sh", "-c", command})
	cmd := dlockCommand(t.Context(), on(fileURL(t)), run...)
	cmd.Args = slices.Concat(unshare, []string{"sh", "-c", script, "sh"}, cmd.Args)
	cmd.Dir = t.TempDir()
	var err error
	if cmd.Path, err = exec.LookPath(unshare[0]); err != nil {
		t.Fatal(err)
	}
	var message strings.Builder
	cmd.Stderr = &message
	output, _ := cmd.Output()
	return strings.TrimSpace(string(output)), message.String()
}

// A full disk is 69, and a disk that cannot be written to is 78. The disk of the test is a part of
// the memory.
func TestDisk(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		prepare, url string
		code         int
		says         string
	}{
		{"head -c 1000000 /dev/zero >fill 2>&-", "file:$PWD", exitUnavailable, "no space left"},
		{"mount -o remount,ro .", "file:$PWD", exitUnsupported, "read-only file system"},
		{"mount -o remount,ro .", "file:$PWD/missing", exitUnsupported, "read-only file system"},
	} {
		script := `mount -t tmpfs -o size=64k,mode=700 none . && cd "$PWD" && ` +
			row.prepare + `; DLOCK_URL=` + row.url + ` "$@"; echo $?`
		out, stderr := inNamespace(t, script, "echo ran", "--wait", "1s")
		if out != fmt.Sprint(row.code) || !strings.Contains(stderr, row.says) {
			t.Errorf("after %q, %s: %q, want %d; standard error: %s",
				row.prepare, row.url, out, row.code, stderr)
		}
	}
}

// A signal that comes while dlock keeps a lock for --min-hold ends dlock, whatever the exit code of
// the command was. So does a signal that ended the command.
func TestMinHoldIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"exit 0", "exit 3", "echo in; exec sleep 1000"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			p := startDlock(t, fileURL(t), "try", "-v", "--min-hold", "1h", "x", "--",
				"sh", "-c", command)
			if strings.Contains(command, "in") {
				p.expect("in")
			} else {
				p.noted("keeping")
			}
			p.send(syscall.SIGTERM)
			p.code(exitSignal + int(syscall.SIGTERM))
		})
	}
}

// A signal reaches the processes in the group of COMMAND while COMMAND waits for them.
func TestSignalReachesTheGroup(t *testing.T) {
	t.Parallel()
	p := startDlock(t, fileURL(t), "run", "x", "--", "sh", "-c",
		`trap : TERM
		sh -c 'trap "echo child; exit" TERM; echo ready; while :; do sleep 0.1; done' &
		wait; wait; echo leader`)
	p.expect("ready")
	p.send(syscall.SIGTERM)
	p.expect("child", "leader")
	p.awaitEnd()
}

// The guard is not found by a word of its command, as pkill -f would: it has to end the job.
func TestGuardDoesNotShowTheCommand(t *testing.T) {
	t.Parallel()
	const word = "a-word-of-the-command"
	p := startDlock(t, fileURL(t), "run", "x", "--", "sh", "-c", "echo $PPID; read line", word)
	words, err := os.ReadFile("/proc/" + p.line() + "/cmdline")
	if err != nil || strings.Contains(string(words), word) {
		t.Errorf("the guard is %q, %v", words, err)
	}
	p.write("end")
	p.code(0)
}

// A lock that is lost during a minimum hold is reported: another host may run the job again.
func TestLossDuringAMinimumHoldIsReported(t *testing.T) {
	t.Parallel()
	url, name := testenv.Redis(t).URL, nameFor(t)
	p := startDlock(t, url, "try", "-v", "--min-hold", "1h", name, "--", "sh", "-c", "exit 3")
	p.noted("keeping")
	breakLock(t, url, name)
	p.noted("another holder may have it")
	p.code(3)
}

// The reason why a command does not run is shown before the end of a minimum hold.
func TestFailedStartIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "job")
	if err := os.WriteFile(script, []byte("#!/nonexistent/shell\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := startDlock(t, fileURL(t), "try", "--min-hold", "1h", "x", "--", script)
	p.noted("was not found")
	p.send(syscall.SIGTERM)
	p.code(exitSignal + int(syscall.SIGTERM))
	if n := strings.Count(p.stderr.text(), "was not found"); n != 1 {
		t.Errorf("the reason is shown %d times: %s", n, p.stderr.text())
	}
}
