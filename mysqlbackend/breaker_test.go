package mysqlbackend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/announce"
	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// relay keeps a row locked: each of three clients waits for it while another one has it for 3 ms. It records how long
// they wait, which no driver has a part in.
type relay struct {
	t       *testing.T
	db      *sql.DB
	locked  chan struct{} // a client has had the row
	clients sync.WaitGroup

	mu    sync.Mutex
	waits map[int]time.Time // by client: since when it waits
	turns []span
}

// span is a wait that is over.
type span struct{ began, ended time.Time }

// startRelay returns when the row is locked. The caller calls end.
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

// pass has client i wait for the row, and have it.
func (r *relay) pass(i int, name string) bool {
	tx, err := r.db.Begin()
	if err != nil {
		r.t.Error(err)
		return false
	}
	r.begin(i)
	if _, err := tx.Exec("SELECT 1 FROM dlock WHERE name = ? FOR UPDATE", []byte(name)); err != nil {
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

// longest returns for how long a client has waited, of those that have waited since then.
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

// TestContestedLeasesAreNotLost: a client holds two locks, and so many requests ask for both that their rows are never seen
// unlocked. Each request has a row for some ms. Each renewal succeeds all the same, unless the machine or the server
// stood still meanwhile.
func TestContestedLeasesAreNotLost(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open func(testing.TB, *testenv.Server) *lockDriver) {
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
			case late < mostLocked/10 && waited < mostLocked/4:
				t.Fatalf("a renewal fails, although others waited for a row for %v at most, and this process for %v: %v", waited, late, err)
			case voids == void:
				t.Fatalf("%d calls fail, in the last of which others waited for a row for %v, and this process for %v", voids+1, waited, late)
			default:
				voids++
				t.Log(announce.Void(fmt.Sprintf("others waited for a row for %v, and this process for %v", waited, late)))
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

// TestLateRequestRevivesNoBrokenLease: a request that began before a Break is executed after it, and after another holder.
func TestLateRequestRevivesNoBrokenLease(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open func(testing.TB, *testenv.Server) *lockDriver) {
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
			if _, err := late(t, past, g); !errors.Is(err, backend.ErrLost) && !errors.Is(err, backend.ErrNotAcquired) {
				t.Errorf("%s: %v", what, err)
			}
			if after := row(t, db, g.Key); after != before {
				t.Errorf("%s: the row was %s and is %s", what, before, after)
			}
			_, err := d.Renew(t.Context(), g)
			raw.WantIs(t, what+": renewal of the broken lease", err, backend.ErrLost)
		}
	})
}

// TestFreeLockIsFreeWhenTheClockWasSetBack: it was released an hour in what is the future now.
func TestFreeLockIsFreeWhenTheClockWasSetBack(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open func(testing.TB, *testenv.Server) *lockDriver) {
		t.Helper()
		d, future, db := open(t, s), open(t, s), database(t, s, "")
		putIntoThePast(t, future, ask(t, db, "SELECT UNIX_TIMESTAMP(NOW(6)) + 3600"))
		raw.Release(t, future, acquire(t, future, raw.Request(t, time.Minute)))
		raw.Release(t, d, acquire(t, d, raw.Request(t, time.Minute)))
	})
}

// TestNewRefusesEmptyNull: where the empty string is NULL, no lock can be released.
func TestNewRefusesEmptyNull(t *testing.T) {
	t.Parallel()
	s := testenv.MariaDB(t)
	d, err := New(database(t, s, "?sql_mode=%27EMPTY_STRING_IS_NULL%27"), &Options{Create: true})
	raw.WantIs(t, "New", err, backend.ErrUnsupported)
	if d != nil {
		_ = d.Close()
	}
}
