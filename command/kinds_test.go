//go:build unix

package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/command/internal/guard"
	"github.com/dlock-go/dlock/internal/testenv"
)

const untilInput = "echo in; read line; exit 0"

func TestSharedRuns(t *testing.T) {
	t.Parallel()
	url, name := testenv.Redis(t).URL, nameFor(t)
	first := startDlock(t, url, "run", "--shared", name, "--", "sh", "-c", untilInput)
	first.expect("in")
	second := startDlock(t, url, "try", "--shared", name, "--", "sh", "-c", untilInput)
	second.expect("in")
	if got := dlockRun(t, on(url), "try", name, "--", "true"); got.code != exitNotAcquired {
		t.Errorf("a writer while there are readers: exit code %d: %s", got.code, got.stderr)
	}
	got := dlockRun(t, on(url), "ls", name)
	if !strings.Contains(got.stdout, "shared") || !strings.Contains(got.stdout, "and 1 more") {
		t.Errorf("ls shows %q", got.stdout)
	}
	if n := len(statusOf(t, url, name).Holders); n != 2 {
		t.Errorf("status shows %d holders", n)
	}
	for _, p := range []*dlockProcess{first, second} {
		p.input.Close()
		p.code(0)
	}
	if got := dlockRun(t, on(url), "try", name, "--", "true"); got.code != 0 {
		t.Errorf("a writer after the readers: exit code %d: %s", got.code, got.stderr)
	}
}

func TestLimitedRuns(t *testing.T) {
	t.Parallel()
	url, name := testenv.Redis(t).URL, nameFor(t)
	var holders []*dlockProcess
	for range 2 {
		p := startDlock(t, url, "run", "--limit", "2", name, "--", "sh", "-c", untilInput)
		p.expect("in")
		holders = append(holders, p)
	}
	got := dlockRun(t, on(url), "try", "--limit", "2", name, "--", "true")
	if got.code != exitNotAcquired {
		t.Errorf("a third holder of two: exit code %d: %s", got.code, got.stderr)
	}
	got = dlockRun(t, on(url), "try", "--limit", "3", name, "--", "true")
	if got.code != exitUnsupported || !strings.Contains(got.stderr, "limit 2") ||
		!strings.Contains(got.stderr, "limit 3") {
		t.Errorf("another limit: exit code %d: %s", got.code, got.stderr)
	}
	got = dlockRun(t, on(url), "status", name)
	if !strings.Contains(got.stdout, "mode       2 of 2 permits\n") {
		t.Errorf("status shows %q", got.stdout)
	}
	third := startDlock(t, url, "run", "--limit", "2", name, "--", "echo", "in")
	holders[0].input.Close()
	holders[0].code(0)
	third.expect("in")
	third.code(0)
	holders[1].input.Close()
	holders[1].code(0)
}

// TestNestedReaders checks that a reader in the job of a reader gets the lock unless a writer waits
// between them: each of the three would wait for the next one for ever.
func TestNestedReaders(t *testing.T) {
	t.Parallel()
	url, name := testenv.Redis(t).URL, nameFor(t)
	const nest = `echo in; read line; exec "$0" run --shared "$1" -- echo nested`
	job := []string{"run", "--shared", name, "--", "sh", "-c", nest, os.Args[0], name}
	alone := startDlock(t, url, job...)
	alone.input.Close()
	alone.expect("in", "nested")
	alone.code(0)

	outer := startDlock(t, url, job...)
	outer.expect("in")
	writer := startDlock(t, url, "run", name, "--", "echo", "written")
	awaitWaiters(t, url, name, 1)
	outer.input.Close()
	outer.noted("wait for itself")
	outer.code(exitNotAcquired)
	writer.expect("written")
	writer.code(0)
}

// TestUnsupportedKinds checks that no command runs for a reader or a permit on memcached, which has
// neither.
func TestUnsupportedKinds(t *testing.T) {
	t.Parallel()
	url := testenv.Memcached(t).URL
	for _, kind := range []string{"--shared", "--limit=2"} {
		got := dlockRun(t, on(url), "run", kind, nameFor(t), "--", "echo", "in")
		if got.code != exitUnsupported || got.stdout != "" {
			t.Errorf("run %s: exit code %d, standard output %q, standard error %q",
				kind, got.code, got.stdout, got.stderr)
		}
		checkLine(t, kind, got.stderr)
	}
}

// TestElect checks that a candidate leads when the leader has gone, and stands again when its
// command has ended.
func TestElect(t *testing.T) {
	t.Parallel()
	url, name := testenv.Redis(t).URL, nameFor(t)
	leader := startDlock(t, url, "elect", "--ttl", "3s", name, "--", "sh", "-c", untilInput)
	leader.expect("in")
	candidate := startDlock(t, url, "elect", "--ttl", "3s", name, "--",
		"sh", "-c", "echo in; exit 3")
	awaitWaiters(t, url, name, 1)
	leader.send(syscall.SIGKILL)
	candidate.expect("in")
	candidate.noted("standing again in 1s")
	candidate.expect("in")
	candidate.send(syscall.SIGTERM)
	candidate.awaitEnd()
}

