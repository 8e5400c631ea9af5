package mysqlbackend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// minTTL leaves room for three renewals, each with a commit of some milliseconds, and
	// for the core's margin of 10 ms and 1 %.
	minTTL = 100 * time.Millisecond
	// renewBatch bounds how many rows one statement keeps from others for a commit.
	renewBatch = 500
	// timerSlack is how much longer than told the server lets a statement wait for a row: it looks
	// once a second who has waited for too long, and on a busy machine later.
	timerSlack = 2 * time.Second
	// reserve is for how long a lock that is released is kept for the first who waits: ample for a
	// wake-up and the way back, and all that is lost where that one is no more.
	reserve = 50 * time.Millisecond
	// busyFlag is set in the insert id of a refused acquisition; fences stay far below.
	busyFlag = 1 << 62
)

type lockDriver struct {
	conn     connection
	opts     Options
	text     *statements
	caps     backend.Capabilities
	maxKey   int // bytes of a name that the table takes
	queue    *queue
	sweeping atomic.Bool   // a sweep is under way
	locked   chan struct{} // has a value for each connection that waits for locked rows

	behind sync.WaitGroup // what runs behind callers
	life   context.Context
	end    context.CancelFunc
}

var (
	_ backend.Driver       = (*lockDriver)(nil)
	_ backend.Waiter       = (*lockDriver)(nil)
	_ backend.BatchRenewer = (*lockDriver)(nil)
	_ backend.Inspector    = (*lockDriver)(nil)
	_ backend.Breaker      = (*lockDriver)(nil)
)

// newDriver probes the server. After an error the driver that it returns has only to be
// closed.
func newDriver(ctx context.Context, conn connection, opts Options) (*lockDriver, error) {
	d := &lockDriver{conn: conn, opts: opts, text: newStatements(opts.Table), locked: make(chan struct{}, maxLocked)}
	d.life, d.end = context.WithCancel(context.Background())
	s, err := d.probe(ctx)
	d.queue = newQueue(conn, &s, opts.Table)
	d.caps = backend.Capabilities{
		Modes:   backend.Exclusive,
		Fencing: backend.FenceDurable,
		Inspect: true, List: true, Break: true,
		Notify: opts.Notify == NotifyLock && conn.places > 0,
		MinTTL: minTTL,
		Late:   time.Duration(s.lockWait)*time.Second + timerSlack,
	}
	return d, err
}

// Acquire implements backend.Driver.
func (d *lockDriver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if req.Mode != backend.Exclusive {
		return nil, fmt.Errorf("%w: mode %s", backend.ErrUnsupported, req.Mode)
	}
	if len(req.Key) > d.maxKey { // a server that is not strict would cut it
		return nil, fmt.Errorf("%w: %d bytes with the prefix, the table takes %d", backend.ErrInvalidName, len(req.Key), d.maxKey)
	}
	ttl := ceilMicros(req.TTL)
	args := acquireArgs(req, ttl, d.queue.isFirst(req.Owner))
	sent := time.Now()
	out, err := exec(ctx, d.conn.main, d.text.acquire, args...)
	switch {
	case err != nil:
		return nil, err
	case out.id >= busyFlag:
		return nil, d.busy(req, time.Duration(out.id-busyFlag)*time.Microsecond)
	case out.id <= 0 || out.id >= backend.MaxFence:
		return nil, fmt.Errorf("the fence is %d", out.id) // acquire.sql gives none such
	}
	d.passOn(req.Owner)
	d.sweepSometimes()
	return &backend.Grant{
		Request: *req, Term: backend.Term{Sent: sent, TTL: time.Duration(ttl) * time.Microsecond}, Fence: uint64(out.id),
	}, nil
}

// acquireArgs are the parameters of acquire.sql.
func acquireArgs(req *backend.Request, ttl int64, isFirst bool) []any {
	var name, owner, meta, first any = []byte(req.Key), []byte(req.Owner), []byte(req.Meta), isFirst
	return []any{name, owner, ttl, meta, first, owner, owner, owner, owner, meta, owner, ttl}
}

// busy is the answer to a request that was refused. One that would wait is enlisted: so the core will
// release it when it has waited enough, and with it the place that Wait may have left.
func (d *lockDriver) busy(req *backend.Request, left time.Duration) *backend.Busy {
	b := &backend.Busy{RetryAfter: left, Queued: req.Queue && d.caps.Notify}
	if b.Queued {
		d.queue.enlist(req.Owner)
	}
	return b
}

// Renew implements backend.Driver.
func (d *lockDriver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	return d.renew(ctx, d.conn.control, g)
}

