package mysqlbackend

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestDemotedMasterIsIgnored checks a former master on which a failover has set read_only. This
// setting does not restrict a user with all privileges. Nevertheless the driver grants, renews and
// writes nothing there.
func TestDemotedMasterIsIgnored(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		for opener, open := range openers {
			t.Run(name+"/"+opener, func(t *testing.T) {
				t.Parallel()
				s := start(t)
				d, db := open(t, s), database(t, s, "")
				do(t, db, "SET GLOBAL sql_mode = ''")
				lax := open(t, s)
				do(t, db, "ALTER TABLE dlock MODIFY owner VARBINARY(64) NULL, "+
					"CHANGE name NAME VARBINARY(1024) NOT NULL")
				d.sweeping.Store(true) // prevents sweeps
				lax.sweeping.Store(true)
				gs := append(acquireMany(t, d, 2), acquire(t, d, reader(t.Name()+"/reader")))
				fresh, free := raw.Request(t, time.Minute), raw.Request(t, time.Minute)
				fresh.Key, free.Key = fresh.Key+"/fresh", free.Key+"/free"
				raw.Release(t, d, acquire(t, d, free))
				names := []string{gs[0].Key, gs[1].Key, gs[2].Key, free.Key}
				var before []string
				for _, name := range names {
					before = append(before, row(t, db, name))
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				do(t, db, "SET GLOBAL read_only = ON")
				for what, req := range map[string]*backend.Request{
					"a fresh lock": fresh, "a free lock": free, "a held lock": &gs[0].Request,
					"a fresh lock by a reader": reader(fresh.Key),
					"a free lock by a reader":  reader(free.Key),
					"a reader's lock":          reader(gs[2].Key),
				} {
					_, err := d.Acquire(ctx, req)
					raw.WantIs(t, "Acquire of "+what, err, errReadOnly)
					_, err = lax.Acquire(ctx, req)
					raw.WantIs(t, "Acquire in a lax mode of "+what, err, backend.ErrUnavailable)
				}
				for _, req := range []*backend.Request{fresh, &gs[0].Request} {
					second := *free
					second.TTL = req.TTL
					_, _, err := d.AcquireAll(ctx, []*backend.Request{req, &second})
					raw.WantIs(t, "AcquireAll", err, backend.ErrUnavailable)
				}
				for _, g := range []*backend.Grant{gs[0], gs[2]} {
					_, err := d.Renew(ctx, g)
					raw.WantIs(t, "Renew", err, backend.ErrUnavailable)
				}
				for _, r := range d.RenewAll(ctx, gs) {
					raw.WantIs(t, "RenewAll", r.Err, backend.ErrUnavailable)
				}
				for _, name := range append(names, fresh.Key) {
					_, err := d.Inspect(ctx, name)
					raw.WantIs(t, "Inspect of "+name, err, backend.ErrUnavailable)
				}
				for _, err := range d.List(ctx, t.Name()) {
					raw.WantIs(t, "List", err, backend.ErrUnavailable)
				}
				for i, name := range names {
					if after := row(t, db, name); after != before[i] {
						t.Errorf("the row was %s and is %s", before[i], after)
					}
				}
				n := ask(t, db, "SELECT COUNT(*) FROM dlock WHERE name = ?", []byte(fresh.Key))
				if n != "0" {
					t.Error("a row was created")
				}
				do(t, db, "SET GLOBAL read_only = OFF")
				for i, r := range d.RenewAll(t.Context(), gs) {
					if r.Err != nil {
						t.Errorf("renewal %d on a writer: %v", i, r.Err)
					}
				}
				raw.Release(t, d, acquire(t, d, fresh))
				do(t, db, "SET GLOBAL read_only = ON") // root may release there
				for _, g := range gs {
					raw.Release(t, d, g)
				}
			})
		}
	}
}

