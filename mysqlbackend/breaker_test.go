package mysqlbackend

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
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
// unlocked. Each request has a row for some ms.
func TestContestedLeasesAreNotLost(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			c, err := dlock.Open(t.Context(), s.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			const ttl = 3 * time.Second
			db := database(t, s, "")
			var leases []*dlock.Lease
			for _, part := range []string{"/a", "/b"} {
				l, err := c.Lock(t.Context(), t.Name()+part, dlock.WithTTL(ttl))
				if err != nil {
					t.Fatal(err)
				}
				leases = append(leases, l)
				defer relay(t, db, t.Name()+part)()
			}
			time.Sleep(3 * ttl)
			for i, l := range leases {
				if err := l.Err(); err != nil {
					t.Errorf("lease %d: %v", i, err)
				}
			}
		})
	}
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