func (d *lockDriver) renew(ctx context.Context, q querier, g *backend.Grant) (backend.Term, error) {
	micros := ceilMicros(g.TTL)
	sent := time.Now()
	out, err := exec(ctx, q, d.text.renew, micros, []byte(g.Key), []byte(g.Owner))
	switch {
	case err != nil:
		return backend.Term{}, err
	case out.id == 0:
		return backend.Term{}, backend.ErrLost
	}
	return termOf(sent, micros), nil
}

func termOf(sent time.Time, micros int64) backend.Term {
	return backend.Term{Sent: sent, TTL: time.Duration(micros) * time.Microsecond}
}

// RenewAll implements backend.BatchRenewer.
func (d *lockDriver) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	byTTL := make(map[time.Duration][]int)
	for i, g := range gs {
		byTTL[g.TTL] = append(byTTL[g.TTL], i)
	}
	answers := make([]backend.Renewal, len(gs))
	var wg sync.WaitGroup
	for _, indices := range byTTL {
		for batch := range slices.Chunk(indices, renewBatch) {
			wg.Go(func() { d.renewBatch(ctx, gs, batch, answers) })
		}
	}
	wg.Wait()
	return answers
}

// renewPauses are the pauses before each try to renew the rows that were locked before. Another client locks a
// row for the time of a commit.
var renewPauses = [...]time.Duration{0, time.Millisecond, 4 * time.Millisecond, 16 * time.Millisecond}

// renewBatch renews those of gs that stand at indices, all of the same TTL. For a row that is locked it waits at the
// end, and not for long: until then the caller misses the answers for the other rows.
func (d *lockDriver) renewBatch(ctx context.Context, gs []*backend.Grant, indices []int, answers []backend.Renewal) {
	if len(indices) == 1 {
		a := &answers[indices[0]]
		a.Term, a.Err = d.Renew(ctx, gs[indices[0]])
		return
	}
	for _, p := range renewPauses {
		if p > 0 && pause(ctx, p) != nil {
			break
		}
		if indices = d.renewFree(ctx, gs, indices, answers); len(indices) == 0 {
			return
		}
	}
	d.renewLocked(ctx, gs, indices, answers)
}

// mostLocked bounds how long a batch waits for the rows that were locked at each try.
const mostLocked = time.Second

// maxLocked bounds how many connections of a driver wait for locked rows. A commit of the server that stalls can
// keep thousands of rows locked. Half of the connections of a URL stay free for acquirers.
const maxLocked = mainConns / 2

