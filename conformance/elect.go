package conformance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// electCases are the cases of elections.
var electCases = []Case{
	{
		Name:    "OneLeaderAtATime",
		Promise: "Of several clients that stand for election one leads at a time.",
		run:     oneLeaderAtATime,
	},
	{
		Name:    "ResignationPassesLeadership",
		Promise: "When a leader returns, another candidate leads, with a higher fence.",
		run:     resignationPassesLeadership,
	},
	{
		Name: "DeposedLeaderStandsAgain",
		Promise: "A broken lease ends the context of its leader. The leader stands again after " +
			"its function has returned, and not before.",
		run: deposedLeaderStandsAgain,
	},
	{
		Name:    "ErrorEndsAnElection",
		Promise: "If the function of a leader returns an error, Elect resigns and returns it.",
		run:     errorEndsAnElection,
	},
	{
		Name:    "ElectionEndsWithItsContext",
		Promise: "Elect returns when its context ends, and leaves nothing locked.",
		run:     electionEndsWithItsContext,
	},
	{
		Name:    "CloseEndsAnElection",
		Promise: "Close ends the leader's context and the election, with ErrClosed.",
		run:     closeEndsAnElection,
	},
	{
		Name:    "ElectionNeedsAFunction",
		Promise: "Elect without a function, or with an invalid name, is an error at once.",
		run:     electionNeedsAFunction,
	},
	{
		Name:    "PanicOfALeaderResigns",
		Promise: "A leader whose function panics resigns.",
		run:     panicOfALeaderResigns,
	},
	{
		Name: "DeadLeaderIsReplaced",
		Promise: "When the process of a leader dies, another candidate leads soon after the end " +
			"of the term, with a higher fence.",
		run: deadLeaderIsReplaced,
	},
	{
		Name:    "SilentLeaderStopsFirst",
		Promise: "The context of a leader that is cut off ends before another candidate leads.",
		Faults:  true,
		run:     silentLeaderStopsFirst,
	},
}

// observeCases are the cases of observers of a lock.
var observeCases = []Case{
	{
		Name:    "ObserveShowsEachHolder",
		Promise: "Observe yields the state now, and each holder that stays for a while.",
		run:     observeShowsEachHolder,
	},
	{
		Name:    "ObserveEndsWithItsContext",
		Promise: "A loop over Observe ends with its context, without an error.",
		run:     observeEndsWithItsContext,
	},
	{
		Name:    "ObserveIgnoresRenewals",
		Promise: "A renewal is no change for Observe.",
		run:     observeIgnoresRenewals,
	},
	{
		Name:    "CloseEndsObserve",
		Promise: "Close ends a loop over Observe with ErrClosed.",
		run:     closeEndsObserve,
	},
	{
		Name:    "ObserverLeavesNothing",
		Promise: "A loop over Observe that ends leaves no goroutine.",
		Alone:   true,
		run:     observerLeavesNothing,
	},
}

// candidate is an Elect in the background.
type candidate struct {
	cancel context.CancelFunc
	done   <-chan struct{}
	err    error // valid when done is closed
}

// elect stands for election in the background until stop.
func (f *fixture) elect(
	c *dlock.Client, lead func(context.Context, *dlock.Lease) error,
) *candidate {
	p := &candidate{}
	ctx, cancel := context.WithCancel(f.ctx)
	p.cancel = cancel
	p.done = async(func() { p.err = c.Elect(ctx, f.name, lead) })
	return p
}

// stop ends an election, whose Elect must then return the context's error.
func (f *fixture) stop(p *candidate) {
	f.Helper()
	p.cancel()
	if f.within(prompt, "Elect returns", p.done) {
		f.isErr("Elect", p.err, context.Canceled)
	}
}

