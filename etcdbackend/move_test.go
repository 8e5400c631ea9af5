package etcdbackend

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// export exports a grant, which must succeed.
func export(tb testing.TB, d *driver, g *backend.Grant) (ticket string) {
	tb.Helper()
	return must[string](tb)(d.Export(tb.Context(), g))
}

// adopt adopts a ticket, which must succeed.
func adopt(tb testing.TB, d *driver, ticket string, req *backend.Request) *backend.Grant {
	tb.Helper()
	return must[*backend.Grant](tb)(d.Adopt(tb.Context(), ticket, req))
}

// heldBy checks that the lock of g has one holder: its owner.
func heldBy(tb testing.TB, d *driver, g *backend.Grant) {
	tb.Helper()
	info := must[*backend.Info](tb)(d.Inspect(tb.Context(), g.Key))
	if len(info.Holders) != 1 || info.Holders[0].Owner != g.Owner {
		tb.Errorf("the lock has the holders %+v, want %s", info.Holders, g.Owner)
	}
	renews(tb, d, g)
}

// leaseOf returns the lease of the only key of a lock.
func leaseOf(tb testing.TB, c *clientv3.Client, prefix string) clientv3.LeaseID {
	tb.Helper()
	resp := must[*clientv3.GetResponse](tb)(c.Get(tb.Context(), prefix, clientv3.WithPrefix()))
	if len(resp.Kvs) != 1 {
		tb.Fatalf("%d keys under %s, want 1", len(resp.Kvs), prefix)
	}
	return clientv3.LeaseID(resp.Kvs[0].Lease)
}

// TestLeasesOfAMove checks that neither the end of the exporter's lease nor the end of the lease
// between Export and Adopt removes the key.
func TestLeasesOfAMove(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, other, ops := openURL(t, s.URL), openURL(t, s.URL), admin(t, s)
	g := raw.Acquire(t, d, newRequest(t))
	prefix := d.prefix(g.Key)
	first := leaseOf(t, ops, prefix)
	ticket := export(t, d, g)
	between := leaseOf(t, ops, prefix)
	if first == between {
		t.Error("the exported key has the exporter's lease")
	}
	must[*clientv3.LeaseRevokeResponse](t)(ops.Revoke(t.Context(), first))
	_ = leaseOf(t, ops, prefix)
	adopted := adopt(t, other, ticket, newRequest(t))
	if got := leaseOf(t, ops, prefix); got == between || adopted.Fence != g.Fence {
		t.Errorf("the adopted key has the lease %x after %x, and the fence %d", got, between,
			adopted.Fence)
	}
	eventually(t, "the lease in between is revoked", func() bool {
		left := must[*clientv3.LeaseTimeToLiveResponse](t)(ops.TimeToLive(t.Context(), between))
		return left.TTL < 0
	})
	heldBy(t, other, adopted)
	release(t, other, adopted)
}

// TestRepeatedAdoptRevokesNothing checks an Adopt that is repeated with another TTL, and so with
// another lease. The first lease has the key of another lock.
func TestRepeatedAdoptRevokesNothing(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, other := openURL(t, s.URL), openURL(t, s.URL)
	kept, adopter := newRequest(t), newRequest(t)
	kept.Key += "/kept"
	g := raw.Acquire(t, other, kept)
	ticket := export(t, d, raw.Acquire(t, d, newRequest(t)))
	_ = adopt(t, other, ticket, adopter)
	adopter.TTL += time.Minute
	adopted := adopt(t, other, ticket, adopter)
	for range 20 { // a revocation would be sent in the background
		renews(t, other, g)
	}
	heldBy(t, other, adopted)
	release(t, other, g)
	release(t, other, adopted)
}

// TestSweepSparesAMovedKey checks sweeps with the answer of a server that still counts a key among
// the keys of its former lease.
func TestSweepSparesAMovedKey(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, ops := openURL(t, s.URL), admin(t, s)
	g := raw.Acquire(t, d, newRequest(t))
	a := d.find(g.Owner)
	ticket := export(t, d, g)
	d.removeGhosts(a.lease, []string{a.key})
	_ = leaseOf(t, ops, a.prefix)
	adopted := adopt(t, d, ticket, newRequest(t))
	d.sweepGhosts(a.lease, [][]byte{[]byte(a.key)})
	d.removeGhosts(a.lease, []string{a.key})
	heldBy(t, d, adopted)
	release(t, d, adopted)
	if len(d.adopted) > 0 {
		t.Errorf("after the release the driver keeps %v", d.adopted)
	}
}

