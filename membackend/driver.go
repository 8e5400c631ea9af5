package membackend

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// minTTL leaves a lease something of its term after the core's margin.
const minTTL = 50 * time.Millisecond

// minSwept is the number of locks below which none is swept.
const minSwept = 1024

var (
	_ backend.Driver       = (*driver)(nil)
	_ backend.Waiter       = (*driver)(nil)
	_ backend.BatchRenewer = (*driver)(nil)
	_ backend.Inspector    = (*driver)(nil)
	_ backend.Breaker      = (*driver)(nil)
)

// New returns a driver of the space that opts names. Drivers of one space
// contend for the same locks, as processes do. Closing it ends nothing but the
// driver. It never fails and never blocks; neither does any method of the
// driver but Wait.
func New(opts *Options) backend.Driver {
	if opts == nil {
		opts = &Options{}
	}
	s, _ := spaces.LoadOrStore(opts.Space, &space{holds: map[string]*hold{}})
	return &driver{space: s.(*space)}
}

// spaces holds every space by its name. None is ever dropped: its counter
// must go on where it stood.
var spaces sync.Map

// driver is one process of a space.
type driver struct {
	space  *space
	closed atomic.Bool
}

// space is the server.
type space struct {
	mu    sync.Mutex
	fence uint64           // the last one given, whatever the key
	holds map[string]*hold // by key; a key that somebody waits for is held
	swept int              // the number of holds for the next sweep
}

// hold is a grant in force and the queue behind it.
type hold struct {
	grant   backend.Grant
	since   time.Time
	expires time.Time
	over    chan struct{} // closed when the hold ends; made by the first *Busy
	waiting int           // how many are in Wait without a queue entry
	queue   []*entry
}

// entry is the place of a fair waiter in a queue.
type entry struct {
	req     *backend.Request
	asked   time.Time     // its last Acquire
	expires time.Time     // asked + TTL
	called  chan struct{} // closed when the entry has left the queue
}

func (d *driver) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Modes:   backend.Exclusive,
		Fair:    backend.FairOptional,
		Fencing: backend.FenceVolatile,
		Inspect: true,
		List:    true,
		Break:   true,
		Notify:  true,
		MinTTL:  minTTL,
	}
}

func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	if req.Mode != backend.Exclusive {
		return nil, fmt.Errorf("%w: mode %v", backend.ErrUnsupported, req.Mode)
	}
	s, now := d.space, backend.Began(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.current(req.Key, now)
	switch {
	case h == nil:
		s.sweep(now)
		return &s.grant(req, now, now, nil).grant, nil
	case h.grant.Owner == req.Owner:
		h.prolong(now.Add(req.TTL))
		again := h.grant
		again.Term = backend.Term{Sent: now, TTL: req.TTL}
		return &again, nil
	case req.Queue && req.Fair:
		return nil, h.busy(now, true, h.enqueue(req, now))
	}
	if h.over == nil {
		h.over = make(chan struct{})
	}
	return nil, h.busy(now, false, h)
}

func (d *driver) Renew(_ context.Context, g *backend.Grant) (backend.Term, error) {
	if err := d.usable(); err != nil {
		return backend.Term{}, err
	}
	d.space.mu.Lock()
	defer d.space.mu.Unlock()
	return d.space.renew(g, time.Now())
}

func (d *driver) RenewAll(_ context.Context, gs []*backend.Grant) []backend.Renewal {
	renewals := make([]backend.Renewal, len(gs))
	unusable := d.usable()
	d.space.mu.Lock()
	defer d.space.mu.Unlock()
	now := time.Now()
	for i, g := range gs {
		if renewals[i].Err = unusable; unusable == nil {
			renewals[i].Term, renewals[i].Err = d.space.renew(g, now)
		}
	}
	return renewals
}

func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	if err := d.usable(); err != nil {
		return err
	}
	s, now := d.space, backend.Began(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.current(g.Key, now)
	if h == nil {
		return backend.ErrNotHeld
	}
	if h.grant.Owner == g.Owner {
		s.end(h, now)
		return nil
	}
	return h.dequeue(g.Owner, now)
}

func (d *driver) Break(_ context.Context, key, owner string) error {
	if err := d.usable(); err != nil {
		return err
	}
	lost, err := d.space.breakHold(key, owner)
	if lost != nil { // outside of the mutex: it is the core's code
		lost(fmt.Errorf("%w: broken", backend.ErrLost))
	}
	return err
}

