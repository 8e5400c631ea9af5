package mysqlbackend

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/batch"
	"github.com/dlock-go/dlock/backend/roster"
)

// Each change of a roster writes the whole row, so the changes of one driver would overtake each
// other. Therefore a driver makes one edition of a row at a time. The changes that arrive meanwhile
// are the next edition: they are read, written and committed together.

const (
	// maxOverdue is how long a change waits for the edition under way, which may have no answer.
	// Then a second edition begins.
	maxOverdue = 100 * time.Millisecond
	// maxEditions limits the editions of one row by one driver at a time.
	maxEditions = 2
	// abandonAfter is how long a statement goes on after a caller whose change it contains has
	// given up. The other callers need the answer, and Capabilities.Late includes this time.
	abandonAfter = time.Second
)

// change is what one caller changes in a roster.
type change struct {
	q querier
	// apply is called again if another client was faster. Its error is the answer to the caller.
	// The roster is stored also after an error, because a refused request may have left an entry.
	apply func(r *roster.Roster, row *rosterRow) error
	// removes means that the change only removes entries. A read-only server executes it for a user
	// with SUPER, like release.sql.
	removes bool
	// Simple changes also have one of these; see swap.go.
	req    *backend.Request // the change requests the lock
	leaves string           // the change removes the entry of that owner
	isMade bool             // by a statement of its own, before the rest of its edition
	// isQueued means that roster-wait.sql has made an entry.
	isQueued bool
	// hasEntry means that the refused request has an entry in the roster.
	hasEntry bool
	answer   error          // of the last call of apply
	grant    *backend.Grant // of the last call of apply, if there is one
	token    int64          // of the row with the change

	// The rest belongs to a change that had to wait. changes.mu guards abandon and left.
	end     time.Time          // of the caller's context; zero: there is none
	done    chan error         // of one element: the result
	abandon context.CancelFunc // ends the attempt that contains the change; nil: none has begun
	left    bool               // the caller has given up
}

// changes are the changes of a driver that are under way.
type changes struct {
	mu    sync.Mutex
	byKey map[string]*keyChanges
}

// keyChanges are the changes of one roster. It exists while an edition is under way.
type keyChanges struct {
	editions int           // under way
	waiting  []*change     // for the next edition
	wanted   int           // for awaitWaiting
	gathered chan struct{} // closed when so many changes wait; nil: no awaitWaiting
}

func newChanges() *changes { return &changes{byKey: make(map[string]*keyChanges)} }

// enter reports whether the caller has to make the edition of c itself, and then call leave.
// Otherwise c waits for an edition of the driver.
func (s *changes) enter(ctx context.Context, key string, c *change) bool {
	end, _ := ctx.Deadline() // not with the mutex held: ctx is the user's
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byKey[key]
	if k == nil {
		s.byKey[key] = &keyChanges{editions: 1}
		return true
	}
	c.end = end
	c.done = make(chan error, 1)
	k.waiting = append(k.waiting, c)
	k.notify()
	return false
}

// leave ends an edition of key, and returns the changes of the next one, which the caller has to
// make. There are none if no change waits.
func (s *changes) leave(key string) []*change {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byKey[key]
	if len(k.waiting) > 0 {
		return k.take()
	}
	if k.editions--; k.editions == 0 {
		delete(s.byKey, key)
	}
	return nil
}

// hurry returns the changes that have waited for too long, for a further edition, which the caller
// has to make. There are none if c does not wait any more, or if there are too many editions.
func (s *changes) hurry(key string, c *change) []*change {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byKey[key]
	if k == nil || !slices.Contains(k.waiting, c) || k.editions == maxEditions {
		return nil
	}
	k.editions++
	return k.take()
}

// take returns the changes of the next edition. changes.mu must be held.
func (k *keyChanges) take() []*change {
	n := min(len(k.waiting), batch.MaxSize)
	next := k.waiting[:n:n]
	k.waiting = k.waiting[n:]
	return next
}

// attempt returns the changes of cs whose callers have not given up, and the context for the
// statements that make them. If one of these callers gives up, the context ends after abandonAfter,
// so that no statement with its change is sent later. The next attempt lacks the change.
func (s *changes) attempt(
	ctx context.Context, cs []*change,
) (live []*change, _ context.Context, end context.CancelFunc) {
	live, end = slices.Clone(cs), func() {}
	if !slices.ContainsFunc(cs, func(c *change) bool { return c.done != nil }) {
		return live, ctx, end // of a caller that makes the change itself
	}
	ctx, end = context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	live = slices.DeleteFunc(live, func(c *change) bool { return c.left })
	for _, c := range live {
		c.abandon = end
	}
	return live, ctx, end
}

// setToken records the token of the row with the changes cs.
func setToken(cs []*change, token int64) {
	for _, c := range cs {
		c.token = token
	}
}

// giveUp takes c out of its edition. The statement under way, which may contain c, ends soon.
func (s *changes) giveUp(c *change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.left = true
	if c.abandon != nil {
		time.AfterFunc(abandonAfter, c.abandon)
	}
}

// change makes c in the roster of key and returns its answer. An error that concerns the whole
// edition means what it means for a statement. It blocks until then, or until ctx ends. After that
// the outcome is unknown: a statement that contains c may go on for abandonAfter, and on the server
// for longer.
func (d *driver) change(ctx context.Context, key string, c *change) error {
	if !d.changes.enter(ctx, key, c) {
		return d.awaitEdition(ctx, key, c)
	}
	defer func() { d.editNext(key, d.changes.leave(key)) }()
	return c.result(d.make(ctx, &edition{key: key, q: c.q, changes: []*change{c}}))
}