// delay makes the server execute the transaction of request only when the returned function is
// called. The caller of request has given it up by then.
func delay(tb testing.TB, l *tardy, request func(ctx context.Context) error) (execute func()) {
	tb.Helper()
	l.next.Store(true)
	ctx, cancel := context.WithCancel(tb.Context())
	failed := make(chan error, 1)
	go func() { failed <- request(ctx) }()
	late := await(tb, "the transaction", l.late)
	cancel()
	raw.WantIs(tb, "the cancelled request", await(tb, "it", failed), context.Canceled)
	return func() {
		if err := late(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
}

// TestLateMoves checks requests of a former owner, and an Adopt, that are executed after another
// owner has adopted the grant. They change nothing.
func TestLateMoves(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	for name, late := range map[string]func(context.Context, *driver, *backend.Grant) error{
		"export": func(ctx context.Context, d *driver, g *backend.Grant) error {
			_, err := d.Export(ctx, g)
			return err
		},
		"downgrade": func(ctx context.Context, d *driver, g *backend.Grant) error {
			_, err := d.Downgrade(ctx, g)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newTardy()
			d, other := lend(t, admin(t, s, l.option())), openURL(t, s.URL)
			g := raw.Acquire(t, d, newRequest(t))
			execute := delay(t, l, func(ctx context.Context) error { return late(ctx, d, g) })
			adopted := adopt(t, other, export(t, d, g), newRequest(t))
			execute()
			heldBy(t, other, adopted)
			release(t, other, adopted)
		})
	}
	t.Run("adopt", func(t *testing.T) {
		t.Parallel()
		l := newTardy()
		d, other := lend(t, admin(t, s, l.option())), openURL(t, s.URL)
		ticket, req := export(t, d, raw.Acquire(t, d, newRequest(t))), newRequest(t)
		execute := delay(t, l, func(ctx context.Context) error {
			_, err := d.Adopt(ctx, ticket, req)
			return err
		})
		err := d.Release(t.Context(), &backend.Grant{Request: *req})
		raw.WantIs(t, "Release of an adoption that was not executed", err, backend.ErrNotHeld)
		adopted := adopt(t, other, ticket, newRequest(t))
		execute()
		heldBy(t, other, adopted)
		release(t, other, adopted)
	})
}

// TestLateAdoptIsUndone checks an adoption that the server executes after its release. The repeated
// release finds it, and so does the next sweep.
func TestLateAdoptIsUndone(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	for name, undo := range map[string]func(*testing.T, *driver, *backend.Request){
		"release": func(t *testing.T, d *driver, req *backend.Request) {
			t.Helper()
			release(t, d, &backend.Grant{Request: *req})
		},
		"sweep": func(t *testing.T, d *driver, _ *backend.Request) {
			t.Helper()
			other := newRequest(t)
			other.Key += "/other"
			g := raw.Acquire(t, d, other)
			renews(t, d, g)
			release(t, d, g)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newTardy()
			d, other, ops := lend(t, admin(t, s, l.option())), openURL(t, s.URL), admin(t, s)
			ticket, req := export(t, other, raw.Acquire(t, other, newRequest(t))), newRequest(t)
			execute := delay(t, l, func(ctx context.Context) error {
				_, err := d.Adopt(ctx, ticket, req)
				return err
			})
			err := d.Release(t.Context(), &backend.Grant{Request: *req})
			raw.WantIs(t, "the first Release", err, backend.ErrNotHeld)
			execute()
			undo(t, d, req)
			eventually(t, "the key is removed", func() bool {
				return len(keysUnder(t, ops, d.prefix(req.Key))) == 0
			})
		})
	}
}

// TestFormerOwnerHasNothing checks the requests of an owner whose grant the same driver has
// adopted, so that the lease is the same.
func TestFormerOwnerHasNothing(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Etcd(t).URL)
	former := newRequest(t)
	g := raw.Acquire(t, d, former)
	found := must[[]record](t)(d.holders(t.Context(), g.Key))
	adopted := adopt(t, d, export(t, d, g), newRequest(t))
	_, err := d.Acquire(t.Context(), former)
	raw.WantIs(t, "Acquire", err, backend.ErrLost)
	_, err = d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew", err, backend.ErrLost)
	raw.WantIs(t, "Release", d.Release(t.Context(), g), backend.ErrNotHeld)
	raw.WantIs(t, "Break", d.Break(t.Context(), g.Key, g.Owner), backend.ErrNotHeld)
	if broken := must[bool](t)(d.removeHolder(t.Context(), g.Key, found[0])); broken {
		t.Error("a Break that began before the adoption removed the lock")
	}
	_, err = d.Export(t.Context(), g)
	raw.WantIs(t, "Export", err, backend.ErrLost)
	heldBy(t, d, adopted)
	release(t, d, adopted)
}