func oneLeaderAtATime(f *fixture) {
	var leaders, terms atomic.Int32
	var fence atomic.Uint64
	enough := make(chan struct{})
	closeOnce := sync.OnceFunc(func() { close(enough) })
	lead := func(_ context.Context, lease *dlock.Lease) error {
		if n := leaders.Add(1); n > 1 {
			f.violation("%d leaders", n)
		}
		if last := fence.Swap(lease.Fence()); last >= lease.Fence() && lease.Fence() != 0 {
			f.violation("the fence %d after %d", lease.Fence(), last)
		}
		time.Sleep(nap)
		leaders.Add(-1)
		if terms.Add(1) == 12 {
			closeOnce()
		}
		return nil
	}
	var candidates []*candidate
	for range 3 {
		candidates = append(candidates, f.elect(f.client(dlock.WithTTL(f.long())), lead))
	}
	f.within(3*prompt, "twelve terms", enough)
	for _, p := range candidates {
		f.stop(p)
	}
}

func resignationPassesLeadership(f *fixture) {
	first, second := make(chan uint64, 1), make(chan uint64, 1)
	resign := make(chan struct{})
	a := f.elect(f.client(), func(ctx context.Context, lease *dlock.Lease) error {
		select {
		case first <- lease.Fence():
		default:
		}
		select {
		case <-resign:
		case <-ctx.Done():
		}
		return nil
	})
	before := receive(f, prompt, "the first candidate leads", first)
	b := f.elect(f.client(), func(ctx context.Context, lease *dlock.Lease) error {
		select {
		case second <- lease.Fence():
		default:
		}
		<-ctx.Done()
		return nil
	})
	close(resign)
	f.fenceGrew(before, receive(f, prompt, "the other candidate leads", second))
	f.stop(b)
	f.stop(a)
}

func deposedLeaderStandsAgain(f *fixture) {
	if f.breakUnsupported() {
		return
	}
	var leading atomic.Int32
	ended, terms := make(chan struct{}, 1), make(chan struct{}, 10)
	late := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(late) })
	defer goOn()
	p := f.elect(f.client(dlock.WithTTL(f.brief())),
		func(ctx context.Context, _ *dlock.Lease) error {
			if leading.Add(1) > 1 {
				f.violation("lead is called again before it has returned")
			}
			defer leading.Add(-1)
			terms <- struct{}{}
			<-ctx.Done()
			select {
			case ended <- struct{}{}:
				<-late // it is slow to return
			default:
			}
			return errors.New("deposed")
		})
	receive(f, prompt, "the candidate leads", terms)
	breaker := f.client()
	if err := breaker.Break(f.ctx, f.name, ""); err != nil {
		f.Fatalf("Break: %v", err)
	}
	receive(f, f.brief()+prompt, "the leader's context ends", ended)
	f.unlock(f.lockWithin(breaker, f.brief()+prompt, f.name)) // it does not stand meanwhile
	goOn()
	receive(f, prompt, "the leader stands again", terms)
	f.stop(p)
}

func errorEndsAnElection(f *fixture) {
	c, failure := f.client(dlock.WithTTL(f.long())), errors.New("no more")
	err := c.Elect(f.ctx, f.name, func(context.Context, *dlock.Lease) error { return failure })
	f.isErr("Elect", err, failure)
	f.unlock(f.lockWithin(f.client(), prompt, f.name))
}

func electionEndsWithItsContext(f *fixture) {
	c, other := f.client(), f.client()
	held := f.lock(other, f.name)
	waiting := f.elect(c, func(context.Context, *dlock.Lease) error {
		f.violation("a candidate leads although the lock is held")
		return nil
	})
	time.Sleep(nap)
	f.stop(waiting)
	f.unlock(held)
	led := make(chan struct{})
	leads := sync.OnceFunc(func() { close(led) }) // a lease can be lost on a slow machine
	leading := f.elect(c, func(ctx context.Context, _ *dlock.Lease) error {
		leads()
		<-ctx.Done()
		return ctx.Err()
	})
	f.within(prompt, "the candidate leads", led)
	f.stop(leading)
	f.unlock(f.lockWithin(other, prompt, f.name))
}

func closeEndsAnElection(f *fixture) {
	c := f.client()
	led := make(chan struct{})
	leads := sync.OnceFunc(func() { close(led) }) // a lease can be lost on a slow machine
	p := f.elect(c, func(ctx context.Context, _ *dlock.Lease) error {
		leads()
		<-ctx.Done()
		f.isErr("the cause of the leader's context", context.Cause(ctx), dlock.ErrClosed)
		return nil
	})
	defer p.cancel()
	f.within(prompt, "the candidate leads", led)
	_ = c.Close()
	if f.within(prompt, "Elect returns", p.done) {
		f.isErr("Elect of a closed client", p.err, dlock.ErrClosed)
	}
}

