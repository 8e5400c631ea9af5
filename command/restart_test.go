//go:build unix

package command

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv"
)

// If the server is back within the TTL, the command keeps the lock, unless the server has
// lost it. If the server is away for longer, the lock is lost. Then the command ends before
// another holder can have the lock.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	for _, b := range serverBackends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			server := b.own(t)
			t.Run("BackWithinTTL", func(t *testing.T) {
				if b.volatile {
					testForgottenLock(t, server)
				} else {
					testKeptLock(t, server)
				}
			})
			t.Run("AwayForLonger", func(t *testing.T) { testServerGone(t, server) })
		})
	}
}

// restartTTL is the first TTL within which a server has to come back. maxRestartTTL is the longest
// one, which every server grants.
const (
	restartTTL    = 20 * time.Second
	maxRestartTTL = 36 * time.Second
)

// attempts is how often a test is tried, each time with a longer TTL, if the
// machine is too slow for it.
const attempts = 3

// startNightJob starts a command under a lock. The command ends with exit code 3
// when its standard input ends.
func startNightJob(
	t *testing.T, server *testenv.Server, name string, ttl time.Duration,
) *dlockProcess {
	t.Helper()
	p := startDlock(t, server.URL, "run", "--ttl", ttl.String(), "--grace", "1s", name, "--",
		"sh", "-c", "echo ready; read line; exit 3")
	p.expect("ready")
	return p
}

// testKeptLock checks the lock after a restart, and again when the first term of the command is
// over. If the server comes back late, the test repeats the restart with a longer TTL.
func testKeptLock(t *testing.T, server *testenv.Server) {
	t.Helper()
	for n, ttl := 1, restartTTL; ; n, ttl = n+1, min(3*ttl, maxRestartTTL) {
		name := fmt.Sprint(nameFor(t), n)
		p := startNightJob(t, server, name, ttl)
		before := holderOf(t, server.URL, name)
		gone := time.Now()
		server.Restart(t)
		away := time.Since(gone)
		t.Logf("the server was away for %v of a term of %v", away, ttl)
		if away < ttl/2 || n == attempts {
			checkKept(t, server, p, name, before, gone.Add(ttl))
			return
		}
		p.input.Close()
		p.awaitEnd()
	}
}

// checkKept checks the lock now and at the end of its first term.
func checkKept(
	t *testing.T, server *testenv.Server, p *dlockProcess, name string, before holderJSON,
	end time.Time,
) {
	t.Helper()
	for _, at := range []time.Time{time.Now(), end} {
		time.Sleep(time.Until(at))
		after := holderOf(t, server.URL, name)
		if after.Owner != before.Owner || after.Fence != before.Fence {
			t.Errorf("%v before the end of its first term the lock is held by %+v, want %+v",
				time.Until(end), after, before)
		}
	}
	p.input.Close()
	p.code(3)
}

// testForgottenLock restarts a server that does not keep the lock. The next renewal
// finds that the lock is gone.
func testForgottenLock(t *testing.T, server *testenv.Server) {
	t.Helper()
	for n, ttl := 1, restartTTL; ; n, ttl = n+1, min(3*ttl, maxRestartTTL) {
		p := startNightJob(t, server, fmt.Sprint(nameFor(t), n), ttl)
		gone := time.Now()
		server.Restart(t)
		away := time.Since(gone)
		p.code(exitLost)
		if took := time.Since(gone); took < ttl {
			return
		} else if away < ttl/2 || n == attempts {
			t.Fatalf("the command ended %v after its server, which was away for %v; the TTL is %v",
				took, away, ttl)
		}
	}
}

// testServerGone kills the server for longer than the TTL. The command and its child ignore
// SIGTERM. No other process writes to their pipe, so the end of the pipe shows their end. The test
// is repeated with a longer TTL if this machine stood still.
func testServerGone(t *testing.T, server *testenv.Server) {
	t.Helper()
	meter := lag.Start()
	defer meter.Stop()
	for n, ttl := 1, 4*time.Second; ; n, ttl = n+1, 3*ttl {
		gone := time.Now() // the lag counts from here
		took := endsAfterServer(t, server, ttl)
		stood := meter.Worst(gone)
		switch {
		case took < ttl:
			t.Logf("the command ended %v after its server", took)
			return
		case stood < ttl/10 || n == attempts:
			t.Fatalf("the command ended %v after its server, the TTL is %v; "+
				"this machine stood still for %v", took, ttl, stood)
		}
		server.Start(t)
	}
}

// endsAfterServer kills the server, and returns how long after that the command
// and its child have ended.
func endsAfterServer(t *testing.T, server *testenv.Server, ttl time.Duration) time.Duration {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	script := `exec >"$1"; trap "" TERM; sleep 1000 & while :; do sleep 1; done`
	p := startDlock(t, server.URL, "run", "--ttl", ttl.String(), nameFor(t), "--",
		"sh", "-c", script, "sh", fifo)
	written, err := os.Open(fifo) // returns when the command has opened it
	if err != nil {
		t.Fatal(err)
	}
	defer written.Close()
	server.Kill(t)
	gone := time.Now() // no renewal that was sent later is answered
	if _, err = io.ReadAll(written); err != nil {
		t.Error(err)
	}
	took := time.Since(gone)
	p.code(exitLost)
	return took
}

// holderOf returns the only holder of a lock.
func holderOf(t *testing.T, url, name string) holderJSON {
	t.Helper()
	info := statusOf(t, url, name)
	if len(info.Holders) != 1 {
		t.Fatalf("the lock has %d holders, want one", len(info.Holders))
	}
	return info.Holders[0]
}