// renewLocked renews rows one by one that were locked at each try, or do not exist. Under contention a row
// passes from one statement to the next and is never seen unlocked: only a statement that waits for it
// has its turn. The bound leaves the other answers of the batch half of the time in which they matter.
func (d *lockDriver) renewLocked(ctx context.Context, gs []*backend.Grant, indices []int, answers []backend.Renewal) {
	bound := mostLocked
	if deadline, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	next := make(chan int, len(indices))
	for _, i := range indices {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for range min(maxLocked, len(indices)) {
		wg.Go(func() { d.renewWaiting(ctx, gs, next, answers) })
	}
	wg.Wait()
	for i := range next {
		answers[i].Err = fmt.Errorf("%w: no connection was free to wait for the row", backend.ErrUnavailable)
	}
}

// renewWaiting renews the next grants until there are none, or a statement was not answered.
func (d *lockDriver) renewWaiting(ctx context.Context, gs []*backend.Grant, next <-chan int, answers []backend.Renewal) {
	select {
	case d.locked <- struct{}{}:
		defer func() { <-d.locked }()
	case <-ctx.Done():
		return
	}
	q, discard, err := d.conn.impatient(ctx)
	if err != nil {
		return
	}
	defer discard()
	for i := range next {
		a := &answers[i]
		a.Term, a.Err = d.renew(ctx, q, gs[i])
		if a.Err != nil && !isReply(a.Err) && !errors.Is(a.Err, backend.ErrLost) {
			return
		}
	}
}

// renewFree renews those whose rows are not locked now, and returns the indices of the others.
func (d *lockDriver) renewFree(
	ctx context.Context, gs []*backend.Grant, indices []int, answers []backend.Renewal,
) (locked []int) {
	names, pairs := identify(gs, indices)
	micros := ceilMicros(gs[indices[0]].TTL)
	sent := time.Now()
	out, err := exec(ctx, d.conn.control, withNames(d.text.renewFree, len(indices)),
		slices.Concat(names, []any{len(names), micros}, pairs)...)
	var holders map[string]holder
	if err == nil && out.changed != int64(len(indices)) {
		holders, err = d.holders(ctx, names...)
	}
	for _, i := range indices {
		h, found := holders[gs[i].Key]
		switch {
		case err != nil:
			answers[i].Err = err
		case holders != nil && (!found || h.has(gs[i]) && (out.id == 0 || h.end < out.id)):
			locked = append(locked, i)
		case holders != nil && !h.has(gs[i]):
			answers[i].Err = backend.ErrLost
		default:
			answers[i].Term = termOf(sent, micros)
		}
	}
	return locked
}

// identify returns the names, and each name with its owner, as parameters.
func identify(gs []*backend.Grant, indices []int) (names, pairs []any) {
	for _, i := range indices {
		name := []byte(gs[i].Key)
		names, pairs = append(names, name), append(pairs, name, []byte(gs[i].Owner))
	}
	return names, pairs
}

// holder is a row of holders.sql.
type holder struct {
	owner string
	live  bool  // its term has not ended
	end   int64 // of its term, as renewFreeSQL returns it
}

// has reports whether g is still held.
func (h *holder) has(g *backend.Grant) bool { return h.live && h.owner == g.Owner }

// holders returns the present owners by name.
func (d *lockDriver) holders(ctx context.Context, names ...any) (map[string]holder, error) {
	holders := make(map[string]holder, len(names))
	_, err := query(ctx, d.conn.control, func(rows *sql.Rows) (_ any, err error) {
		var name string
		var h holder
		err = rows.Scan(&name, &h.owner, &h.live, &h.end)
		holders[name] = h
		return nil, err
	}, withNames(d.text.holders, len(names)), names...)
	return holders, err
}

// Release implements backend.Driver.
func (d *lockDriver) Release(ctx context.Context, g *backend.Grant) error {
	p, gaveUp := d.queue.strike(g.Owner)
	switch {
	case p == nil:
	case p.left != nil: // it holds, and the signal is being given away
		gaveUp = false
		awaitLeaving(ctx, p)
	case p.holds:
		return d.handOver(ctx, p, g)
	default:
		d.goBehind(func(ctx context.Context) { d.queue.giveBack(ctx, p) })
	}
	err := d.remove(ctx, d.text.release, g.Key, []byte(g.Owner))
	if gaveUp && errors.Is(err, backend.ErrNotHeld) {
		return nil
	}
	return err
}

// handOver releases g by the connection that has the signal of its name. A KILL may hit that which was meant for the end
// of its wait, and MariaDB then may answer as if there were nothing to release: so whatever is not a success is asked
// again, by another connection.
func (d *lockDriver) handOver(ctx context.Context, p *place, g *backend.Grant) error {
	out, err := exec(ctx, p.conn, d.text.handOver, p.first, p.first, reserve.Microseconds(), []byte(g.Key), []byte(g.Owner))
	if err == nil && out.changed == 1 {
		p.first = "" // the next has it
		d.queue.giveBack(ctx, p)
		return nil
	}
	d.queue.discard(p)
	if err != nil && !replied(err, errInterrupted) {
		return err
	}
	again := d.remove(ctx, d.text.release, g.Key, []byte(g.Owner))
	if err != nil && errors.Is(again, backend.ErrNotHeld) {
		return err // it may have been done
	}
	return again
}

// Break implements backend.Breaker.
func (d *lockDriver) Break(ctx context.Context, name, owner string) error {
	return d.remove(ctx, d.text.breakLock, name, []byte(owner), []byte(owner))
}

// remove makes a lock free, and wakes the first who waits for it.
func (d *lockDriver) remove(ctx context.Context, text, name string, owner ...any) error {
	signal := d.queue.signal(name)
	args := append([]any{signal, reserve.Microseconds(), []byte(name)}, owner...)
	out, err := exec(ctx, d.conn.control, text, args...)
	switch {
	case err != nil:
		return err
	case out.changed == 0:
		return backend.ErrNotHeld
	case out.id > 0 && d.caps.Notify && !d.queue.looks:
		d.goBehind(func(ctx context.Context) { d.wake(ctx, out.id) })
	}
	return nil
}

// Capabilities implements backend.Driver.
func (d *lockDriver) Capabilities() backend.Capabilities { return d.caps }

// Close implements backend.Driver.
func (d *lockDriver) Close() error {
	d.end()
	d.behind.Wait()
	d.queue.close()
	return d.conn.close()
}

// goBehind runs fn behind its caller, for no longer than a request may take, and not after Close.
func (d *lockDriver) goBehind(fn func(context.Context)) {
	d.behind.Go(func() {
		ctx, cancel := context.WithTimeout(d.life, d.opts.Timeout)
		defer cancel()
		fn(ctx)
	})
}

func ceilMicros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }
