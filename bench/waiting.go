package bench

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend/measure"
)

// usage is the memory and the goroutines of this process.
type usage struct{ bytes, goroutines float64 }

func measureUsage() usage {
	var m runtime.MemStats
	runtime.GC()
	// Pools keep their garbage for one more collection.
	runtime.GC()
	runtime.ReadMemStats(&m)
	return usage{float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())}
}

// since sets the cost of each of n things, from the growth since before.
func (u usage) since(before usage, n int, to *Result) {
	to.Bytes = new((u.bytes - before.bytes) / float64(n))
	to.Goroutines = new((u.goroutines - before.goroutines) / float64(n))
}

// waiting runs W5. It measures the subjects one after the other, because most
// figures are counts, not times.
func waiting(ctx context.Context, r *run) {
	for _, s := range r.subjects {
		if ctx.Err() != nil {
			return
		}
		r.step(s, 0)
		row := Result{
			Workload: r.workload, Subject: s.Name, Contenders: r.Waiters, Processes: 2, Locks: 1,
		}
		if err := r.wait(ctx, s, &row); err != nil {
			r.fail(row, err)
		} else if row.Operations > 0 {
			r.results = append(r.results, row)
		}
		r.step(s, r.Duration)
	}
}

func (r *run) wait(ctx context.Context, s Subject, row *Result) error {
	meter, err := newMeter(ctx, s)
	if err != nil {
		return err
	}
	defer meter.Close()
	defer meter.awaitQuiet(ctx)
	name := same(r.names(s, "waiting", 1)[0], 1)
	holder, err := newCrew(ctx, s.Open, Settings{}, exclusive, name)
	if err != nil {
		return err
	}
	defer holder.close()
	lease, err := holder.contenders[0].mutexes[0].Lock(ctx)
	if err != nil {
		return err
	}
	alone := meter.read(ctx)
	queue, err := newCrew(ctx, s.Open, Settings{Handoff: s.Handoff}, exclusive,
		same(name[0][0], r.Waiters))
	if err != nil {
		return err
	}
	defer queue.close()
	row.Handoff = s.Handoff
	before := measureUsage()
	done := queue.enqueue(ctx)
	meter.awaitQuiet(ctx) // each waiter may need a connection
	r.watch(ctx, row, meter, alone, before)
	freed := time.Now()
	if err := lease.Unlock(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if _, err := done(); err != nil || ctx.Err() != nil {
		return err
	}
	row.Drain, row.Operations = time.Since(freed), int64(r.Waiters)
	return nil
}

// settle is how long waiters have until they wait: on some servers they first enter a queue.
const settle = 250 * time.Millisecond

// enqueue lets all contenders wait for a lock that is held, and returns when they wait. done waits
// until each has had its turn, and returns the times at which each had the lock.
func (c *localCrew) enqueue(ctx context.Context) (done func() ([]int64, error)) {
	var begun atomic.Int64
	all, ended := make(chan struct{}), make(chan error, 1)
	granted, errs := make([]int64, len(c.contenders)), make([]error, len(c.contenders))
	endless := context.WithoutCancel(ctx)
	go func() {
		ended <- together(ctx, longestWait, len(c.contenders), func(i int) {
			if begun.Add(1) == int64(len(errs)) {
				close(all)
			}
			granted[i], errs[i] = c.contenders[i].visit(endless)
		})
	}()
	<-all
	pause(ctx, settle)
	return func() ([]int64, error) {
		if err := <-ended; err != nil {
			return nil, err // the contenders may still be at work
		}
		return granted, firstOf(errs)
	}
}

// watch measures while nothing is locked or unlocked.
func (r *run) watch(
	ctx context.Context, row *Result, m *meter, alone measure.Counts, before usage,
) {
	n := row.Contenders
	if row.Locks > 1 {
		n = row.Locks
	}
	measureUsage().since(before, n, row)
	start, from := time.Now(), m.read(ctx)
	pause(ctx, r.holdTimeOf(row))
	row.Elapsed = time.Since(start)
	to := m.read(ctx)
	row.Commands = m.commands(from, to, row.Elapsed.Seconds())
	row.Connections = m.connections(alone, to)
}

// holding runs W6.
func holding(ctx context.Context, r *run) {
	for _, s := range r.subjects {
		if ctx.Err() != nil {
			return
		}
		r.step(s, 0)
		row := Result{
			Workload: r.workload, Subject: s.Name, Contenders: manyWorkers, Processes: 1,
			Locks: r.Locks, TTL: r.holdTTL(),
		}
		if err := r.hold(ctx, s, &row); err != nil {
			r.fail(row, err)
		} else if row.Operations > 0 {
			r.results = append(r.results, row)
		}
		r.step(s, r.holdTime())
	}
}

// The TTL of held locks is between these limits. It is chosen so that each lock is renewed
// at least once during the measurement. A shorter TTL would show the load of the machine
// more than the cost of the lock.
const leastHoldTTL, mostHoldTTL = 6 * time.Second, 30 * time.Second

func (r *run) holdTTL() time.Duration {
	return min(max(3*r.Duration, leastHoldTTL), mostHoldTTL)
}

func (r *run) holdTime() time.Duration { return max(r.Duration, r.holdTTL()/3) }

func (r *run) holdTimeOf(row *Result) time.Duration {
	if row.Locks > 1 {
		return r.holdTime()
	}
	return r.Duration
}

func (r *run) hold(ctx context.Context, s Subject, row *Result) error {
	meter, err := newMeter(ctx, s)
	if err != nil {
		return err
	}
	defer meter.Close()
	defer meter.awaitQuiet(ctx)
	alone := meter.read(ctx)
	names := deal(r.names(s, "many", r.Locks), manyWorkers)
	crew, err := newCrew(ctx, s.Open, Settings{TTL: row.TTL}, exclusive, names)
	if err != nil {
		return err
	}
	defer crew.close()
	leases := make([][]Lease, manyWorkers)
	before := measureUsage()
	if err := crew.lockAll(ctx, leases); err != nil {
		return err
	}
	r.watch(ctx, row, meter, alone, before)
	lost, err := unlockAll(ctx, leases)
	if err != nil || ctx.Err() != nil {
		return err
	}
	row.Lost, row.Operations = new(lost), int64(r.Locks)
	return nil
}

// lockAll lets each contender lock all its names.
func (c *localCrew) lockAll(ctx context.Context, leases [][]Lease) error {
	errs := make([]error, len(c.contenders))
	endless := context.WithoutCancel(ctx)
	err := together(ctx, longestWait, len(c.contenders), func(i int) {
		for _, m := range c.contenders[i].mutexes {
			if ctx.Err() != nil {
				return
			}
			lease, err := m.Lock(endless)
			if err != nil {
				errs[i] = err
				return
			}
			leases[i] = append(leases[i], lease)
		}
	})
	return errors.Join(err, firstOf(errs))
}

// unlockAll unlocks all leases and returns the number of lost locks.
func unlockAll(ctx context.Context, leases [][]Lease) (int64, error) {
	var lost atomic.Int64
	err := together(ctx, longestWait, len(leases), func(i int) {
		for _, lease := range leases[i] {
			err := lease.Unlock(context.WithoutCancel(ctx))
			if err != nil && !errors.Is(err, dlock.ErrUncertain) {
				lost.Add(1)
			}
		}
	})
	return lost.Load(), err
}
