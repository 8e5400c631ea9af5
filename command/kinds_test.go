//go:build unix

package command

import (
	"strings"
	"syscall"
	"testing"

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
	if got := dlockRun(t, on(url), "ls", name); !strings.Contains(got.stdout, "and 1 more") {
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
	third := startDlock(t, url, "run", "--limit", "2", name, "--", "echo", "in")
	holders[0].input.Close()
	holders[0].code(0)
	third.expect("in")
	third.code(0)
	holders[1].input.Close()
	holders[1].code(0)
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
