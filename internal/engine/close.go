package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// closeTimeout limits Close, counted from the end of the last minimum hold.
	closeTimeout = 5 * time.Second
	// joinTimeout limits how long Close waits for goroutines after it has ended their contexts.
	joinTimeout = time.Second
)

// phase is how far Close has come: waiters return, all leases end, their releases are answered and
// no call is under way, goroutines stop, notes are handled, and the driver is closed. If this takes
// too long, Close omits phaseQuiet.
type phase uint8

const (
	phaseOpen    phase = iota // Close has not begun, or waiters return
	phaseEnding               // all leases have ended
	phaseQuiet                // no call is under way, and nothing is left to release
	phaseStopped              // no more requests are started
)

// ending is the state of Close. e.mu guards all fields except calls.
type ending struct {
	phase       phase
	quiet       chan struct{} // closed when phaseQuiet begins
	calls       atomic.Int64  // of users, under way
	loops       int           // of users over List: in the body, or Close left the driver to them
	closeByLoop bool          // the last loop closes the driver
}

// Close ends every lease with ErrClosed, wakes the waiters, releases the locks, and closes the
// driver. It waits until the minimum holds are over and for 5 s more. It or Shutdown must be called
// once.
func (e *Engine) Close() error {
	holds := e.endLeases()
	if err := e.awaitQuietUntil(later(time.Now(), holds).Add(closeTimeout)); err != nil {
		e.Log(slog.LevelWarn, "dlock: Close did not wait for all", slog.Any("error", err))
	}
	return e.finish()
}

// Shutdown is Close, but it waits until ctx ends, and then returns an error that describes what is
// left. If ctx ends because Shutdown has ended a lease of it, Shutdown waits until the deadline of
// ctx, or for as long as Close if there is none.
func (e *Engine) Shutdown(ctx context.Context) (err error) {
	holds := e.endLeases()
	defer func() { err = errors.Join(err, e.finish()) }() // also if ctx panics
	err = e.awaitQuiet(ctx)
	if err != nil && e.EndedByClose(ctx) {
		deadline, ok := ctx.Deadline()
		if !ok {
			deadline = later(time.Now(), holds).Add(closeTimeout)
		}
		err = e.awaitQuietUntil(deadline)
	}
	return err
}

// finish stops all that runs, and closes the driver.
func (e *Engine) finish() error {
	e.stop()
	e.notes.flush()
	return e.closeDriver()
}

// endLeases ends all leases and starts their releases. It returns the end of the last minimum hold.
// Every live acquisition stands in the schedule, so e.due has all of them.
func (e *Engine) endLeases() (holds time.Time) {
	e.startClosing(backend.ErrClosed)
	e.mu.Lock()
	defer e.unlock()
	e.phase = max(e.phase, phaseEnding)
	now := e.now()
	for _, a := range append([]*acquisition(nil), e.due...) {
		a.close(now)
		if a.state == kept {
			holds = later(holds, a.tenure.start.Add(a.tenure.lock.MinHold))
		}
	}
	return holds
}

// close ends the leases on a. If their time is over, they are lost, and a keeps its lock-delay.
// e.mu must be held.
func (a *acquisition) close(now time.Time) {
	_ = a.expire(a.engine.now())
	switch a.state {
	case granted:
		t := a.tenure
		keep := t.state == held && t.mustStay(now)
		a.endTenures(backend.ErrClosed)
		if keep {
			a.on(keepEvent)
			a.schedule()
			return
		}
		a.releaseInBackground()
	case orphaned:
		a.leaveToTerm()
		a.releaseEarly()
	case requesting, kept, releasing, settled, repeating, gone: // they end without help
	}
}

// awaitQuiet blocks until no call is under way and nothing is left to release.
func (e *Engine) awaitQuiet(ctx context.Context) error {
	select {
	case <-e.quiet:
		return nil
	case <-ctx.Done():
	}
	err := ContextError(ctx)
	e.mu.Lock()
	defer e.unlock()
	if e.phase == phaseQuiet {
		return nil
	}
	return fmt.Errorf("%w: %s", err, e.left())
}

