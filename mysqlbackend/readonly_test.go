package mysqlbackend

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestDemotedMasterIsNotBelieved: a failover sets read_only on the former master, which keeps a user with all privileges
// from nothing. Nothing is granted or renewed there, and nothing is written.
func TestDemotedMasterIsNotBelieved(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		for opener, open := range openers {
			t.Run(name+"/"+opener, func(t *testing.T) {
				t.Parallel()
				s := start(t)
				d, db := open(t, s), database(t, s, "")
				d.sweeping.Store(true) // so no sweep begins
				gs := acquireMany(t, d, 2)
				fresh, free := raw.Request(t, time.Minute), raw.Request(t, time.Minute)
				fresh.Key, free.Key = fresh.Key+"/fresh", free.Key+"/free"
				raw.Release(t, d, acquire(t, d, free))
				before := []string{row(t, db, gs[0].Key), row(t, db, gs[1].Key), row(t, db, free.Key)}
				do(t, db, "SET GLOBAL read_only = ON")
				for what, req := range map[string]*backend.Request{"a fresh lock": fresh, "a free lock": free, "a lock of its own": &gs[0].Request} {
					_, err := d.Acquire(t.Context(), req)
					raw.WantIs(t, "Acquire of "+what, err, backend.ErrUnavailable)
				}
				_, err := d.Renew(t.Context(), gs[0])
				raw.WantIs(t, "Renew", err, backend.ErrUnavailable)
				for _, r := range d.RenewAll(t.Context(), gs) {
					raw.WantIs(t, "RenewAll", r.Err, backend.ErrUnavailable)
				}
				for i, name := range []string{gs[0].Key, gs[1].Key, free.Key} {
					if after := row(t, db, name); after != before[i] {
						t.Errorf("the row was %s and is %s", before[i], after)
					}
				}
				if n := ask(t, db, "SELECT COUNT(*) FROM dlock WHERE name = ?", []byte(fresh.Key)); n != "0" {
					t.Error("a row was made")
				}
				do(t, db, "SET GLOBAL read_only = OFF")
				for i, r := range d.RenewAll(t.Context(), gs) {
					if r.Err != nil {
						t.Errorf("renewal %d on a writer: %v", i, r.Err)
					}
				}
				raw.Release(t, d, acquire(t, d, fresh))
			})
		}
	}
}

// TestStatementLogIsRefused: a replica that executes the statements itself is read-only, and would have no locks.
func TestStatementLogIsRefused(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--log-bin=binlog", "--server-id=1", "--binlog-format=STATEMENT")
			d, err := testenv.Open(t.Context(), s.URL)
			if err == nil {
				_ = d.Close()
			}
			raw.WantIs(t, "Open", err, backend.ErrUnsupported)
			do(t, database(t, s, ""), "SET GLOBAL binlog_format = MIXED")
			d2 := openURL(t, s.URL)
			raw.Release(t, d2, acquire(t, d2, raw.Request(t, time.Minute)))
		})
	}
}

// TestReadOnlyServerIsLeft: the name of the writer may have moved to another host.
func TestReadOnlyServerIsLeft(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			d, db := openURL(t, s.URL), database(t, s, "")
			g := acquire(t, d, raw.Request(t, time.Minute))
			do(t, db, "SET GLOBAL read_only = ON")
			before := status(t, db, "Connections")
			_, err := d.Renew(t.Context(), g)
			raw.WantIs(t, "Renew", err, backend.ErrUnavailable)
			if status(t, db, "Connections") == before {
				t.Error("the connection was kept")
			}
		})
	}
}
