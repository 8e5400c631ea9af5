package memcachedbackend

import (
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// export exports a grant, which must succeed.
func export(tb testing.TB, d *driver, g *backend.Grant) (ticket string) {
	tb.Helper()
	ticket, err := d.Export(tb.Context(), g)
	if err != nil {
		tb.Fatalf("Export: %v", err)
	}
	return ticket
}

// newOwner returns a request for the lock of g by another owner.
func newOwner(tb testing.TB, g *backend.Grant) *backend.Request {
	tb.Helper()
	req := raw.Request(tb, long)
	req.Key = g.Key
	return req
}

// TestForgedTicketsAreRefused tries tickets of which only the owner is known. Each client can read
// the owner with Inspect.
func TestForgedTicketsAreRefused(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Memcached(t).URL)
	g := raw.Acquire(t, d, raw.Request(t, long))
	refused := func() {
		t.Helper()
		for _, ticket := range []string{
			"", ".", g.Owner, g.Owner + ".", g.Owner + "." + noTicket, "." + noTicket,
		} {
			_, err := d.Adopt(t.Context(), ticket, newOwner(t, g))
			raw.WantIs(t, "Adopt of "+ticket, err, backend.ErrLost)
		}
	}
	refused()
	ticket := export(t, d, g)
	refused()
	adopted, err := d.Adopt(t.Context(), ticket, newOwner(t, g))
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	g = adopted
	refused()
	raw.Release(t, d, adopted)
}

// TestLateRenewKeepsTheTicket executes a renewal after the Export of its grant, and again after the
// adoption.
func TestLateRenewKeepsTheTicket(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Memcached(t).URL)
	g := raw.Acquire(t, d, raw.Request(t, long))
	ticket := export(t, d, g)
	_, err := d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew after the Export", err, nil)
	adopted, err := d.Adopt(t.Context(), ticket, newOwner(t, g))
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	_, err = d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew after the adoption", err, backend.ErrLost)
	_, err = d.Export(t.Context(), g)
	raw.WantIs(t, "Export after the adoption", err, backend.ErrLost)
	_, err = d.Renew(t.Context(), adopted)
	raw.WantIs(t, "Renew of the adopted grant", err, nil)
	raw.Release(t, d, adopted)
}

// TestLateAddIsNotExported breaks a lock, whose owner's late add is then executed. An Export of the
// broken grant finds it: see TestLateAddRevivesNoLease.
func TestLateAddIsNotExported(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	d := openURL(t, s.URL)
	req, earlier := raw.Request(t, long), time.Now()
	time.Sleep(time.Millisecond)
	g := raw.Acquire(t, d, req)
	raw.WantIs(t, "Break", d.Break(t.Context(), req.Key, req.Owner), nil)
	late := newRecord(req, d.list, g.Fence, earlier).encode()
	if err := admin(t, s).Add(&memcache.Item{Key: newKeys(req.Key).lock, Value: late}); err != nil {
		t.Fatal(err)
	}
	_, err := d.Export(t.Context(), g)
	raw.WantIs(t, "Export", err, backend.ErrLost)
}

// TestAdoptWithAnotherList adopts with a list of servers in which the name may belong to another
// server. The ticket stays good.
func TestAdoptWithAnotherList(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Memcached(t).URL)
	g := raw.Acquire(t, d, raw.Request(t, long))
	ticket, req := export(t, d, g), newOwner(t, g)
	list := d.list
	d.list = listID([]string{"another:11211", "list:11211"})
	_, err := d.Adopt(t.Context(), ticket, req)
	raw.WantIs(t, "Adopt with another list", err, backend.ErrConflict)
	d.list = list
	adopted, err := d.Adopt(t.Context(), ticket, req)
	if err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	raw.Release(t, d, adopted)
}