// awaitQuietUntil is awaitQuiet until the given time.
func (e *Engine) awaitQuietUntil(deadline time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	return e.awaitQuiet(ctx)
}

// left describes what Shutdown leaves. e.mu must be held.
func (e *Engine) left() string {
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(e.open-e.freed, "locks are left to the end of their TTL")
	add(e.freed, "answered releases are not repeated any more")
	add(int(e.calls.Load()), "calls are under way")
	return strings.Join(parts, ", ")
}

// stop stops all goroutines of the engine, and waits for joinTimeout at most. A goroutine that goes
// on after that is in code of a driver or a user that does not return.
func (e *Engine) stop() {
	e.mu.Lock()
	e.phase = phaseStopped
	e.unlock()
	e.abort()
	joined := make(chan struct{})
	go func() {
		e.jobs.Wait()
		close(joined)
	}()
	waitFor(joined, joinTimeout)
}

// closeDriver closes the driver. If the body of a List loop is running, the end of the loop
// closes it instead.
func (e *Engine) closeDriver() error {
	e.mu.Lock()
	e.closeByLoop = e.loops > 0
	later := e.closeByLoop
	e.unlock()
	if later {
		return nil
	}
	done := make(chan struct{})
	err := fmt.Errorf("%w: the driver has not closed in %v", backend.ErrUnavailable, closeTimeout)
	result := make(chan error, 1)
	go func() {
		defer close(done)
		failure := errAborted
		defer func() {
			if value := recover(); value != nil {
				failure = e.recovered(value)
			}
			result <- failure
		}()
		failure = e.driver.Close()
	}()
	if waitFor(done, closeTimeout) {
		err = <-result
	}
	return err
}

// Loop is a call that runs code of a user between requests: a loop over a driver's sequence. e.mu
// guards counts.
type Loop struct {
	engine *Engine
	counts bool // among Engine.loops
}

// EnterLoop is Enter for a call with a body. If it returns no error, Leave must be called at the
// end of the loop.
func (e *Engine) EnterLoop(ctx context.Context) (*Loop, error) {
	return &Loop{engine: e}, e.Enter(ctx)
}

// Yield runs the body. Close does not wait for it, because the body may be the caller of Close.
// Yield returns ErrClosed if Close has begun meanwhile.
func (l *Loop) Yield(body func() bool) (more bool, _ error) {
	e := l.engine
	l.count(true)
	defer l.count(false)
	more = body()
	if e.closing.Err() != nil {
		return more, backend.ErrClosed
	}
	return more, nil
}

// count counts l as a call or as a body. If Close left the driver to the loops, l counts as a
// body until it ends.
func (l *Loop) count(body bool) {
	e := l.engine
	e.mu.Lock()
	defer e.unlock()
	if body {
		e.calls.Add(-1)
	} else {
		e.calls.Add(1)
	}
	l.setCounts(body || e.closeByLoop)
}

// setCounts adds l to the number of loops or removes it. e.mu must be held.
func (l *Loop) setCounts(counts bool) {
	switch {
	case counts && !l.counts:
		l.engine.loops++
	case !counts && l.counts:
		l.engine.loops--
	}
	l.counts = counts
}

// Leave ends the call. If Close left the driver to the loops, the last of them closes it.
func (l *Loop) Leave() {
	if l.leave() {
		_ = l.engine.closeDriver()
	}
}

// leave ends the call, and reports whether the caller has to close the driver.
func (l *Loop) leave() (last bool) {
	e := l.engine
	e.mu.Lock()
	defer e.unlock()
	e.calls.Add(-1)
	last = l.counts && e.loops == 1
	l.setCounts(false)
	if last {
		e.closeByLoop = false // a loop that Close has given up does not close it, too
	}
	return last
}
