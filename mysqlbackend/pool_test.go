package mysqlbackend

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestReleasesDelayNoRenewal renews locks while other requests have all connections that releases
// may have, for example because their rows are locked.
func TestReleasesDelayNoRenewal(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.MySQL(t).URL)
	var grants []*backend.Grant
	for _, suffix := range []string{"a", "b"} {
		req := raw.Request(t, time.Minute)
		req.Key += suffix
		grants = append(grants, acquire(t, d, req))
	}
	for _, p := range []*pool{d.pools.main, d.pools.control} {
		for range cap(p.slots) {
			p.slots <- struct{}{}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for n := 1; n <= len(grants); n++ {
		for _, r := range d.RenewAll(ctx, grants[:n]) {
			if r.Err != nil {
				t.Errorf("RenewAll of %d locks: %v", n, r.Err)
			}
		}
	}
	for _, p := range []*pool{d.pools.main, d.pools.control} {
		for range cap(p.slots) {
			<-p.slots
		}
	}
	for _, g := range grants {
		raw.Release(t, d, g)
	}
}

// TestLockedRowsDelayNoOtherName has many requests that wait for locked rows, for as long as the
// test takes. They have all slots of the pools. Requests for other names go on.
func TestLockedRowsDelayNoOtherName(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			d, db := openURL(t, s.URL+"&timeout=5m"), database(t, s, "")
			d.sweeping.Store(true) // prevents sweeps
			other := raw.Request(t, time.Minute)
			other.Key += " other"
			second := *other
			second.Key += " of two"
			raw.Release(t, d, acquire(t, d, other))
			gs := acquireMany(t, d, 2*mainConns)
			for _, g := range gs {
				row := lockRow(t, db, g.Key)
				defer unlock(t, row)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var requests sync.WaitGroup
			defer requests.Wait()
			defer cancel()
			waitForLong(t, d.pools.main)
			waitForLong(t, d.pools.control)
			for _, g := range gs {
				late := g.Request
				late.Owner = raw.NewOwner()
				requests.Go(func() { _, _ = d.Acquire(ctx, &late) })
				requests.Go(func() { _ = d.Release(ctx, g) })
			}
			eventually(t, "all slots are in use", func() bool {
				return isFull(d.pools.main) && isFull(d.pools.control)
			})
			bounded, cancelBounded := context.WithTimeout(ctx, patience)
			defer cancelBounded()
			wantPair(bounded, t, d, other)
			wantPair(bounded, t, d, reader(other.Key))
			both, _, err := d.AcquireAll(bounded, []*backend.Request{other, &second})
			if err != nil {
				t.Fatalf("AcquireAll: %v", err)
			}
			for _, err := range d.ReleaseAll(bounded, both) {
				if err != nil {
					t.Errorf("ReleaseAll: %v", err)
				}
			}
			if !isFull(d.pools.main) || !isFull(d.pools.control) {
				t.Error("a slot became free meanwhile")
			}
		})
	}
}

// silent is a server to which no connection can be made.
type silent struct{}

func (silent) Driver() sqldriver.Driver { return nil }

func (silent) Connect(ctx context.Context) (sqldriver.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// busyPool returns a pool without a free slot. Its spare connections are dead.
func busyPool(t *testing.T) *pool {
	t.Helper()
	p := newPool(nil, 1)
	t.Cleanup(func() { _ = p.Close() })
	p.slots <- struct{}{}
	p.spare = &pool{DB: sql.OpenDB(silent{}), slots: make(chan struct{}, 1), locked: "SELECT"}
	t.Cleanup(func() { _ = p.spare.Close() })
	return p
}

// TestDeadSpareConnection has a request that tries a spare connection. It gets a slot of the main
// ones, which becomes free meanwhile, and half of its time for it.
func TestDeadSpareConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := busyPool(t)
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		time.AfterFunc(time.Second, func() { <-p.slots })
		_, s, err := p.takeSlot(ctx, "a")
		if err != nil || s != p.slots || time.Since(begun) > 6*time.Second {
			t.Errorf("takeSlot: %v after %v", err, time.Since(begun))
		}
	})
}

// TestRequestWithoutASlotIsNotSent has a request whose time is over before it gets a connection.
func TestRequestWithoutASlotIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := busyPool(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := exec(ctx, p.of("a"), "DO 1")
		raw.WantIs(t, "exec", err, backend.ErrUnavailable)
		raw.WantIs(t, "exec", err, context.DeadlineExceeded)
		_, err = query(ctx, p, func(*sql.Rows) (any, error) { return nil, nil }, "SELECT 1")
		raw.WantIs(t, "query", err, backend.ErrUnavailable)
	})
}

// wantPair acquires and releases a lock.
func wantPair(ctx context.Context, t *testing.T, d *driver, req *backend.Request) {
	t.Helper()
	g, err := d.Acquire(ctx, req)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	if err := d.Release(ctx, g); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// waitForLong makes all connections of a pool. The server lets them wait for rows for long.
func waitForLong(t *testing.T, p *pool) {
	t.Helper()
	p.SetConnMaxIdleTime(0) // keeps them
	var conns []*sql.Conn
	for range p.Stats().MaxOpenConnections {
		conn, err := p.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		do(t, conn, "SET SESSION innodb_lock_wait_timeout = 600")
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
}

func isFull(p *pool) bool { return len(p.slots) == cap(p.slots) }
