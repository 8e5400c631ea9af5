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
	conn      connection
	main      *lane
	control   *lane
	hub       *hub
	scripts   *scripts
	keys      func(name string) keys
	perScript int // how many locks go into one script
	opts      Options
	caps      backend.Capabilities
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
		conn:      conn,
		main:      conn.lane(conn.main, opts),
		control:   conn.lane(conn.control, opts),
		scripts:   singleScripts,
		keys:      newKeys,
		perScript: renewBatch,
		opts:      opts,
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
	if d.main.cluster != nil { // a script's keys are all on one node, and few locks are in one slot
		d.scripts, d.keys, d.perScript = clusterScripts, newClusterKeys, 1
	}
	d.hub = newHub(d.main, rand.Text())
	err := d.probe(ctx)
	if err == nil {
		d.caps.Notify, err = d.hub.start(ctx)
	}
	return d, unavailable(err)
}

// acquisition is what the hub knows of one (Key, Owner). Held locks are many: their keys are not kept, but
// made of the name again.
type acquisition struct {
	name    string
	lost    func(error)
	granted chan notice   // of a fair waiter: the newest message
	fence   atomic.Uint64 // of the latest grant that was answered or noticed; 0: none
}

func newAcquisition(req *backend.Request) *acquisition {
	a := &acquisition{name: req.Key, lost: req.Lost}
	if req.Fair && req.Queue {
		a.granted = make(chan notice, 1)
	}
	return a
}

// place is the State of a Busy: where a waiter stands.
type place struct {
	*acquisition
	lock    string        // its key
	sent    time.Time     // of the Acquire that was answered
	attempt int64         // its number, 0 for those who do not queue
	changed chan struct{} // closed since if something was published after sent; nil: unknown
}

// grant returns the grant that the server has given, and remembers which it is.
func (p *place) grant(req *backend.Request, fence uint64) *backend.Grant {
	p.fence.Store(fence)
	return &backend.Grant{Request: *req, Term: term(req, p.sent), Fence: fence}
}

func term(req *backend.Request, sent time.Time) backend.Term {
	return backend.Term{Sent: sent, TTL: time.Duration(ceilMillis(req.TTL)) * time.Millisecond}
}

// Acquire implements backend.Driver.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if req.Mode != backend.Exclusive {
		return nil, fmt.Errorf("%w: mode %s", backend.ErrUnsupported, req.Mode)
	}
	r := d.newRequest(req.Key, req.Owner)
	r.ttl, r.tail = ceilMillis(req.TTL), d.hub.client+"\n"+req.Key+"\n"+req.Meta
	p := d.hub.admit(req, r.keys.lock)
	p.sent = time.Now()
	reply, err := d.main.run(d.opts.proven(ctx, req.TTL), d.scripts.acquire,
		r.with(&r.ttl, &r.tail, p.attempt))
	if err != nil {
		return nil, d.refused(ctx, req, err)
	}
	if text, ok := reply.(string); ok {
		fence, err := parseFence(text)
		if err != nil {
			return nil, err
		}
		return p.grant(req, fence), nil
	}
	busy, err := decodeBusy(reply, p)
	if err != nil {
		return nil, err
	}
	if !busy.Queued {
		d.hub.dismiss(req.Owner)
	}
	return nil, busy
}

