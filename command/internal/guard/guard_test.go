//go:build unix

package guard

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// A signal for dlock's group can end the guard before the guard has its own group. Lost then
// returns the signal, whether or not dlock has received it.
func TestGuardEndedBySignalOfTheGroup(t *testing.T) {
	for sig, want := range map[syscall.Signal]os.Signal{
		syscall.SIGINT: syscall.SIGINT, syscall.SIGKILL: nil,
	} {
		cmd := exec.CommandContext(t.Context(),
			"sh", "-c", "kill -s $0 $$; sleep 1000", strconv.Itoa(int(sig)))
		_ = cmd.Run()
		g := &Guard{
			changes: make(chan os.Signal, 1), own: cmd.ProcessState.Sys().(syscall.WaitStatus),
		}
		g.note(answerLost, "")
		if lost, got := g.Lost(); !lost || got != want {
			t.Errorf("after signal %v: lost %v, interrupt %v, want %v", sig, lost, got, want)
		}
	}
}

// The error of a command that does not run arrives unchanged, with a reason that may pass.
func TestFailureArrives(t *testing.T) {
	t.Parallel()
	for cause, isPassing := range map[error]bool{
		syscall.EAGAIN: true, syscall.ENOMEM: true, syscall.EMFILE: true, syscall.ETXTBSY: true,
		syscall.EACCES: false, syscall.ENOENT: false,
	} {
		sent := CannotRun("a \"b\"\n", cause)
		got := parseFailure(failure(sent))
		if failed, ok := errors.AsType[*StartError](got); !ok || *failed != *sent {
			t.Errorf("%v: %#v arrives as %#v", cause, sent, got)
		}
		if sent.IsPassing != isPassing {
			t.Errorf("%v passes: %v, want %v", cause, sent.IsPassing, isPassing)
		}
	}
}

// lostGuard returns a Guard whose guard was killed, with a command of the given number.
func lostGuard(pid int) *Guard {
	g := &Guard{changes: make(chan os.Signal, 1)}
	g.note(answerStarted, strconv.Itoa(pid))
	g.note(answerLost, "")
	return g
}

// If the guard is killed, the command ends with it, also on a system that leaves this to dlock.
func TestCommandEndsWithItsGuard(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "30")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lostGuard(cmd.Process.Pid)
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("the command ended with %v", cmd.ProcessState)
	}
}

// If the guard is killed, dlock finds and ends the group of the command, also on a system
// that does not list the processes. The lock is not freed before.
func TestGroupOfALostGuardIsEnded(t *testing.T) {
	setAdopting(true)
	defer setAdopting(false)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var left int
	if text, err := cmd.Output(); err != nil {
		t.Fatal(err)
	} else if _, err := fmt.Sscan(string(text), &left); err != nil {
		t.Fatal(err)
	}
	g := lostGuard(cmd.Process.Pid)
	process, _ := os.FindProcess(left)
	g.before = []*os.Process{process} // as if it were not listed
	if !g.Alive() {
		t.Error("no process of the job is left, although its group has one")
	}
	for begun := time.Now(); g.Alive(); {
		g.Kill()
		if time.Since(begun) > 30*time.Second {
			_ = syscall.Kill(left, syscall.SIGKILL)
			t.Fatal("the group of the command has not ended")
		}
	}
}

// Where the system does not list parents, the guard has dlock's parent from dlock.
func TestParentOfDlockIsKnown(t *testing.T) {
	const dlock = 1 << 30 // no such process
	j := &job{dlock: dlock, parent: 7}
	if got := j.parentOf(dlock); got != 7 {
		t.Errorf("the parent of dlock is %d", got)
	}
	if got := j.parentOf(dlock + 1); got != 0 {
		t.Errorf("the parent of another process is %d", got)
	}
}

// TestWordsAreCompleteOrMissing checks that a guard never starts a command without its last words,
// because dlock ended while it sent them.
func TestWordsAreCompleteOrMissing(t *testing.T) {
	words := []string{"/bin/rm", "rm", "", "-rf", "a b\n"}
	for _, env := range [][]string{nil, {"A=1", "B=", ""}} {
		text := join(words, env)
		got, variables := split(text)
		if !slices.Equal(got, words) || !slices.Equal(variables, env) {
			t.Errorf("split returns %q and %q, want %q and %q", got, variables, words, env)
		}
		for n := range text {
			if got, variables := split(text[:n]); got != nil || variables != nil {
				t.Errorf("split returns %q and %q for %q", got, variables, text[:n])
			}
		}
	}
}