func electionNeedsAFunction(f *fixture) {
	c := f.client()
	if err := c.Elect(f.ctx, f.name, nil); err == nil {
		f.Errorf("Elect without a function returned no error")
	}
	err := c.Elect(f.ctx, "", func(context.Context, *dlock.Lease) error { return nil })
	f.isErr("Elect without a name", err, dlock.ErrInvalidName)
}

func panicOfALeaderResigns(f *fixture) {
	c := f.client(dlock.WithTTL(f.long()))
	func() {
		defer func() {
			if recover() == nil {
				f.Errorf("the panic was recovered")
			}
		}()
		_ = c.Elect(f.ctx, f.name, func(context.Context, *dlock.Lease) error { panic("a leader") })
	}()
	f.unlock(f.lockWithin(f.client(), prompt, f.name))
}

// leadUntilDone returns a function for Elect that leads until its context ends, and the channel of
// its first lease.
func leadUntilDone() (func(context.Context, *dlock.Lease) error, <-chan *dlock.Lease) {
	leads := make(chan *dlock.Lease, 1)
	return func(ctx context.Context, lease *dlock.Lease) error {
		select {
		case leads <- lease:
		default:
		}
		<-ctx.Done()
		return nil
	}, leads
}

func deadLeaderIsReplaced(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.brief()))
	lead, leads := leadUntilDone()
	first := f.elect(c, lead)
	dead := receive(f, prompt, "the first candidate leads", leads)
	other, waiting := f.tapped()
	lead, leads = leadUntilDone()
	second := f.elect(other, lead)
	waiting.await(acquire, 1, wasBusy)
	t.kill()
	due := dead.Deadline()
	if f.caps.Session {
		due = time.Now()
	}
	lease := receive(f, time.Until(due)+prompt, "another candidate leads", leads)
	f.inTime("another candidate leads", due, time.Now())
	f.fenceGrew(dead.Fence(), lease.Fence())
	first.cancel()
	f.within(prompt, "the dead candidate's Elect returns", first.done)
	f.stop(second)
}

func silentLeaderStopsFirst(f *fixture) {
	away := f.apart()
	faults, ok := away.(Faults)
	if !ok {
		f.inapplicable("the other Harness has no Faults")
	}
	s := newSection(f)
	silent, _ := f.tappedOf(away, dlock.WithTTL(f.brief()))
	entered, ended := make(chan struct{}), make(chan struct{})
	first := f.elect(silent, func(ctx context.Context, lease *dlock.Lease) error {
		s.stay(lease, entered, ctx.Done())
		close(ended) // it is called once: Elect is cancelled during the cut
		return nil
	})
	f.within(prompt, "the first candidate leads", entered)
	led := make(chan struct{})
	leads := sync.OnceFunc(func() { close(led) }) // a lease can be lost on a slow machine
	second := f.elect(f.client(), func(ctx context.Context, lease *dlock.Lease) error {
		s.visit(lease, func() {})
		leads()
		<-ctx.Done()
		return nil
	})
	heal := faults.Cut(f)
	f.within(f.brief()+prompt, "the context of the silent leader ends", ended)
	first.cancel()
	heal()
	f.within(prompt, "the silent candidate's Elect returns", first.done)
	f.within(prompt, "the second candidate leads", led)
	s.check(2)
	f.stop(second)
}

// observed is a loop over Observe in the background.
type observed struct {
	infos  chan *backend.Info
	errs   chan error
	cancel context.CancelFunc
	done   <-chan struct{}
}

// observe observes the lock of the case in the background, until the loop ends or is cancelled. It
// skips the case if the backend cannot inspect locks.
func (f *fixture) observe(c *dlock.Client) *observed {
	f.Helper()
	if !f.caps.Inspect {
		f.inapplicable("the backend cannot inspect locks")
	}
	o := &observed{infos: make(chan *backend.Info, 100), errs: make(chan error, 100)}
	ctx, cancel := context.WithCancel(f.ctx)
	o.cancel = cancel
	o.done = async(func() {
		for info, err := range c.Observe(ctx, f.name) {
			if err != nil {
				o.errs <- err
			} else {
				o.infos <- info
			}
		}
	})
	return o
}

