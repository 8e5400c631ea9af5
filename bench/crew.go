package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend/measure"
)

// patience is how long a contender may take for its last visit after its turn has ended. It is
// longer than the time for which dlock tries to reach a server by default. leave is the limit when
// the run is interrupted.
const (
	patience = 45 * time.Second
	leave    = 5 * time.Second
	// longestWait limits work that many contenders do once: to acquire ten thousand locks, or to
	// wait for a turn in a queue of that length.
	longestWait = 10 * time.Minute
)

var errHangs = errors.New("a contender does not return from Lock or Unlock")

// visit is one lock and unlock, in Unix nanoseconds. Nothing is done between Granted and the
// beginning of Unlock.
type visit struct{ Asked, Granted, Released int64 }

// started is the start of this process. It makes clock monotonic in a process, and comparable
// between the processes of one machine.
var started = time.Now()

func clock() int64 { return started.UnixNano() + int64(time.Since(started)) }

// crew is the contenders of one process.
type crew interface {
	// turn lets the contenders lock and unlock for d, and returns the visits of each. The caller
	// may use the visits until the next turn.
	turn(ctx context.Context, d time.Duration) ([][]visit, error)
	close() error
}

// contender locks and unlocks its mutexes in rotation.
type contender struct {
	mutexes []Mutex
	next    int
	visits  []visit // of this turn
}

// visit locks and unlocks the next mutex, and returns the time at which it had the lock.
func (c *contender) visit(ctx context.Context) (granted int64, err error) {
	m := c.mutexes[c.next]
	c.next = (c.next + 1) % len(c.mutexes)
	lease, err := m.Lock(ctx)
	if err != nil {
		return 0, err
	}
	granted = clock()
	return granted, lease.Unlock(ctx)
}

// work makes visits until stop is set, and at least one.
func (c *contender) work(ctx context.Context, stop *atomic.Bool) error {
	c.visits = c.visits[:0]
	asked := clock()
	for {
		granted, err := c.visit(ctx)
		if err != nil {
			return err
		}
		released := clock()
		c.visits = append(c.visits, visit{asked, granted, released})
		if asked = released; stop.Load() {
			return nil
		}
	}
}

// localCrew is a crew in this process.
type localCrew struct {
	process    Process // nil if there is none to close
	contenders []*contender
	held       Lease // the lease that hold acquired
}

// newCrew opens a process and makes a contender for each list of names.
func newCrew(
	ctx context.Context, open func(context.Context, Settings) (Process, error), s Settings, k kind,
	names [][]string,
) (*localCrew, error) {
	p, err := open(ctx, s)
	if err != nil {
		return nil, err
	}
	c := &localCrew{process: p}
	for _, list := range names {
		mutexes, err := k.mutexes(p, list)
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		c.contenders = append(c.contenders, &contender{mutexes: mutexes})
	}
	return c, nil
}

// newFloorCrew returns a crew whose contenders execute the floor in place of a lock.
func newFloorCrew(floor measure.Floor, prefix string, names [][]string) *localCrew {
	c := &localCrew{}
	for i, list := range names {
		owner := fmt.Sprintf("%032x", i)
		one := &contender{}
		for _, name := range list {
			one.mutexes = append(one.mutexes, &floorMutex{floor, prefix + name, owner})
		}
		c.contenders = append(c.contenders, one)
	}
	return c
}

// floorMutex makes a floor a Mutex. Its Lock executes the whole floor.
type floorMutex struct {
	floor      measure.Floor
	key, owner string
}

func (m *floorMutex) Lock(ctx context.Context) (Lease, error) {
	return m, m.floor.Floor(ctx, m.key, m.owner)
}

func (m *floorMutex) Unlock(context.Context) error { return nil }

// turn gives the contenders a context that cannot end, because a context that can end costs some
// clients additional time and memory. It waits for the last visits of an interrupted turn.
func (c *localCrew) turn(ctx context.Context, d time.Duration) ([][]visit, error) {
	var stop atomic.Bool
	end := time.AfterFunc(d, func() { stop.Store(true) })
	defer end.Stop()
	defer context.AfterFunc(ctx, func() { stop.Store(true) })()
	errs := make([]error, len(c.contenders))
	endless := context.WithoutCancel(ctx)
	err := together(ctx, d+patience, len(c.contenders), func(i int) {
		if errs[i] = c.contenders[i].work(endless, &stop); errs[i] != nil {
			stop.Store(true)
		}
	})
	if err == nil {
		err = firstOf(errs)
	}
	if err != nil {
		return nil, err
	}
	visits := make([][]visit, len(c.contenders))
	for i, one := range c.contenders {
		visits[i] = one.visits
	}
	return visits, nil
}

func (c *localCrew) close() error {
	if c.process == nil {
		return nil
	}
	if c.held != nil {
		ctx, cancel := context.WithTimeout(context.Background(), leave)
		defer cancel()
		_ = c.held.Unlock(ctx) // Close does not end a leader
	}
	return c.process.Close()
}

// countedVisits is the number of visits whose allocations and commands are counted.
const countedVisits = 100

// allocs returns the heap allocations of one visit.
func (c *localCrew) allocs(ctx context.Context) *float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if !c.repeat(ctx) {
		return nil
	}
	runtime.ReadMemStats(&after)
	return new(float64(after.Mallocs-before.Mallocs) / countedVisits)
}

// commands returns the number of commands that the server received for one visit.
func (c *localCrew) commands(ctx context.Context, m *meter) *float64 {
	from := m.read(ctx)
	if !c.repeat(ctx) {
		return nil
	}
	return m.commands(from, m.read(ctx), countedVisits)
}

// repeat lets the first contender make the counted visits, and reports whether it did.
func (c *localCrew) repeat(ctx context.Context) bool {
	endless := context.WithoutCancel(ctx)
	for range countedVisits {
		if _, err := c.contenders[0].visit(endless); err != nil || ctx.Err() != nil {
			return false
		}
	}
	return true
}

// together runs work n times at once and waits for all of them. It returns errHangs after
// the time within, or soon after ctx has ended. Calls that hang then go on, and the
// caller must not read their data.
func together(ctx context.Context, within time.Duration, n int, work func(i int)) error {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { work(i) })
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(within)
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { timer.Reset(leave) })()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return errHangs
	}
}

// firstOf returns the first error that is not nil.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
