package memcachedbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
)

const (
	// minTTL is the server's granularity.
	minTTL = time.Second
	// maxTTL leaves room for the seconds that expiry adds. The server takes more than 30 days for a
	// time since 1970, not for a duration.
	maxTTL = 30*24*time.Hour - tickError
)

// driver implements backend.Driver for memcached servers that share the names among them.
//
// The driver keeps no acquisitions. A lock is one value on one server, and each request reads the
// owner from that value. The server reports no loss. The core's repeated Release removes the ghost
// of a late add, and the State of a grant distinguishes the two: see isGrants. The driver keeps
// only connections and the last fences.
type driver struct {
	servers []*server
	list    string // identifies the list of servers in each record
	fences  fences
	caps    backend.Capabilities
}

var (
	_ backend.Driver       = (*driver)(nil)
	_ backend.BatchRenewer = (*driver)(nil)
	_ backend.Inspector    = (*driver)(nil)
	_ backend.Breaker      = (*driver)(nil)
	_ backend.Mover        = (*driver)(nil)
)

// newDriver makes a driver for normalised servers. It does not connect.
func newDriver(servers []string, opts Options) *driver {
	d := &driver{list: listID(servers), caps: backend.Capabilities{
		Modes:   backend.Exclusive,
		Fencing: backend.FenceVolatile,
		Inspect: true, Break: true, Move: true,
		MinTTL: minTTL, MaxTTL: maxTTL,
		// A connection is closed when its call ends without an answer, so only the network can
		// still delay the request. A request that arrives even later ends with its TTL.
		Late: opts.Timeout,
	}}
	for _, addr := range servers {
		d.servers = append(d.servers, newServer(addr, &opts))
	}
	return d
}

// Acquire implements backend.Driver.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if req.Mode != backend.Exclusive {
		return nil, unsupported(req.Mode)
	}
	var g *backend.Grant
	// Not in control: crowds of acquisitions must not delay renewals and releases.
	err := d.server(req.Key).main.do(ctx, func(c *memcache.Client) (err error) {
		g, err = d.attempt(c, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// attempt adds the lock's value and then, while it holds the lock, draws the fence.
//
// The value already contains the fence that the driver foresees. If the counter returns exactly
// this fence, no other client has drawn a fence in the meantime, and two requests suffice. Without
// the forecast an uncontended pair of Lock and Unlock takes 45 % longer.
// Otherwise attempt writes the value again, with the drawn fence. This fails if the lock is not
// held any more: a later holder may then have drawn a lower fence.
//
// attempt sends nothing if the clock is wrong: its seed would make the counter useless for all
// clients.
func (d *driver) attempt(c *memcache.Client, req *backend.Request) (*backend.Grant, error) {
	if !isFence(seedNow()) {
		return nil, errClock
	}
	k := newKeys(req.Key)
	foreseen := d.fences.foresee(req.Key)
	sent := time.Now()
	r := newRecord(req, d.list, foreseen.fence, sent)
	err := c.Add(&memcache.Item{
		Key: k.lock, Value: r.encode(), Expiration: expiry(req.TTL),
	})
	repeated := errors.Is(err, memcache.ErrNotStored)
	if repeated {
		r, err = d.checkHolder(c, k.lock, req)
	}
	if err != nil {
		return nil, err
	}
	g := &backend.Grant{
		Request: *req, Term: backend.Term{Sent: sent, TTL: grantedTTL(req.TTL)},
		State: r.since.UnixMicro(),
	}
	fence, asForeseen, err := d.draw(c, k.counter, req.Key, foreseen)
	if err == nil && (repeated || !asForeseen) {
		g.Term.Sent, err = rewrite(c, k.lock, isGrants(g), storeFence(fence, req.TTL))
	}
	if err != nil {
		return nil, abandon(c, k.lock, req, err)
	}
	g.Fence = fence
	return g, nil
}

// checkHolder reads the holder after a refused add. It returns its record if req is the holder: an
// earlier request of req was executed, but its answer was lost. Otherwise it returns *Busy. A
// holder with another list of servers is an error, because two lists exclude each other only for
// some names.
func (d *driver) checkHolder(
	c *memcache.Client, lock string, req *backend.Request,
) (*record, error) {
	item, err := c.Get(lock)
	if errors.Is(err, memcache.ErrCacheMiss) {
		return nil, &backend.Busy{RetryAfter: time.Millisecond} // freed since the add
	}
	if err != nil {
		return nil, err
	}
	r, ok := decode(item.Value)
	switch {
	case !ok || r.name != req.Key:
		return nil, errForeign
	case r.list != d.list:
		return nil, fmt.Errorf("%w: held by %s", errOtherList, cmp.Or(r.meta, r.owner))
	case r.owner != req.Owner:
		return nil, &backend.Busy{Holder: cmp.Or(r.meta, r.owner), Fence: r.fence}
	}
	return r, nil
}

// abandon returns the error of an attempt that failed with err after it had the lock. The outcome
// is unknown unless nothing of the attempt is left. If the counter has a value of another program,
// repetitions fail as well. abandon then removes the lock, and the error is a definite ErrConflict.
func abandon(c *memcache.Client, lock string, req *backend.Request, err error) error {
	if errors.Is(err, errGone) {
		return fmt.Errorf("%w: it vanished as soon as it was granted", backend.ErrLost)
	}
	if isForeignCounter(err) {
		if _, failed := rewrite(c, lock, ownedBy(req.Owner), remove); failed == nil {
			return fmt.Errorf("%w: %w", errForeign, err)
		}
	}
	return incompleteError{err}
}

// Renew implements backend.Driver.
func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	var answer backend.Renewal
	err := d.server(g.Key).renewals.do(ctx, func(c *memcache.Client) error {
		answer = renew(c, g)
		return answer.Err
	})
	return answer.Term, renewalError(err)
}

// Release implements backend.Driver.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	return d.removeLock(ctx, d.server(g.Key).control, g.Key, ownedBy(g.Owner))
}

// removeLock removes the lock of name if its record is owned, and returns ErrNotHeld otherwise.
func (d *driver) removeLock(
	ctx context.Context, l lane, name string, owned func(*record) bool,
) error {
	err := l.do(ctx, func(c *memcache.Client) error {
		_, err := rewrite(c, newKeys(name).lock, owned, remove)
		return err
	})
	if errors.Is(err, errGone) {
		return fmt.Errorf("%w: %w", backend.ErrNotHeld, err)
	}
	return err
}

// Capabilities implements backend.Driver.
func (d *driver) Capabilities() backend.Capabilities { return d.caps }

// Close implements backend.Driver.
func (d *driver) Close() error {
	var errs []error
	for _, s := range d.servers {
		errs = append(errs, s.pool.close())
	}
	return errors.Join(errs...)
}
