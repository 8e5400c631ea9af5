package mysqlbackend

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// relay keeps a row locked until end: each of three clients waits for it while another one has it for 3 ms.
func relay(t *testing.T, db *sql.DB, name string) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	locked := make(chan struct{}, 1)
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			for ctx.Err() == nil {
				tx, err := db.Begin()
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := tx.Exec("SELECT 1 FROM dlock WHERE name = ? FOR UPDATE", []byte(name)); err != nil {
					t.Error(err)
				}
				select {
				case locked <- struct{}{}:
				default:
				}
				time.Sleep(3 * time.Millisecond)
				_ = tx.Rollback()
			}
		})
	}
	<-locked
	return func() { stop(); clients.Wait() }
}

// TestContestedLeasesAreNotLost: a client holds two locks, and so many requests ask for both that their rows are never seen
// unlocked. Each request has a row for some ms. Each lease is renewed all the same, again and again.
func TestContestedLeasesAreNotLost(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open func(testing.TB, *testenv.Server) *lockDriver) {
		t.Helper()
		d, db := open(t, s), database(t, s, "")
		var gs []*backend.Grant
		for _, part := range []string{"/a", "/b"} {
			req := raw.Request(t, time.Minute)
			req.Key += part
			gs = append(gs, acquire(t, d, req))
			defer relay(t, db, req.Key)()
		}
		var renewals [2]int
		const enough = 3
		for try := 0; slices.Min(renewals[:]) < enough; try++ {
			answers := d.RenewAll(t.Context(), gs)
			for i, a := range answers {
				if a.Err == nil {
					renewals[i]++
				}
			}
			if try == 10*enough {
				t.Fatalf("of %d tries succeeded %d; the last ones: %v", try, renewals, answers)
			}
		}
	})
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