// TestRebuiltAdoptedGrant checks that another driver renews and releases an adopted grant, whose
// key has another name than its owner.
func TestRebuiltAdoptedGrant(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, other := openURL(t, s.URL), openURL(t, s.URL)
	adopted := adopt(t, d, export(t, d, raw.Acquire(t, d, newRequest(t))), newRequest(t))
	rebuilt := &backend.Grant{Request: adopted.Request}
	renews(t, other, rebuilt)
	release(t, other, rebuilt)
	_, err := d.Renew(t.Context(), adopted)
	raw.WantIs(t, "Renew", err, backend.ErrLost)
}

// TestAllOfAMovedGrant checks an AcquireAll and a ReleaseAll of a former owner, and a ReleaseAll of
// the adopter, together with another lock.
func TestAllOfAMovedGrant(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Etcd(t).URL)
	g, second := raw.Acquire(t, d, newRequest(t)), newRequest(t)
	second.Key += "/second"
	adopted := adopt(t, d, export(t, d, g), newRequest(t))
	_, _, err := d.AcquireAll(t.Context(), []*backend.Request{&g.Request, second})
	raw.WantIs(t, "AcquireAll of the former owner", err, backend.ErrLost)
	heldBy(t, d, adopted)
	other := raw.Acquire(t, d, second)
	errs := d.ReleaseAll(t.Context(), []*backend.Grant{g, other})
	raw.WantIs(t, "ReleaseAll of the former owner", errs[0], backend.ErrNotHeld)
	raw.WantIs(t, "ReleaseAll of the other lock", errs[1], nil)
	heldBy(t, d, adopted)
	other = raw.Acquire(t, d, second)
	for _, err := range d.ReleaseAll(t.Context(), []*backend.Grant{adopted, other}) {
		raw.WantIs(t, "ReleaseAll of the adopter", err, nil)
	}
	release(t, d, raw.Acquire(t, d, newRequest(t)))
}

// TestLossOfAnAdoptedGrant checks that the holder of an adopted grant is notified of a break, and
// of an operator's removal of the key, while another owner waits.
func TestLossOfAnAdoptedGrant(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	for name, end := range map[string]func(*testing.T, *driver, *backend.Grant){
		"break": func(t *testing.T, d *driver, g *backend.Grant) {
			t.Helper()
			if err := d.Break(t.Context(), g.Key, g.Owner); err != nil {
				t.Fatal(err)
			}
		},
		"removal": func(t *testing.T, d *driver, g *backend.Grant) {
			t.Helper()
			must[*clientv3.DeleteResponse](t)(d.client.Delete(t.Context(), d.find(g.Owner).key))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, other := openURL(t, s.URL), openURL(t, s.URL)
			waiter, adopter := newRequest(t), newRequest(t)
			waiter.TTL = time.Minute
			g := raw.Acquire(t, other, newRequest(t))
			granted := waiting(t, d, waiter, raw.Busy(t, d, waiter))
			lost := lossOf(adopter)
			adopted := adopt(t, d, export(t, other, g), adopter)
			end(t, d, adopted)
			raw.WantIs(t, "the loss", await(t, "the loss", lost), backend.ErrLost)
			release(t, d, await(t, "the waiter", granted))
		})
	}
}

// TestDowngradeForgetsALostGrant checks that the driver keeps nothing of a grant whose loss a
// Downgrade has found. The core does not release it.
func TestDowngradeForgetsALostGrant(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Etcd(t).URL)
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	if _, err := d.client.Delete(t.Context(), d.prefix(g.Key)+g.Owner); err != nil {
		t.Fatal(err)
	}
	_, err := d.Downgrade(t.Context(), g)
	raw.WantIs(t, "Downgrade", err, backend.ErrLost)
	if d.isKnown(g.Owner) {
		t.Error("the driver keeps the grant")
	}
}