// result returns the answer to the caller of c. err is the error of its edition. A waiter that has
// an entry is queued, whatever error follows: a definite error would deny the entry, and no request
// would release it.
func (c *change) result(err error) error {
	if c.isMade {
		return c.answer
	}
	err = cmp.Or(err, c.answer)
	if c.isQueued && isDefinite(err) {
		return &backend.Busy{Queued: true, RetryAfter: roster.Place(c.req.TTL) / 3}
	}
	return err
}

// make makes e in one statement if possible, or reads the row and writes it again.
func (d *driver) make(ctx context.Context, e *edition) error {
	if done, err := d.trySwap(ctx, e); done || err != nil {
		return err
	}
	return d.edit(ctx, e)
}

// awaitEdition blocks until c is made, or until ctx ends. If the edition under way takes too long,
// it begins another one, so that one lost answer does not delay all changes of the row.
func (d *driver) awaitEdition(ctx context.Context, key string, c *change) error {
	overdue := time.NewTicker(maxOverdue)
	defer overdue.Stop()
	for {
		select {
		case err := <-c.done:
			return err
		case <-overdue.C:
			d.editNext(key, d.changes.hurry(key, c))
		case <-ctx.Done():
			d.changes.giveUp(c)
			return ctx.Err()
		}
	}
}

// editNext makes cs, and the changes that arrive meanwhile, in the background. Their callers wait.
// If the driver is closed, they get ErrClosed.
func (d *driver) editNext(key string, cs []*change) {
	if len(cs) == 0 {
		return
	}
	isOpen := d.background.Go(func() {
		began := time.Now()
		d.editTogether(key, cs)
		d.editGathered(key, 2*granted(cs), time.Since(began)/2)
	})
	for i := 0; !isOpen && i < len(cs); i++ {
		cs[i].done <- backend.ErrClosed
	}
}

// editTogether makes cs in one edition and answers their callers.
func (d *driver) editTogether(key string, cs []*change) {
	ctx, cancel := context.WithDeadline(d.ctx, d.lastEnd(cs))
	defer cancel()
	err := d.make(ctx, &edition{key: key, q: querierOf(cs), changes: cs})
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = batch.ErrNoAnswer // the contexts of the callers have not ended
	}
	for _, c := range cs {
		c.done <- c.result(err)
	}
}

// lastEnd returns the last end of the contexts of cs, but not later than the driver's timeout.
func (d *driver) lastEnd(cs []*change) (last time.Time) {
	timeout := time.Now().Add(d.opts.Timeout)
	for _, c := range cs {
		if c.end.IsZero() || c.end.After(timeout) {
			return timeout
		}
		if c.end.After(last) {
			last = c.end
		}
	}
	return last
}

// querierOf returns the connections for an edition of cs: those for releases if there is one.
func querierOf(cs []*change) querier {
	for _, c := range cs {
		if c.removes {
			return c.q
		}
	}
	return cs[0].q
}

const (
	// minGather and maxGather limit how long the next edition waits for callers that will soon send
	// a change: half as long as the last edition took.
	minGather, maxGather = 250 * time.Microsecond, 2 * time.Millisecond
)

// gather makes the next edition of key wait for n changes, which n waiters will soon send together.
// Four clients of 16 goroutines that contend for 8 permits change the holders 1.6 times as often
// with it.
func (d *driver) gather(key string, n int) {
	if n < 2 || !d.changes.open(key, n) {
		return
	}
	if !d.background.Go(func() { d.editGathered(key, n, minGather) }) {
		d.editNext(key, d.changes.leave(key)) // the driver is closed
	}
}

// editGathered makes the editions of key, the first of them when n changes wait or maxGather is
// over. After an edition for several callers their next changes arrive together, too.
func (d *driver) editGathered(key string, n int, bound time.Duration) {
	for {
		if n > 1 {
			d.changes.awaitWaiting(d.ctx, key, n, min(max(bound, minGather), maxGather))
		}
		cs := d.changes.leave(key)
		if len(cs) == 0 {
			return
		}
		began := time.Now()
		d.editTogether(key, cs)
		n = 2 * granted(cs) // each new holder leaves soon, and another waiter comes
		bound = time.Since(began) / 2
	}
}

// granted returns how many of cs have become holders.
func granted(cs []*change) (n int) {
	for _, c := range cs {
		if c.answer == nil && c.grant != nil {
			n++
		}
	}
	return n
}

// open begins an edition of key without a change, if there is none under way. It reports whether it
// did; the caller then has to make an edition or to call leave.
func (s *changes) open(key string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[key] != nil {
		return false
	}
	s.byKey[key] = &keyChanges{editions: 1}
	return true
}

// awaitWaiting blocks until n changes of key wait, or maxGather is over.
func (s *changes) awaitWaiting(ctx context.Context, key string, n int, bound time.Duration) {
	s.mu.Lock()
	k := s.byKey[key]
	k.wanted, k.gathered = n, make(chan struct{})
	gathered := k.gathered
	k.notify()
	s.mu.Unlock()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-gathered:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// notify ends awaitWaiting if enough changes wait. changes.mu must be held.
func (k *keyChanges) notify() {
	if k.gathered != nil && len(k.waiting) >= k.wanted {
		close(k.gathered)
		k.gathered = nil
	}
}
