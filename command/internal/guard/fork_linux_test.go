package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rescueTime is how long a fork may take. After it, another process continues all children.
const rescueTime = 30 * time.Second

// rescue lets a test fail whose process waits in a fork, because a child is stopped.
func rescue(t *testing.T) {
	t.Helper()
	script := `sleep $0; while :; do kill -CONT $(cat /proc/$PPID/task/*/children); sleep 0.1; done`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, fmt.Sprint(rescueTime.Seconds()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
}

// A child that stops before it executes its program is continued, on the two processors that each
// guard has.
func TestStopInAFork(t *testing.T) {
	rescue(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	var pid int
	begun := time.Now()
	wasStopped, err := watchFork(func() error {
		if pid = cloneStopped(); pid < 0 {
			return errors.New("clone failed")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	if !wasStopped || time.Since(begun) > rescueTime/2 {
		t.Error("the stopped child was not continued")
	}
	if wasStopped, _ := watchFork(func() error { return nil }); wasStopped {
		t.Error("a fork without a stop was reported as stopped")
	}
}

// cloneStopped forks as package syscall does. The child stops itself, and ends when it is
// continued. cloneStopped returns -1 after an error.
//
//go:norace
func cloneStopped() int {
	pid, _, failed := syscall.RawSyscall6(
		syscall.SYS_CLONE, uintptr(unix.CLONE_VFORK|int(syscall.SIGCHLD)), 0, 0, 0, 0, 0)
	for failed == 0 && pid == 0 {
		self, _, _ := syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
		_, _, _ = syscall.RawSyscall(syscall.SYS_KILL, self, uintptr(syscall.SIGSTOP), 0)
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
	if failed != 0 {
		return -1
	}
	return int(pid)
}

// stopForked sends sig once to each new child of the present thread, as early as it can. It makes
// no garbage: the garbage collector would wait for a thread that forks.
func stopForked(t *testing.T, sig syscall.Signal) {
	t.Helper()
	children, err := os.Open(tasksOf(os.Getpid()) + strconv.Itoa(unix.Gettid()) + "/children")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	text := make([]byte, 4096)
	stop := func() {
		n, _ := children.ReadAt(text, 0)
		for child := range bytes.FieldsSeq(text[:n]) {
			if pid, _ := strconv.Atoi(string(child)); !known[string(child)] {
				_ = syscall.Kill(pid, sig)
				known[string(child)] = true
			}
		}
	}
	collects := debug.SetGCPercent(-1)
	var end atomic.Bool
	var done sync.WaitGroup
	done.Go(func() {
		for !end.Load() {
			stop()
		}
	})
	t.Cleanup(func() {
		end.Store(true)
		done.Wait()
		debug.SetGCPercent(collects)
		_ = children.Close()
	})
}

// forks is how often a test forks, so that some of its signals come before the child has executed
// its program.
const forks = 30

// A key that stops the command before it runs neither stops the guard nor gets lost.
func TestStopBeforeTheCommandRuns(t *testing.T) {
	rescue(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // the goroutine of stopForked never rests
	stopForked(t, syscall.SIGSTOP)
	j := &job{}
	for range forks {
		begun := time.Now()
		if err := j.execute("/bin/sleep", []string{"sleep", "1000"}); err != nil {
			t.Fatal(err)
		}
		isLate := time.Since(begun) > rescueTime/2
		hasStopped := awaitStopped(j.pid)
		_ = syscall.Kill(j.pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(j.pid, nil, 0, nil)
		if isLate || !hasStopped {
			t.Fatalf("the guard waited for a stopped child: %v; the key stopped the command: %v",
				isLate, hasStopped)
		}
	}
}

// A key is not lost if it comes before the kernel finds out that the program is a script without an
// interpreter line. sh is executed next, and stops.
func TestStopBeforeAScriptRuns(t *testing.T) {
	rescue(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // as above
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("true\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	j := &job{}
	t.Run("script", func(t *testing.T) {
		stopForked(t, syscall.SIGSTOP)
		for begun := time.Now(); !j.wasHalted; {
			if err := j.execute(script, []string{"script"}); !errors.Is(err, syscall.ENOEXEC) {
				t.Fatalf("the error of a script is %v", err)
			}
			if time.Since(begun) > rescueTime/2 {
				t.Fatal("no signal came before the end of a fork")
			}
		}
	})
	if err := j.execute("/bin/sleep", []string{"sleep", "1000"}); err != nil {
		t.Fatal(err)
	}
	if !awaitStopped(j.pid) {
		t.Error("the key was lost")
	}
	_ = syscall.Kill(j.pid, syscall.SIGKILL)
	_, _ = syscall.Wait4(j.pid, nil, 0, nil)
}

// The guard has two processors, and collects no garbage before the command runs, however many words
// the command has and whatever its environment says. The command gets its own environment.
func TestGuardForksWithoutACollection(t *testing.T) {
	const settings = "GOMAXPROCS=1 GOGC=1 GOMEMLIMIT=1"
	show := `echo "GOMAXPROCS=$GOMAXPROCS GOGC=$GOGC GOMEMLIMIT=$GOMEMLIMIT"
		tr '\0' '\n' </proc/$PPID/environ | grep GOMAXPROCS`
	script := []string{"sh", "-c", show}
	for name, words := range map[string][]string{
		"no words":    nil,
		"short words": slices.Repeat([]string{"a"}, 150_000),
		"long words":  slices.Repeat([]string{strings.Repeat("a", 120_000)}, 12),
	} {
		command := Command{
			Program: os.Args[0], Path: "/bin/sh", Args: append(slices.Clone(script), words...),
			Env: append(strings.Fields(settings), "GODEBUG=gctrace=1", "PATH="+os.Getenv("PATH")),
		}
		output, diagnostics := runGuard(t, command)
		if want := settings + "\nGOMAXPROCS=2\n"; output != want {
			t.Errorf("%s: the command and the guard have %q, want %q", name, output, want)
		}
		if strings.Contains(diagnostics, "gc 1 ") {
			t.Errorf("%s: the guard has collected garbage: %s", name, diagnostics)
		}
	}
}

// runGuard runs a command under a guard, and returns what both have written.
func runGuard(t *testing.T, command Command) (output, diagnostics string) {
	t.Helper()
	for i := range command.Files {
		file, err := os.Create(filepath.Join(t.TempDir(), "file"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		command.Files[i] = file
	}
	g, err := Start(command, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for !g.Ended() {
		<-g.Changed()
	}
	g.Leave(true)
	g.Close(rescueTime)
	if err := g.Failure(); err != nil {
		t.Fatal(err)
	}
	text := [2][]byte{}
	for i := range text {
		text[i], _ = os.ReadFile(command.Files[i+1].Name())
	}
	return string(text[0]), string(text[1])
}

// awaitStopped polls until a process is stopped, and reports whether it is.
func awaitStopped(pid int) bool {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(rescueTime / 2); !isStopped(pid); <-look.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// A key that reaches the guard before it has its own group stops neither the guard nor dlock.
func TestStopBeforeTheGuardRuns(t *testing.T) {
	rescue(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stopForked(t, syscall.SIGTSTP)
	for range forks {
		g, begun := &Guard{}, time.Now()
		answers, err := g.start(Command{Program: "/bin/true"}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = g.process.Wait()
		_, _ = answers.Close(), g.orders.Close()
		g.reader.Wait()
		if time.Since(begun) > rescueTime/2 {
			t.Fatal("a key has stopped the guard")
		}
	}
}