func (d *driver) Close() error {
	d.closed.Store(true)
	return nil
}

// usable tells a use after Close, which the contract rules out.
func (d *driver) usable() error {
	if d.closed.Load() {
		return fmt.Errorf("%w: the driver is closed", backend.ErrUnavailable)
	}
	return nil
}

// current returns the hold of key that is in force at now, nil if there is none. What
// has expired makes way here and not by a timer: nobody can tell the difference.
func (s *space) current(key string, now time.Time) *hold {
	h := s.holds[key]
	if h != nil && !now.Before(h.expires) {
		return s.end(h, now)
	}
	return h
}

// grant makes req the holder, for its TTL from asked on.
func (s *space) grant(req *backend.Request, asked, now time.Time, queue []*entry) *hold {
	s.fence++
	h := &hold{since: now, expires: asked.Add(req.TTL), queue: queue}
	h.grant = backend.Grant{Request: *req, Term: backend.Term{Sent: asked, TTL: req.TTL}, Fence: s.fence}
	s.holds[req.Key] = h
	return h
}

// end takes the lock from h, wakes its waiters and returns the hold of the
// first queue entry that has not expired, nil if there is none.
func (s *space) end(h *hold, now time.Time) *hold {
	if h.over != nil {
		close(h.over)
	}
	for i, e := range h.queue {
		close(e.called)
		if now.Before(e.expires) {
			return s.grant(e.req, e.asked, now, h.queue[i+1:])
		}
	}
	delete(s.holds, h.grant.Key)
	return nil
}

func (s *space) renew(g *backend.Grant, now time.Time) (backend.Term, error) {
	h := s.current(g.Key, now)
	if h == nil || h.grant.Owner != g.Owner {
		return backend.Term{}, backend.ErrLost
	}
	h.prolong(now.Add(g.TTL))
	return backend.Term{Sent: now, TTL: g.TTL}, nil
}

// prolong never shortens: a request may begin before its successor and be executed after it.
func (h *hold) prolong(until time.Time) {
	if until.After(h.expires) {
		h.expires = until
	}
}

// sweep removes what has expired when the entries have doubled since the last sweep. Names that are
// never used again would stay otherwise.
func (s *space) sweep(now time.Time) {
	if len(s.holds) < s.swept {
		return
	}
	for _, h := range s.holds {
		if !now.Before(h.expires) {
			s.end(h, now)
		}
	}
	s.swept = max(minSwept, 2*len(s.holds))
}

// breakHold returns whom to tell.
func (s *space) breakHold(key, owner string) (lost func(error), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	h := s.current(key, now)
	if h == nil || owner != "" && owner != h.grant.Owner {
		return nil, backend.ErrNotHeld
	}
	s.end(h, now)
	return h.grant.Lost, nil
}

// busy is h's no. place is where Wait will stand.
func (h *hold) busy(now time.Time, queued bool, place any) *backend.Busy {
	return &backend.Busy{
		Holder:     cmp.Or(h.grant.Meta, h.grant.Owner),
		RetryAfter: h.expires.Sub(now),
		Queued:     queued,
		State:      place,
	}
}

// enqueue gives req a place at the end of the queue, or refreshes the one that
// it has.
func (h *hold) enqueue(req *backend.Request, now time.Time) *entry {
	h.expireEntries(now)
	for _, e := range h.queue {
		if e.req.Owner == req.Owner {
			e.req, e.asked, e.expires = req, now, now.Add(req.TTL)
			return e
		}
	}
	e := &entry{req: req, asked: now, expires: now.Add(req.TTL), called: make(chan struct{})}
	h.queue = append(h.queue, e)
	return e
}

func (h *hold) dequeue(owner string, now time.Time) error {
	h.expireEntries(now)
	i := slices.IndexFunc(h.queue, func(e *entry) bool { return e.req.Owner == owner })
	if i < 0 {
		return backend.ErrNotHeld
	}
	close(h.queue[i].called)
	h.queue = slices.Delete(h.queue, i, i+1)
	return nil
}

// expireEntries drops the entries that nobody refreshed. Whoever still waits
// at one is called, and asks for a new one.
func (h *hold) expireEntries(now time.Time) {
	h.queue = slices.DeleteFunc(h.queue, func(e *entry) bool {
		expired := !now.Before(e.expires)
		if expired {
			close(e.called)
		}
		return expired
	})
}
