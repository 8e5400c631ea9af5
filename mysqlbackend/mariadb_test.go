package mysqlbackend

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestMariaDBKillsNoQuery checks that the driver sends no KILL QUERY to MariaDB. A KILL QUERY of
// one SLEEP can stop all other SLEEPs of a server for two seconds, and so all grants to waiters.
// The first waiter detects each release without it, and never waits until the limit of its Wait.
func TestMariaDBKillsNoQuery(t *testing.T) {
	t.Parallel()
	s := testenv.NewMariaDB(t)
	if n := killsOfHandoffs(t, s, s.URL); n != 0 {
		t.Errorf("%d KILL for 10 hand-offs", n)
	}
}

// killsOfHandoffs lets one driver of url pass ten locks to a waiter of another driver. It returns
// how many KILLs the server has executed meanwhile.
func killsOfHandoffs(t *testing.T, s *testenv.Server, url string) int {
	t.Helper()
	holder, waiter, db := openURL(t, url), openURL(t, url), database(t, s, "")
	before := status(t, db, "Com_kill")
	for range 10 {
		g := acquire(t, holder, raw.Request(t, time.Hour))
		req := raw.Request(t, time.Hour)
		granted := make(chan *backend.Grant, 1)
		go func() { granted <- waitToEnd(t, waiter, req) }()
		looked := func() int { return status(t, db, "Com_select") }
		eventually(t, "the waiter is the first", func() bool {
			return ask(t, db, "SELECT IS_USED_LOCK(?)", holder.keys.signal(g.Key)) != ""
		})
		seen := looked()
		eventually(t, "the waiter reads the row", func() bool { return looked() > seen })
		raw.Release(t, holder, g)
		raw.Release(t, waiter, <-granted)
	}
	return status(t, db, "Com_kill") - before
}

// waitToEnd acquires the lock of req, and fails the test if a Wait lasts until its limit.
func waitToEnd(t *testing.T, d *driver, req *backend.Request) *backend.Grant {
	t.Helper()
	for {
		g, err := d.Acquire(t.Context(), req)
		if err == nil {
			return g
		}
		answer, ok := errors.AsType[*backend.Busy](err)
		began := time.Now()
		if ok {
			_, err = d.Wait(t.Context(), req, answer)
		}
		if took := time.Since(began); err != nil || took >= maxQueueing {
			t.Errorf("Wait took %v: %v", took, err)
			return &backend.Grant{Request: *req}
		}
	}
}
