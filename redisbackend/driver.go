package redisbackend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

const (
	// minTTL leaves room for three renewals, each with a round trip of some milliseconds, and for
	// the core's margin of 10 ms and 1 %.
	minTTL = 100 * time.Millisecond
	// maxBatch limits how long one script keeps the server from other requests: 250 locks take less
	// than a millisecond.
	maxBatch = 250
)

// driver implements backend.Driver. Each of its requests is one Lua script, which the server
// executes as one atomic step. There are no remains to sweep: a free lock leaves nothing on the
// server. newDriver sets all fields, and none of them changes later. All methods are safe for
// concurrent use, and block for the answers to their requests, or until ctx ends.
type driver struct {
	conn      connection
	main      *lane // acquires, inspects, breaks
	control   *lane // renews, releases
	hub       *hub  // receives the server's messages
	keys      func(name string) keys
	perScript int // the maximum number of locks in one script
	opts      Options
	caps      backend.Capabilities
}

var (
	_ backend.Driver       = (*driver)(nil)
	_ backend.Waiter       = (*driver)(nil)
	_ backend.BatchRenewer = (*driver)(nil)
	_ backend.Combiner     = (*driver)(nil)
	_ backend.Inspector    = (*driver)(nil)
	_ backend.Breaker      = (*driver)(nil)
	_ backend.Downgrader   = (*driver)(nil)
	_ backend.Mover        = (*driver)(nil)
)

// newDriver probes the server and starts listening. It blocks until the server has answered or ctx
// ends. After an error the caller must only close the returned driver.
func newDriver(ctx context.Context, conn connection, opts Options) (*driver, error) {
	d := &driver{
		conn:      conn,
		main:      conn.lane(conn.main, opts),
		control:   conn.lane(conn.control, opts),
		keys:      newKeys,
		perScript: maxBatch,
		opts:      opts,
		caps: backend.Capabilities{
			Modes:   backend.Exclusive | backend.Shared | backend.Permit,
			Fair:    backend.FairAlways,
			Fencing: backend.FenceVolatile,
			Inspect: true, List: true, Break: true, Move: true,
			MinTTL: minTTL,
			// A request stays on its connection no longer than this, so a ghost appears by then. If
			// the network delays a request further, its ghost ends with the TTL.
			Late: opts.Timeout,
		},
	}
	if d.main.cluster != nil {
		// All keys of a script must be in one slot, and few locks share a slot.
		d.keys, d.perScript = newClusterKeys, 1
	}
	d.hub = newHub(d.main, rand.Text())
	err := d.probe(ctx)
	if err == nil {
		err = d.loadMasters(ctx)
	}
	if err == nil {
		d.caps.Notify, err = d.hub.start(ctx)
	}
	return d, interpretOpening(err)
}

// Acquire implements backend.Driver. It is one script. The term counts from p.sent, which is read
// before the request is written. A request that was refused without a queue entry is forgotten,
// because no message can be about it.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	r := d.newRequest(req.Key, req.Owner)
	r.ttl, r.tail = ceilMillis(req.TTL), encodeTail(d.hub.client, req)
	p := d.hub.admit(req)
	r.attempt = p.attempt
	if r.with(&r.ttl, &r.tail, &r.attempt); req.Mode != backend.Exclusive {
		r.with(&r.ttl, &r.tail, &r.attempt, string(kind.Of(req)))
	}
	p.sent = time.Now()
	reply, err := d.main.run(d.opts.withReplicaWait(ctx, req.TTL), acquireScript, r)
	_, refused := reply.([]any)
	if err != nil && (!refused || !isUnreplicated(err)) { // a refusal needs no replicas
		return nil, d.handleFailure(ctx, req, err)
	}
	if text, ok := reply.(string); ok {
		fence, err := parseFence(text)
		if err != nil {
			return nil, err
		}
		return p.grant(req, fence, req.TTL), nil
	}
	busy, err := decodeBusy(reply, p, req.TTL)
	if err != nil {
		return nil, err
	}
	if !busy.Queued {
		d.hub.forget(req.Owner)
	}
	return nil, busy
}

// handleFailure handles an Acquire that ended with err, and returns the error for the caller. A
// lock without its replicas is released; then the whole attempt has no effect, and is
// ErrUnavailable. After an unknown outcome the acquisition stays registered, because the lock may
// be granted. If the release fails, too, the outcome is unknown, and the core repeats the release.
func (d *driver) handleFailure(ctx context.Context, req *backend.Request, err error) error {
	if isUnreplicated(err) {
		undone := d.Release(ctx, &backend.Grant{Request: *req})
		if undone == nil || errors.Is(undone, backend.ErrNotHeld) {
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
		}
		return err
	}
	if isDefinite(err) {
		d.hub.forget(req.Owner)
	}
	return err
}

// entryTerm is how long an entry of the queue lasts at most: queue.lua has the same number. The
// server does not pass the lock to a waiter that has not refreshed its entry since, so that a
// waiter that has died does not delay the others for a whole TTL. An entry with a shorter TTL lasts
// that long. A waiter refreshes its entry three times in that time.
const entryTerm = 10 * time.Second

// decodeBusy returns the answer of acquire.lua about a lock that is taken: the remaining time in
// ms, which is negative if unknown, and the meta or the owner of a holder. RetryAfter brings a
// waiter back in time to refresh its entry, which lasts for ttl at most; the message about a grant
// mostly comes earlier.
func decodeBusy(reply any, p position, ttl time.Duration) (*backend.Busy, error) {
	parts, _ := reply.([]any)
	if len(parts) != 2 {
		return nil, errUnexpected(reply)
	}
	left, ok1 := parts[0].(int64)
	holder, ok2 := parts[1].(string)
	if !ok1 || !ok2 {
		return nil, errUnexpected(reply)
	}
	busy := &backend.Busy{Holder: holder, Queued: p.attempt > 0, State: &p}
	if left >= 0 { // 0 in the last millisecond, and 0 in RetryAfter would mean unknown
		busy.RetryAfter = time.Duration(max(left, 1)) * time.Millisecond
	}
	refresh := min(ttl, entryTerm) / 3
	if busy.Queued && (left < 0 || busy.RetryAfter > refresh) {
		busy.RetryAfter = refresh
	}
	return busy, nil
}

// Renew implements backend.Driver.
func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	answer := d.RenewAll(ctx, []*backend.Grant{g})[0]
	return answer.Term, answer.Err
}

// Release implements backend.Driver. The acquisition is forgotten first, so that no later message
// about it reaches the core. The script removes a grant or a queue entry, whichever there is, and
// so needs no state of the acquisition. A repetition finds nothing, which is ErrNotHeld.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	d.hub.forget(g.Owner)
	return decodeRemoval(d.control.run(ctx, releaseScript, d.newRequest(g.Key, g.Owner).with()))
}

// decodeRemoval returns the answer of release.lua or break.lua, which is 1 if the script has
// removed something and 0 if there was nothing to remove. An err is returned as it is.
func decodeRemoval(reply any, err error) error {
	switch {
	case err != nil:
		return err
	case reply == int64(1):
		return nil
	case reply == int64(0):
		return backend.ErrNotHeld
	}
	return errUnexpected(reply)
}

// Capabilities implements backend.Driver.
func (d *driver) Capabilities() backend.Capabilities { return d.caps }

// Close implements backend.Driver. With a lent client it may wait for a silent server for
// closeTimeout. The hub ends first, because its link would connect again.
func (d *driver) Close() error {
	d.hub.close()
	err := d.conn.close()
	d.main.close()
	d.control.close()
	return err
}
