//go:build unix

package main

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
)

// A server that is back within the TTL costs nobody the lock, unless it has forgotten it. One that
// is away for longer does, and the command ends before the lock can be anybody else's.
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

const restartTTL = 20 * time.Second

// startJob starts a command under a lock. It ends, with the code 3, when its standard input does.
func startJob(t *testing.T, server *testenv.Server, name string) *dlockProcess {
	t.Helper()
	p := startDlock(t, server.URL, "run", "--ttl", restartTTL.String(), "--grace", "1s", name, "--",
		"sh", "-c", "echo ready; read line; exit 3")
	p.expect("ready")
	return p
}

// testKeptLock: the term that the command began in is over when the test looks for the last time.
func testKeptLock(t *testing.T, server *testenv.Server) {
	t.Helper()
	name := nameFor(t)
	p := startJob(t, server, name)
	before := holderOf(t, server.URL, name)
	gone := time.Now()
	server.Restart(t)
	t.Logf("the server was away for %v", time.Since(gone))
	for _, at := range []time.Time{time.Now(), gone.Add(restartTTL)} {
		time.Sleep(time.Until(at))
		if after := holderOf(t, server.URL, name); after.Owner != before.Owner || after.Fence != before.Fence {
			t.Errorf("%v after the restart the lock is held by %+v, want %+v", time.Since(gone), after, before)
		}
	}
	p.input.Close()
	p.code(3)
}

// testForgottenLock: there is no lock any more, and the next renewal finds out.
func testForgottenLock(t *testing.T, server *testenv.Server) {
	t.Helper()
	p := startJob(t, server, nameFor(t))
	gone := time.Now()
	server.Restart(t)
	p.code(exitLost)
	if took := time.Since(gone); took >= restartTTL {
		t.Errorf("the command ended %v after the restart, the TTL is %v", took, restartTTL)
	}
}

// testServerGone: the command and what it started ignore SIGTERM. Their end shows in a pipe
// that nobody else writes to.
func testServerGone(t *testing.T, server *testenv.Server) {
	t.Helper()
	const ttl = 4 * time.Second
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	script := `exec >"$1"; trap "" TERM; sleep 1000 & while :; do sleep 1; done`
	p := startDlock(t, server.URL, "run", "--ttl", ttl.String(), nameFor(t), "--", "sh", "-c", script, "sh", fifo)
	written, err := os.Open(fifo) // returns when the command has opened it
	if err != nil {
		t.Fatal(err)
	}
	defer written.Close()
	gone := time.Now() // no renewal that was sent later is answered
	server.Kill(t)
	_, err = io.ReadAll(written)
	if took := time.Since(gone); err != nil || took >= ttl {
		t.Errorf("the command ended %v after its server, the TTL is %v (%v)", took, ttl, err)
	} else {
		t.Logf("the command ended %v after its server", took)
	}
	p.code(exitLost)
}

// holderOf is the one holder of a lock.
func holderOf(t *testing.T, url, name string) backend.Holder {
	t.Helper()
	info := statusOf(t, url, name)
	if len(info.Holders) != 1 {
		t.Fatalf("the lock has %d holders, want one", len(info.Holders))
	}
	return info.Holders[0]
}