// refused looks after an acquisition that was answered with an error. A lock without its replicas
// is undone: then nothing has been done.
func (d *driver) refused(ctx context.Context, req *backend.Request, err error) error {
	if _, ok := errors.AsType[*replicaError](err); ok {
		undone := d.Release(ctx, &backend.Grant{Request: *req})
		if undone == nil || errors.Is(undone, backend.ErrNotHeld) {
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
		}
		return err
	}
	if definite(err) {
		d.hub.dismiss(req.Owner)
	}
	return err
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

func (d *driver) renewBatch(ctx context.Context, gs []*backend.Grant, renewals []backend.Renewal) {
	calls, ttl := d.renewCalls(gs)
	sent := time.Now()
	for i, a := range d.control.runEach(d.opts.proven(ctx, ttl), calls) {
		first := i * d.perScript
		last := min(first+d.perScript, len(gs))
		d.judge(gs[first:last], a, sent, renewals[first:last])
	}
}

// renewCalls returns the arguments of the scripts that renew gs, and the shortest of their terms.
func (d *driver) renewCalls(gs []*backend.Grant) (calls []call, ttl time.Duration) {
	ttl = gs[0].TTL
	for part := range slices.Chunk(gs, d.perScript) {
		args := make([]any, 0, 3+4*len(part))
		args = append(args, nil, nil, len(part))
		locks := make([]string, len(part))
		for i, g := range part {
			locks[i] = lockKey(g.Key)
			args = append(args, &locks[i])
		}
		for _, g := range part {
			args = append(args, &g.Owner, backend.FenceEpoch+g.Fence, ceilMillis(g.TTL))
			ttl = min(ttl, g.TTL)
		}
		calls = append(calls, call{d.scripts.renew, args, locks[0]})
	}
	return calls, ttl
}

// judge reads the answer of one script.
func (d *driver) judge(gs []*backend.Grant, a answer, sent time.Time, renewals []backend.Renewal) {
	held, _ := a.Reply.([]any)
	if a.Err == nil && len(held) != len(gs) {
		a.Err = errReply(a.Reply)
	}
	for i, g := range gs {
		switch {
		case a.Err != nil:
			renewals[i].Err = a.Err
		case held[i] != int64(1):
			renewals[i].Err = backend.ErrLost
			d.hub.dismiss(g.Owner)
		default:
			renewals[i].Term = term(&g.Request, sent)
		}
	}
}

// Release implements backend.Driver.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	d.hub.dismiss(g.Owner)
	reply, err := d.control.run(ctx, d.scripts.release, d.newRequest(g.Key, g.Owner).with())
	switch {
	case err != nil:
		return err
	case reply == int64(1):
		return nil
	case reply != int64(0):
		return errReply(reply)
	}
	return backend.ErrNotHeld
}

// Capabilities implements backend.Driver.
func (d *driver) Capabilities() backend.Capabilities { return d.caps }

// Close implements backend.Driver.
func (d *driver) Close() error {
	d.hub.close()
	err := d.conn.close()
	d.main.close()
	d.control.close()
	return err
}

// request is what is sent of one acquisition: the arguments of a script, and what they point to.
// go-redis takes a pointer to a string as it is, where a string in an interface is an allocation.
type request struct {
	keys    keys
	owner   string
	ttl     int64 // ms
	tail    string
	args    []any // two blanks, numkeys, the keys and the arguments
	array   [11]any
	numKeys guardedNumKeys
	inPlace inPlace // the context of a request that is made in place
}

func (d *driver) newRequest(name, owner string) *request {
	r := &request{keys: d.keys(name), owner: owner}
	r.array = [...]any{nil, nil, &r.numKeys, &r.keys.lock, &r.keys.fence, &r.keys.queue, &r.keys.waiters, &r.owner, nil, nil, nil}
	return r
}

// with adds arguments behind the owner.
func (r *request) with(more ...any) *request {
	r.args = r.array[:8+copy(r.array[8:], more)]
	return r
}

// until returns the arguments of a request that is not sent after the end of ctx.
func (r *request) until(ctx context.Context) []any {
	r.numKeys.ctx = ctx
	return r.args
}

// guardedNumKeys is the number of keys of a script, 4. go-redis needs its text when it writes the
// command, after it has prepared a connection in several round trips, in which it heeds only the
// deadline of a context, if that. The text of an ended context is its error, so nothing is sent.
type guardedNumKeys struct {
	ctx context.Context // nil: does not end
}

var numKeys = []byte("4")

// MarshalBinary implements encoding.BinaryMarshaler.
func (n *guardedNumKeys) MarshalBinary() ([]byte, error) {
	if n.ctx != nil && n.ctx.Err() != nil {
		return nil, n.ctx.Err()
	}
	return numKeys, nil
}

// String is for hooks of a lent client.
func (n *guardedNumKeys) String() string { return string(numKeys) }

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
