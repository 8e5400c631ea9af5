package redisbackend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/key"
)

const (
	// minTTL leaves room for three renewals, each with a round trip of some
	// milliseconds, and for the core's margin of 10 ms and 1 %.
	minTTL = 100 * time.Millisecond
	// renewBatch bounds how long one script keeps the server from others: 250 locks
	// are less than a millisecond.
	renewBatch = 250
)

type driver struct {
	conn    connection
	main    *lane
	control *lane
	hub     *hub
	caps    backend.Capabilities
}

var (
	_ backend.Driver       = (*driver)(nil)
	_ backend.Waiter       = (*driver)(nil)
	_ backend.BatchRenewer = (*driver)(nil)
	_ backend.Inspector    = (*driver)(nil)
	_ backend.Breaker      = (*driver)(nil)
)

// newDriver probes the server and starts listening. After an error the driver that
// it returns has only to be closed.
func newDriver(ctx context.Context, conn connection, opts Options) (*driver, error) {
	d := &driver{
		conn:    conn,
		main:    conn.lane(conn.main),
		control: conn.lane(conn.control),
		caps: backend.Capabilities{
			Modes:   backend.Exclusive,
			Fair:    backend.FairOptional,
			Fencing: backend.FenceVolatile,
			Inspect: true, List: true, Break: true,
			MinTTL: minTTL,
			// A request stays on its connection no longer than this. What the network holds
			// back beyond it ends with the TTL.
			Late: opts.Timeout,
		},
	}
	d.hub = newHub(conn.main, rand.Text(), d.main.forget)
	err := d.probe(ctx)
	if err == nil {
		d.caps.Notify, err = d.hub.start(ctx)
	}
	return d, unavailable(err)
}

// acquisition is what the driver knows of one (Key, Owner): the State of
// Grants. Its strings are handed to go-redis as pointers, which costs nothing,
// where a string in an interface is an allocation.
type acquisition struct {
	keys        keys
	lock        any // keys.lock, as go-redis wants the key that it routes by
	owner, name string
	ttl         int64 // ms
	lost        func(error)
	attempts    int64       // of the fair; guarded by the hub
	granted     chan notice // for the fair: the newest there is to know
	emptyHanded atomic.Bool // a release found nothing
}

func newAcquisition(req *backend.Request) *acquisition {
	a := &acquisition{
		keys: newKeys(req.Key), owner: req.Owner, name: req.Key,
		ttl: ceilMillis(req.TTL), lost: req.Lost,
	}
	a.lock = a.keys.lock
	if req.Fair && req.Queue {
		a.granted = make(chan notice, 1)
	}
	return a
}

// place is the State of a Busy: where a waiter stands.
type place struct {
	*acquisition
	sent    time.Time     // of the Acquire that was answered
	attempt int64         // its number, 0 for those who do not queue
	changed chan struct{} // closed since if something was published after sent; nil: unknown
}

func (d *driver) acquisition(g *backend.Grant) *acquisition {
	switch state := g.State.(type) {
	case *acquisition:
		return state
	case *place:
		return state.acquisition
	}
	return newAcquisition(&g.Request)
}

func (a *acquisition) grant(req *backend.Request, sent time.Time, fence uint64) *backend.Grant {
	return &backend.Grant{
		Request: *req,
		Term:    backend.Term{Sent: sent, TTL: time.Duration(a.ttl) * time.Millisecond},
		Fence:   fence,
		State:   a,
	}
}

// Acquire implements backend.Driver.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if req.Mode != backend.Exclusive {
		return nil, fmt.Errorf("%w: mode %s", backend.ErrUnsupported, req.Mode)
	}
	p := d.hub.admit(req)
	a := p.acquisition
	tail := d.hub.client + "\n" + req.Key + "\n" + req.Meta // not kept: held locks are many
	p.sent = time.Now()
	reply, err := d.main.run(ctx, acquireScript,
		nil, nil, 4, a.lock, &a.keys.fence, &a.keys.queue, &a.keys.waiters,
		&a.owner, &a.ttl, &tail, p.attempt)
	if err != nil {
		if definite(err) {
			d.hub.dismiss(a)
		}
		return nil, err
	}
	if text, ok := reply.(string); ok {
		fence, err := parseFence(text)
		if err != nil {
			return nil, err
		}
		return a.grant(req, p.sent, fence), nil
	}
	busy, err := decodeBusy(reply, p)
	if err != nil {
		return nil, err
	}
	if !busy.Queued {
		d.hub.dismiss(a)
	}
	return nil, busy
}

