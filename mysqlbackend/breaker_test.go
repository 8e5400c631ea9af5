package mysqlbackend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/announce"
	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// relay keeps a row locked. Each of three clients waits for the row while another client locks it
// for 3 ms. relay records their waits, which do not depend on a driver.
type relay struct {
	t       *testing.T
	db      *sql.DB
	locked  chan struct{} // receives when a client has locked the row
	clients sync.WaitGroup

	mu    sync.Mutex
	waits map[int]time.Time // beginning of each client's wait
	turns []span
}

// span is a completed wait.
type span struct{ began, ended time.Time }

// startRelay starts a relay and returns when the row is locked. The caller must call end.
func startRelay(t *testing.T, db *sql.DB, name string) (r *relay, end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r = &relay{t: t, db: db, locked: make(chan struct{}, 1), waits: make(map[int]time.Time)}
	for i := range 3 {
		r.clients.Go(func() {
			for ctx.Err() == nil && r.pass(i, name) {
			}
		})
	}
	<-r.locked
	return r, func() { stop(); r.clients.Wait() }
}

// pass makes client i wait for the row and lock it for 3 ms.
func (r *relay) pass(i int, name string) bool {
	tx, err := r.db.Begin()
	if err != nil {
		r.t.Error(err)
		return false
	}
	r.begin(i)
	_, err = tx.Exec("SELECT 1 FROM dlock WHERE name = ? FOR UPDATE", []byte(name))
	if err != nil {
		r.t.Error(err)
	}
	r.finish(i)
	select {
	case r.locked <- struct{}{}:
	default:
	}
	time.Sleep(3 * time.Millisecond)
	_ = tx.Rollback()
	return true
}

func (r *relay) begin(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits[i] = time.Now()
}

func (r *relay) finish(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns = append(r.turns, span{r.waits[i], time.Now()})
	delete(r.waits, i)
}

// longest returns the longest wait among the present waits and the waits that ended after since.
func (r *relay) longest(since time.Time) (longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, began := range r.waits {
		longest = max(longest, time.Since(began))
	}
	for _, s := range r.turns {
		if s.ended.After(since) {
			longest = max(longest, s.ended.Sub(s.began))
		}
	}
	return longest
}

// TestContestedLeasesAreNotLost checks renewals of two locks with many contenders. So many requests
// lock the two rows, for some ms each, that the rows are never seen unlocked. Nevertheless each
// renewal succeeds, unless the machine or the server has stalled meanwhile.
func TestContestedLeasesAreNotLost(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, db := open(t, s), database(t, s, "")
		var gs []*backend.Grant
		var relays []*relay
		for _, part := range []string{"/a", "/b"} {
			req := raw.Request(t, time.Minute)
			req.Key += part
			gs = append(gs, acquire(t, d, req))
			r, end := startRelay(t, db, req.Key)
			defer end()
			relays = append(relays, r)
		}
		meter := lag.Start()
		defer meter.Stop()
		const enough, void = 12, 20
		for good, voids := 0, 0; good < enough; {
			begun := time.Now()
			err := errors.Join(renewalErrors(d.RenewAll(t.Context(), gs))...)
			waited := max(relays[0].longest(begun), relays[1].longest(begun))
			switch late := meter.Worst(begun); {
			case err == nil:
				good++
			case late < maxRowWait/10 && waited < maxRowWait/4:
				t.Fatalf("a renewal failed, although other clients waited for a row for only %v, "+
					"and this process lagged by %v: %v", waited, late, err)
			case voids == void:
				t.Fatalf("%d calls failed; in the last one other clients waited for a row for %v, "+
					"and this process lagged by %v", voids+1, waited, late)
			default:
				voids++
				t.Log(announce.Void(fmt.Sprintf("other clients waited for a row for %v, "+
					"and this process lagged by %v", waited, late)))
			}
		}
	})
}

func renewalErrors(answers []backend.Renewal) (errs []error) {
	for _, a := range answers {
		errs = append(errs, a.Err)
	}
	return errs
}

// TestLateRequestRevivesNoBrokenLease checks a request that began before a Break and is executed
// after it, and after another holder.
func TestLateRequestRevivesNoBrokenLease(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, past, db := open(t, s), open(t, s), database(t, s, "")
		putIntoThePast(t, past, ask(t, db, "SELECT UNIX_TIMESTAMP(NOW(6))"))
		for what, late := range requests {
			g := acquire(t, d, raw.Request(t, time.Minute))
			if err := d.Break(t.Context(), g.Key, g.Owner); err != nil {
				t.Fatal(err)
			}
			next := acquire(t, d, raw.Request(t, time.Minute))
			raw.Release(t, d, next)
			before := row(t, db, g.Key)
			_, err := late(t, past, g)
			if !errors.Is(err, backend.ErrLost) && !errors.Is(err, backend.ErrNotAcquired) {
				t.Errorf("%s: %v", what, err)
			}
			if after := row(t, db, g.Key); after != before {
				t.Errorf("%s: the row was %s and is %s", what, before, after)
			}
			_, err = d.Renew(t.Context(), g)
			raw.WantIs(t, what+": renewal of the broken lease", err, backend.ErrLost)
		}
	})
}