// TestElectNamesTheLockOnce checks the messages of dlock elect after the end of its command, after
// the loss of its lock, and after a request without an answer. The name is longer than the name in
// an error of the library.
func TestElectNamesTheLockOnce(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"nightly", strings.Repeat("long", 20)} {
		for _, row := range []struct {
			url   string
			flags []string
		}{
			{url: fileURL(t)},
			{url: fileURL(t), flags: []string{"--max-hold", "0.2s"}},
			{url: "redis://" + closedPort},
		} {
			args := append(append([]string{"elect"}, row.flags...), name, "--", "sleep", "0.5")
			p := startDlock(t, row.url, args...)
			line, _ := p.next(p.notes)
			if n := strings.Count(line, `"`+name[:7]); n != 1 ||
				!strings.Contains(line, "standing again in 1s") {
				t.Errorf("%s %v: %d times the name in: %s", row.url, row.flags, n, line)
			}
			p.send(syscall.SIGTERM)
			p.awaitEnd()
		}
		failed := (&dlock.Error{Op: "lock", Name: name, Err: dlock.ErrUnavailable}).Error()
		if got := naming(name, failed); got != failed {
			t.Errorf("the error %q is shown as %q", failed, got)
		}
	}
}

// TestElectOutlivesItsCommand checks that dlock elect stands again while its command is missing, as
// during an upgrade, and that a pipe may contain the URL.
func TestElectOutlivesItsCommand(t *testing.T) {
	t.Parallel()
	url, command := fileURL(t), filepath.Join(t.TempDir(), "command")
	install := func() {
		t.Helper()
		script := []byte("#!/bin/sh\nrm \"$0\"\necho in\n")
		if err := os.WriteFile(command, script, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	install()
	p := startDlock(t, "", "elect", "--url-file", "/dev/stdin", "x", "--", command)
	if _, err := p.input.Write([]byte(url)); err != nil {
		t.Fatal(err)
	}
	p.input.Close()
	p.expect("in")
	p.noted("not found: standing again")
	install()
	p.expect("in")
	p.send(syscall.SIGTERM)
	p.code(exitSignal + int(syscall.SIGTERM))
}

// TestFinalErrors checks which errors end dlock elect, before and after the first term.
func TestFinalErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err         error
		first, late bool // final before, and after, the command has run
	}{
		{guard.CannotRun("x", syscall.ENOENT), true, false},
		{guard.CannotRun("x", syscall.EACCES), true, false},
		{guard.CannotRun("x", syscall.EAGAIN), false, false},
		{usagef("a wrong flag"), true, false},
		{dlock.ErrConflict, true, false},
		{dlock.ErrUnavailable, false, false},
		{dlock.ErrUnsupported, true, true},
		{&exitError{code: exitNotAcquired, err: errNested}, true, true},
		{interrupted{syscall.SIGTERM}, true, true},
		{&exitError{code: exitUsage}, false, false}, // of the command
		{nil, false, false},
	} {
		first, late := isFinal(row.err, false), isFinal(row.err, true)
		if first != row.first || late != row.late {
			t.Errorf("%v is final: %v and later %v, want %v and %v",
				row.err, first, late, row.first, row.late)
		}
	}
}

// TestSignalAtTheEndOfAPause has a signal that comes together with the end of the pause between two
// terms. Each try may notice a lost signal.
func TestSignalAtTheEndOfAPause(t *testing.T) {
	t.Parallel()
	for range 1000 {
		in := make(inbox, 1)
		in <- syscall.SIGTERM
		if err := in.rest(t.Context(), 0); !errors.Is(err, interrupted{syscall.SIGTERM}) {
			t.Fatalf("the pause ends with %v, want SIGTERM", err)
		}
	}
}

// TestElectIsStopped checks that a signal ends dlock elect if the signal and the end of the pause
// come together, as for "kill" of a stopped job of a shell. Each try may notice a lost signal.
func TestElectIsStopped(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	var candidates []*dlockProcess
	for i := range 5 {
		p := startDlock(t, url, "elect", fmt.Sprint("x", i), "--", "true")
		candidates = append(candidates, p)
		p.noted("standing again in 1s")
		p.send(syscall.SIGSTOP)
	}
	time.Sleep(1100 * time.Millisecond) // longer than the pause
	for _, p := range candidates {
		p.send(syscall.SIGTERM)
		p.send(syscall.SIGCONT)
	}
	late := time.After(patience / 3)
	for _, p := range candidates {
		select {
		case <-p.ended:
			p.code(exitSignal + int(syscall.SIGTERM))
		case <-late:
			t.Fatalf("dlock goes on after the signal: %s", p.stderr.text())
		}
	}
}

// A command that has handled a signal leads on. If its lock is lost later, dlock says so before it
// ends with the signal.
func TestElectReportsTheLossAfterASignal(t *testing.T) {
	t.Parallel()
	url, name := testenv.Redis(t).URL, nameFor(t)
	p := startDlock(t, url, "elect", name, "--", "sh", "-c",
		`trap "echo reloaded" HUP; echo in; while :; do sleep 0.1; done`)
	p.expect("in")
	p.send(syscall.SIGHUP)
	p.expect("reloaded")
	breakLock(t, url, name)
	p.code(exitSignal + int(syscall.SIGHUP))
	p.noted("lost")
}