// TestStatementLogIsRefused checks that Open refuses a binary log of statements. A replica executes
// such statements itself. It is read-only, so the driver's statements would create no locks there.
func TestStatementLogIsRefused(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--log-bin=binlog", "--server-id=1", "--binlog-format=STATEMENT")
			d, err := testenv.Open(t.Context(), s.URL+"&timeout=30s")
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

// TestReadOnlyServerIsLeft checks that the driver closes its connection to a read-only server. The
// name of the writer may now refer to another host.
func TestReadOnlyServerIsLeft(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			d, db := openURL(t, s.URL), database(t, s, "")
			writer := acquire(t, d, raw.Request(t, time.Minute))
			reader := acquire(t, d, reader(t.Name()+"/reader"))
			do(t, db, "SET GLOBAL read_only = ON")
			renew := func(g *backend.Grant) func() error {
				return func() error { _, err := d.Renew(t.Context(), g); return err }
			}
			inspect := func(key string) func() error {
				return func() error { _, err := d.Inspect(t.Context(), key); return err }
			}
			free := raw.Request(t, time.Minute)
			free.Key += "/free"
			request := func() error { _, err := d.Acquire(t.Context(), free); return err }
			for what, request := range map[string]func() error{
				"Acquire":           request,
				"Renew of a writer": renew(writer), "Renew of a reader": renew(reader),
				"Inspect": inspect(writer.Key), "Inspect of a free lock": inspect("free"),
			} {
				raw.WantIs(t, what, request(), backend.ErrUnavailable) // connects, perhaps
				before := status(t, db, "Connections")
				raw.WantIs(t, what, request(), backend.ErrUnavailable)
				if status(t, db, "Connections") == before {
					t.Errorf("the driver kept the connection of %s", what)
				}
			}
		})
	}
}

// TestWaitersLeaveAReadOnlyServer has waiters of each kind on a server that becomes read-only: the
// first in the queue, the next one, and one in a roster. Their connections end.
func TestWaitersLeaveAReadOnlyServer(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			d, db := openURL(t, s.URL), database(t, s, "")
			g := acquire(t, d, raw.Request(t, time.Minute))
			acquire(t, d, reader(t.Name()+"/roster"))
			first, next := raw.Request(t, time.Minute), raw.Request(t, time.Minute)
			last := raw.Request(t, time.Minute)
			last.Key += "/roster"
			answers := map[*backend.Request]*backend.Busy{}
			for _, req := range []*backend.Request{first, next, last} {
				answers[req] = raw.Busy(t, d, req)
			}
			_, err := d.Wait(t.Context(), first, answers[first])
			raw.WantIs(t, "Wait", err, nil)
			signal := d.keys.signal(g.Key)
			waiting := ask(t, db, "SELECT IS_USED_LOCK(?)", signal)
			do(t, db, "SET GLOBAL read_only = ON")
			for _, req := range []*backend.Request{first, next, last} {
				_, err := d.Wait(t.Context(), req, answers[req])
				raw.WantIs(t, "Wait on a read-only server", err, backend.ErrUnavailable)
			}
			eventually(t, "the connection of the first waiter ends", func() bool {
				return waiting != "" && ask(t, db, "SELECT COUNT(*) FROM "+
					"information_schema.PROCESSLIST WHERE ID = ?", waiting) == "0"
			})
			eventually(t, "no place is in use", func() bool {
				return len(d.queue.free) == maxWaitConns
			})
			if owner := ask(t, db, "SELECT IS_USED_LOCK(?)", signal); owner != "" {
				t.Errorf("connection %s has the signal", owner)
			}
		})
	}
}

// TestFencesAreAsDurableAsCommits has servers that answer a commit before it is on the disk.
func TestFencesAreAsDurableAsCommits(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--log-bin=binlog", "--server-id=1", "--binlog-format=ROW")
			db := database(t, s, "")
			for _, c := range []struct {
				flush, sync string
				want        backend.Fencing
			}{
				{"1", "1", backend.FenceDurable},
				{"0", "1", backend.FenceVolatile},
				{"2", "1", backend.FenceVolatile},
				{"1", "0", backend.FenceVolatile},
				{"1", "100", backend.FenceVolatile},
			} {
				do(t, db, "SET GLOBAL innodb_flush_log_at_trx_commit = "+c.flush)
				do(t, db, "SET GLOBAL sync_binlog = "+c.sync)
				if got := openURL(t, s.URL).caps.Fencing; got != c.want {
					t.Errorf("with %s and %s Fencing is %d, want %d", c.flush, c.sync, got, c.want)
				}
				client, err := dlock.Open(t.Context(), s.URL+"&timeout=30s&require=fence-durable")
				if err == nil {
					_ = client.Close()
				}
				if c.want == backend.FenceDurable && err != nil {
					t.Errorf("Open with a durable fence: %v", err)
				} else if c.want != backend.FenceDurable {
					raw.WantIs(t, "Open with a volatile fence", err, backend.ErrUnsupported)
				}
			}
		})
	}
}

// TestIsDurable has settings of the logs.
func TestIsDurable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flush, log, sync string
		want             bool
	}{
		{"1", "OFF", "0", true},
		{"3", "OFF", "0", true}, // MariaDB
		{"3", "ON", "1", true},
		{"2", "OFF", "1", false},
		{"3", "ON", "0", false},
		{"", "", "", false}, // another server
	} {
		got := isDurable(map[string]string{
			"innodb_flush_log_at_trx_commit": c.flush, "log_bin": c.log, "sync_binlog": c.sync,
		})
		if got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