// TestLateGrantRevivesNoBrokenLease breaks a lock. A request of its holder that was sent before is
// executed after another holder, and makes another grant. The broken lease stays lost.
func TestLateGrantRevivesNoBrokenLease(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d := open(t, s)
		for what, request := range map[string]func(key string) *backend.Request{
			"writer": func(key string) *backend.Request {
				req := raw.Request(t, time.Minute)
				req.Key = key
				return req
			},
			"reader": reader,
			"permit": func(key string) *backend.Request { return permit(key, 2) },
		} {
			req := request(t.Name() + "/" + what)
			g := acquire(t, d, req)
			if again := acquire(t, d, req); again.Fence != g.Fence {
				t.Errorf("%s: fence %d, repeated %d", what, g.Fence, again.Fence)
			}
			if err := d.Break(t.Context(), g.Key, g.Owner); err != nil {
				t.Fatal(err)
			}
			raw.Release(t, d, acquire(t, d, request(g.Key)))
			ghost := acquire(t, d, req)
			if ghost.Fence <= g.Fence {
				t.Errorf("%s: fence %d after %d", what, ghost.Fence, g.Fence)
			}
			wantLost(t, d, what, g, ghost)
			if what == "writer" {
				waiter := reader(g.Key)
				_ = raw.Busy(t, d, waiter) // makes a roster of the row
				wantLost(t, d, "writer in a roster", g, ghost)
				raw.Release(t, d, &backend.Grant{Request: *waiter})
			}
			raw.Release(t, d, ghost)
		}
	})
}

// wantLost checks that a broken grant is lost, and that a later grant of the same owner is not.
func wantLost(t *testing.T, d *driver, what string, broken, held *backend.Grant) {
	t.Helper()
	for fence, want := range map[*backend.Grant]error{broken: backend.ErrLost, held: nil} {
		_, err := d.Renew(t.Context(), fence)
		raw.WantIs(t, "Renew of the "+what, err, want)
		err = d.RenewAll(t.Context(), []*backend.Grant{fence})[0].Err
		raw.WantIs(t, "RenewAll of the "+what, err, want)
	}
	both := d.RenewAll(t.Context(), []*backend.Grant{broken, held})
	raw.WantIs(t, "RenewAll of the "+what+" with the other", both[0].Err, backend.ErrLost)
	raw.WantIs(t, "RenewAll of the other "+what, both[1].Err, nil)
	_, err := d.Export(t.Context(), broken)
	raw.WantIs(t, "Export of the "+what, err, backend.ErrLost)
	_, err = d.Downgrade(t.Context(), broken)
	raw.WantIs(t, "Downgrade of the "+what, err, backend.ErrLost)
}

// TestRebuiltGrantIsOwnerChecked renews grants without a fence: the caller has only the owner.
func TestRebuiltGrantIsOwnerChecked(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, writer := open(t, s), raw.Request(t, time.Minute)
		for _, req := range []*backend.Request{writer, reader(t.Name() + "/reader")} {
			g := acquire(t, d, req)
			own, other := &backend.Grant{Request: *req}, &backend.Grant{Request: *req}
			other.Owner = raw.NewOwner()
			for rebuilt, want := range map[*backend.Grant]error{own: nil, other: backend.ErrLost} {
				_, err := d.Renew(t.Context(), rebuilt)
				raw.WantIs(t, "Renew", err, want)
				err = d.RenewAll(t.Context(), []*backend.Grant{rebuilt})[0].Err
				raw.WantIs(t, "RenewAll", err, want)
			}
			raw.Release(t, d, g)
		}
	})
}

// TestRepeatedAllKeepsItsFence repeats an AcquireAll, as a late request does. The leases of the
// first one go on.
func TestRepeatedAllKeepsItsFence(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, reqs := open(t, s), several(t, 3)
		gs := acquireAll(t, d, reqs)
		for i, again := range acquireAll(t, d, reqs) {
			if again.Fence != gs[i].Fence {
				t.Errorf("fence %d is %d, repeated %d", i, gs[i].Fence, again.Fence)
			}
		}
		for _, err := range renewalErrors(d.RenewAll(t.Context(), gs)) {
			raw.WantIs(t, "RenewAll", err, nil)
		}
		releaseAll(t, d, gs)
	})
}

// TestFreeLockIsFreeWhenTheClockWasSetBack checks a free lock after the clock was set back: its
// release is an hour in the future. The lock can be acquired, for its TTL.
func TestFreeLockIsFreeWhenTheClockWasSetBack(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, future, db := open(t, s), open(t, s), database(t, s, "")
		putIntoThePast(t, future, ask(t, db, "SELECT UNIX_TIMESTAMP(NOW(6)) + 3600"))
		for what, request := range requests {
			if strings.HasPrefix(what, "Renew") {
				continue
			}
			raw.Release(t, future, acquire(t, future, raw.Request(t, time.Minute)))
			g := &backend.Grant{Request: *raw.Request(t, time.Minute)}
			_, err := request(t, d, g)
			raw.WantIs(t, what, err, nil)
			info, err := d.Inspect(t.Context(), g.Key)
			if err != nil || len(info.Holders) != 1 || info.Holders[0].TTL > g.TTL {
				t.Errorf("Inspect after %s: %+v, %v", what, info, err)
			}
			raw.Release(t, d, g)
		}
	})
}

// TestNewRefusesEmptyNull checks that New refuses a server that treats the empty string as NULL,
// because no lock could be released there.
func TestNewRefusesEmptyNull(t *testing.T) {
	t.Parallel()
	s := testenv.MariaDB(t)
	d, err := New(database(t, s, "?sql_mode=%27EMPTY_STRING_IS_NULL%27"), &Options{Create: true})
	raw.WantIs(t, "New", err, backend.ErrUnsupported)
	if d != nil {
		_ = d.Close()
	}
}