func decodeBusy(reply any, p place) (*backend.Busy, error) {
	parts, _ := reply.([]any)
	if len(parts) != 2 {
		return nil, errReply(reply)
	}
	left, ok1 := parts[0].(int64)
	holder, ok2 := parts[1].(string)
	if !ok1 || !ok2 {
		return nil, errReply(reply)
	}
	return &backend.Busy{
		Holder: holder, RetryAfter: time.Duration(max(left, 0)) * time.Millisecond,
		Queued: p.attempt > 0, State: &p,
	}, nil
}

// Renew implements backend.Driver.
func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	answer := d.RenewAll(ctx, []*backend.Grant{g})[0]
	return answer.Term, answer.Err
}

// RenewAll implements backend.BatchRenewer.
func (d *driver) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	answers := make([]backend.Renewal, len(gs))
	var wg sync.WaitGroup
	done := 0
	for batch := range slices.Chunk(gs, renewBatch) {
		part := answers[done : done+len(batch)]
		done += len(batch)
		if done == len(gs) {
			d.renewBatch(ctx, batch, part) // the last one, mostly the only one, needs no goroutine
			break
		}
		wg.Go(func() { d.renewBatch(ctx, batch, part) })
	}
	wg.Wait()
	return answers
}

func (d *driver) renewBatch(ctx context.Context, gs []*backend.Grant, answers []backend.Renewal) {
	args := make([]any, 0, 3+4*len(gs))
	args = append(args, nil, nil, 2*len(gs))
	for _, g := range gs {
		a := d.acquisition(g)
		args = append(args, a.lock, &a.keys.fence)
	}
	for _, g := range gs {
		args = append(args, g.Owner, ceilMillis(g.TTL))
	}
	sent := time.Now()
	reply, err := d.control.runAside(ctx, renewScript, args...)
	held, _ := reply.([]any)
	if err == nil && len(held) != len(gs) {
		err = errReply(reply)
	}
	for i, g := range gs {
		switch {
		case err != nil:
			answers[i].Err = err
		case held[i] != int64(1):
			answers[i].Err = backend.ErrLost
			d.hub.dismiss(d.acquisition(g))
		default:
			ttl := time.Duration(ceilMillis(g.TTL)) * time.Millisecond
			answers[i].Term = backend.Term{Sent: sent, TTL: ttl}
		}
	}
}

// Release implements backend.Driver.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	a := d.acquisition(g)
	d.hub.dismiss(a)
	reply, err := d.control.run(ctx, releaseScript,
		nil, nil, 4, a.lock, &a.keys.fence, &a.keys.queue, &a.keys.waiters, &a.owner)
	switch {
	case err != nil:
		return err
	case reply == int64(1):
		return nil
	case reply != int64(0):
		return errReply(reply)
	case d.conn.retries && !a.emptyHanded.Swap(true):
		return errRetried
	}
	return backend.ErrNotHeld
}

// errRetried leaves the outcome unknown: a client that repeats requests by itself
// may have released at its first try and have been told so at its second.
var errRetried = errors.New("nothing to release, or the client has repeated the request")

// Capabilities implements backend.Driver.
func (d *driver) Capabilities() backend.Capabilities { return d.caps }

// Close implements backend.Driver.
func (d *driver) Close() error {
	d.hub.close()
	return d.conn.close()
}

// keys are the names of what the server keeps for one lock. The part in braces
// decides where in a cluster they lie: together.
type keys struct {
	lock, fence, queue, waiters string
}

// maxKey is never exceeded by a valid name, of which each byte takes three at most:
// names are never hashed here, and can be listed by their prefix.
const maxKey = 3 * key.MaxName

// newKeys cuts the keys from one string, which saves three allocations.
func newKeys(name string) keys {
	e := key.Encode(name, maxKey)
	all := "dlock:{" + e + "}:fence" + "dlock:{" + e + "}:queue" + "dlock:{" + e + "}:waiters"
	lock := len("dlock:{}") + len(e)
	fence, queue := lock+len(":fence"), lock+len(":queue")
	return keys{
		lock: all[:lock], fence: all[:fence],
		queue: all[fence : fence+queue], waiters: all[fence+queue:],
	}
}

// parseFence reads a fence as the scripts write it, as Unix time in µs.
func parseFence(text string) (uint64, error) {
	micros, err := strconv.ParseUint(text, 10, 64)
	if err != nil || micros <= backend.FenceEpoch || micros-backend.FenceEpoch >= backend.MaxFence {
		return 0, fmt.Errorf("the fence is %.32q", text) // grant.lua gives none such
	}
	return micros - backend.FenceEpoch, nil
}

func ceilMillis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func definite(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrConflict) ||
		errors.Is(err, backend.ErrUnsupported)
}

func errReply(reply any) error {
	return fmt.Errorf("unexpected reply of type %T", reply)
}