// next returns the next state that is observed.
func (f *fixture) next(o *observed) *backend.Info {
	f.Helper()
	select {
	case info := <-o.infos:
		return info
	case err := <-o.errs:
		f.Fatalf("Observe: %v", err)
	case <-time.After(prompt + 10*time.Second): // it inspects every 10 s without a report
		f.Fatalf("Observe yields nothing")
	}
	return nil
}

func observeShowsEachHolder(f *fixture) {
	if f.unsupported("Observe", f.caps.Inspect, func(c *dlock.Client) error {
		for _, err := range c.Observe(f.ctx, f.name) {
			return err
		}
		return nil
	}) {
		return
	}
	f.timed()
	c := f.client()
	o := f.observe(f.client())
	if info := f.next(o); len(info.Holders) != 0 || info.Key != f.name {
		f.Errorf("a free lock is observed as %+v", info)
	}
	_, watches := f.driver().(backend.Watcher)
	for range 3 {
		lease := f.lock(c, f.name)
		begun := time.Now()
		if info := f.next(o); len(info.Holders) != 1 || info.Holders[0].Owner != lease.Owner() {
			f.Errorf("the holder %s is observed as %+v", lease.Owner(), info)
		}
		if watches {
			f.inTime("a holder is observed", begun, time.Now())
		}
		f.unlock(lease)
		if info := f.next(o); len(info.Holders) != 0 {
			f.Errorf("after the Unlock %+v is observed", info)
		}
	}
	o.cancel()
	f.within(prompt, "the loop ends", o.done)
}

func observeEndsWithItsContext(f *fixture) {
	o := f.observe(f.client())
	_ = f.next(o)
	o.cancel()
	f.within(prompt, "the loop ends", o.done)
	if len(o.errs) > 0 {
		f.Errorf("Observe: %v", <-o.errs)
	}
}

func observeIgnoresRenewals(f *fixture) {
	c := f.client()
	lease := f.lock(c, f.name)
	observer, t := f.tapped()
	o := f.observe(observer)
	_ = f.next(o)
	for range 3 {
		if err := lease.Extend(f.ctx); err != nil {
			f.Errorf("Extend: %v", err)
		}
	}
	seen := t.inspections.Load()
	// The second one begins after Observe has handled the first one.
	if !f.eventually(prompt, func() bool { t.signal(); return t.inspections.Load() > seen+1 }) {
		f.Errorf("Observe does not inspect the lock")
	}
	if len(o.infos) > 0 {
		f.Errorf("a renewal is observed as %+v", <-o.infos)
	}
	f.unlock(lease)
	if info := f.next(o); len(info.Holders) != 0 {
		f.Errorf("after the Unlock %+v is observed", info)
	}
	o.cancel()
	f.within(prompt, "the loop ends", o.done)
}

func closeEndsObserve(f *fixture) {
	c := f.client()
	o := f.observe(c)
	defer o.cancel()
	_ = f.next(o)
	_ = c.Close()
	if f.within(prompt, "the loop ends", o.done) {
		select {
		case err := <-o.errs:
			f.isErr("Observe of a closed client", err, dlock.ErrClosed)
		default:
			f.Errorf("the loop has ended without ErrClosed")
		}
	}
}

func observerLeavesNothing(f *fixture) {
	c := f.client()
	o := f.observe(c)
	_ = f.next(o)
	// Requests that overlap after a stall can open more connections, each with a goroutine.
	for range 3 {
		parallel(8, func(int) { _, _ = c.Inspect(f.ctx, f.name) })
	}
	before := f.steadyGoroutines()
	for range 5 {
		again := f.observe(c)
		_ = f.next(again)
		again.cancel()
		f.within(prompt, "the loop ends", again.done)
	}
	if !f.eventually(prompt, func() bool { return f.goroutines() <= before }) {
		f.Errorf("%d goroutines after five loops, %d before", f.goroutines(), before)
	}
	o.cancel()
	f.within(prompt, "the loop ends", o.done)
}
