package etcdbackend

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// openFull opens a driver whose transactions are executed and answered with ErrNoSpace while the
// returned loser is losing. A server answers so the transaction that exceeds its quota.
func openFull(t *testing.T) (*driver, *loser, *testenv.Server) {
	t.Helper()
	s, l := testenv.Etcd(t), &loser{answer: errFull}
	return lend(t, admin(t, s, l.option())), l, s
}

// TestFullServerMayHaveGranted checks attempts that a full server has executed. Each outcome is
// unknown, so the core releases the owner, and that frees the lock.
func TestFullServerMayHaveGranted(t *testing.T) {
	t.Parallel()
	d, l, s := openFull(t)
	req := newRequest(t)
	req.Queue = false
	held := *req
	held.Key, held.Owner = req.Key+"/held", raw.NewOwner()
	g := raw.Acquire(t, d, &held) // creates the lease
	l.losing.Store(true)
	for range 2 {
		_, err := d.Acquire(t.Context(), req)
		wantUnknown(t, "Acquire", err)
	}
	l.losing.Store(false)
	d.mu.Lock()
	a := d.acquisitions[req.Owner]
	if a == nil || !a.mayHaveGhost || a.lease.state != doubtful {
		t.Errorf("the driver has the acquisition %+v, want one that may have a ghost", a)
	}
	d.mu.Unlock()
	release(t, d, &backend.Grant{Request: *req})
	if keys := keysUnder(t, admin(t, s), d.prefix(req.Key)); len(keys) > 0 {
		t.Errorf("keys remain: %q", keys)
	}
	release(t, d, g)
}

// TestFullServerMayHaveDowngraded checks a Downgrade that a full server has executed: a reader in
// the queue holds the lock, so the writer must not go on as if nothing had happened.
func TestFullServerMayHaveDowngraded(t *testing.T) {
	t.Parallel()
	d, l, s := openFull(t)
	g := raw.Acquire(t, d, newRequest(t))
	other, reader := openURL(t, s.URL), newRequest(t)
	reader.Mode = backend.Shared
	granted := waiting(t, other, reader, raw.Busy(t, other, reader))
	l.losing.Store(true)
	_, err := d.Downgrade(t.Context(), g)
	wantUnknown(t, "Downgrade", err)
	l.losing.Store(false)
	release(t, other, await(t, "the reader", granted))
	release(t, d, g)
}

// TestFullServerMayHaveMoved checks an Adopt that a full server has executed. The adopter that
// repeats it gets the grant, and an adopter that gives up releases it.
func TestFullServerMayHaveMoved(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{true, false} {
		d, l, _ := openFull(t)
		ticket, req := export(t, d, raw.Acquire(t, d, newRequest(t))), newRequest(t)
		l.losing.Store(true)
		_, err := d.Adopt(t.Context(), ticket, req)
		wantUnknown(t, "Adopt", err)
		l.losing.Store(false)
		g := &backend.Grant{Request: *req}
		if again {
			g = adopt(t, d, ticket, req)
		}
		release(t, d, g)
	}
}

// fill writes to a server until it has exceeded its quota.
func fill(tb testing.TB, ops *clientv3.Client) {
	tb.Helper()
	for i := 0; ; i++ {
		_, err := ops.Put(tb.Context(), fmt.Sprint("fill", i), strings.Repeat("x", 100_000))
		if err != nil {
			raw.WantIs(tb, "Put", err, rpctypes.ErrNoSpace)
			return
		}
	}
}

// TestQuotaExceeded checks what a full server still does, also for a client that is opened then.
func TestQuotaExceeded(t *testing.T) {
	t.Parallel()
	s := testenv.NewEtcd(t, "--quota-backend-bytes", "1048576")
	d := openURL(t, s.URL)
	g := raw.Acquire(t, d, newRequest(t))
	fill(t, admin(t, s))
	req := newRequest(t)
	req.Key += "/other"
	_, err := d.Acquire(t.Context(), req)
	raw.WantIs(t, "Acquire", err, rpctypes.ErrNoSpace)
	err = d.Release(t.Context(), &backend.Grant{Request: *req})
	raw.WantIs(t, "Release of a refused attempt", err, backend.ErrNotHeld)
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	operator := openURL(t, s.URL)
	if got := operator.Capabilities().MinTTL; got != usualMinTTL {
		t.Errorf("opened with MinTTL %v", got)
	}
	for info, err := range operator.List(t.Context(), "") {
		if err != nil || info.Key != g.Key {
			t.Errorf("List: %+v, %v", info, err)
		}
	}
	if err := operator.Break(t.Context(), g.Key, g.Owner); err != nil {
		t.Errorf("Break: %v", err)
	}
	_, err = d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew after Break", err, backend.ErrLost)
}

// TestLockOnAFullServerEnds checks that Lock on a full server does not wait for ever, and that its
// error has the cause: with a lease of the client, and without one.
func TestLockOnAFullServerEnds(t *testing.T) {
	t.Parallel()
	s := testenv.NewEtcd(t, "--quota-backend-bytes", "1048576")
	client := must[*dlock.Client](t)(dlock.Open(t.Context(), s.URL))
	defer client.Close()
	const ttl = 3 * time.Second
	mutex := func(name string, ttl time.Duration) dlock.Mutex {
		return must[dlock.Mutex](t)(client.Mutex(t.Name()+name, dlock.WithTTL(ttl)))
	}
	held := must[*dlock.Lease](t)(mutex("/held", ttl).Lock(t.Context()))
	fill(t, admin(t, s))
	for _, ttl := range []time.Duration{ttl, ttl + time.Second} {
		_, err := mutex("/other", ttl).Lock(t.Context())
		raw.WantIs(t, "Lock", err, dlock.ErrUnavailable)
		raw.WantIs(t, "Lock", err, rpctypes.ErrNoSpace)
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}
