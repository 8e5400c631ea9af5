// Package failover tests locks while members of an ensemble fail. Only tests import it.
package failover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/announce"
	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv"
)

const (
	// bound is the tolerance for the end of a term: a lock must be free at most this much later.
	// The published figure is 500 ms, and more for a server that counts in ticks. The lag of this
	// process is subtracted.
	bound = 3 * time.Second
	// patience limits the actions of an ensemble that have no promised end.
	patience = time.Minute
	// openBound is the time limit of an opening.
	openBound = 10 * time.Second
	// tries is the greatest number of observations of a case whose members may elect too slowly.
	tries = 5
	// nap is the pause between two checks of a state without a signal.
	nap = 10 * time.Millisecond
)

// Suite describes one kind of ensemble to the cases. The test imports the driver's package.
type Suite struct {
	Ensemble *testenv.Ensemble
	Query    string        // of all URLs: "?ttl=5s"
	TTL      time.Duration // the same TTL, longer than an election of the ensemble
	LongTTL  time.Duration // longer than the restart of a member, if the servers grant it
}

// Run runs the cases as subtests, one after the other, because each makes members fail.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(f *fixture)
	}{
		{"LeaderKilledWhileHeld", func(f *fixture) { f.leaderFailsWhileHeld(f.kill) }},
		{"LeaderPausedWhileHeld", func(f *fixture) { f.leaderFailsWhileHeld(f.pause) }},
		{"LeaderKilledWhileWaitedFor", func(f *fixture) { f.leaderFailsWhileWaitedFor(f.kill) }},
		{"LeaderPausedWhileWaitedFor", func(f *fixture) { f.leaderFailsWhileWaitedFor(f.pause) }},
		{"EachMemberRestarts", (*fixture).eachMemberRestarts},
		{"HolderIsIsolatedWithTheLeader", func(f *fixture) {
			f.holderIsIsolatedWith(f.Ensemble.Leader(f))
		}},
		{"HolderIsIsolatedWithAFollower", func(f *fixture) {
			f.holderIsIsolatedWith(f.Ensemble.Follower(f))
		}},
		{"NoQuorum", (*fixture).noQuorum},
		{"FirstEndpointIsDead", func(f *fixture) { f.firstEndpointFails(f.kill) }},
		{"FirstEndpointIsSilent", func(f *fixture) { f.firstEndpointFails(f.pause) }},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(newFixture(t, s)) })
	}
}

// fixture has the tools of one case.
type fixture struct {
	*testing.T
	Suite
	ctx context.Context
	lag *lag.Meter
}

func newFixture(t *testing.T, s Suite) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Minute)
	t.Cleanup(cancel)
	meter := lag.Start()
	t.Cleanup(meter.Stop)
	s.Ensemble.Await(t) // the case before has repaired it
	lag.Calm(ctx)
	return &fixture{T: t, Suite: s, ctx: ctx, lag: meter}
}

// away stops a member until back is called.
type away func(member *testenv.Server) (back func())

func (f *fixture) kill(member *testenv.Server) (back func())  { return f.Ensemble.Kill(f, member) }
func (f *fixture) pause(member *testenv.Server) (back func()) { return member.Pause(f) }

// client opens a client of these members, or of all members if none are given.
func (f *fixture) client(members ...*testenv.Server) *dlock.Client {
	f.Helper()
	if len(members) == 0 {
		members = f.Ensemble.Members
	}
	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()
	due := time.Now().Add(openBound)
	c, err := dlock.Open(ctx, f.url(members))
	if err != nil {
		f.Fatalf("Open: %v", err)
	}
	f.inTime("Open returned", due, time.Now())
	f.Cleanup(func() {
		if err := c.Close(); err != nil {
			f.Logf("Close: %v", err)
		}
	})
	return c
}

func (f *fixture) url(members []*testenv.Server) string {
	addrs := make([]string, len(members))
	for i, s := range members {
		addrs[i] = s.Addr
	}
	return f.Ensemble.URLOf(addrs...) + f.Query
}

// lock locks, which must succeed within patience.
func (f *fixture) lock(c *dlock.Client) *dlock.Lease {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()
	lease, err := c.Lock(ctx, f.Name())
	if err != nil {
		f.Fatalf("Lock: %v", err)
	}
	return lease
}

// unlock unlocks a lease that is still held. The answer may be late if a member has failed.
func (f *fixture) unlock(lease *dlock.Lease) {
	f.Helper()
	if err := lease.Unlock(f.ctx); err != nil && !errors.Is(err, dlock.ErrUncertain) {
		f.Errorf("Unlock: %v", err)
	}
}

// waiter is a Lock in the background.
type waiter struct {
	done  chan struct{}
	lease *dlock.Lease // set when done is closed
	at    time.Time    // of the grant
	err   error
}

// wait makes c wait in the queue.
func (f *fixture) wait(c *dlock.Client) *waiter {
	f.Helper()
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = c.Lock(f.ctx, f.Name())
		w.at = time.Now()
	}()
	f.awaitQueued(c)
	return w
}

// awaitQueued waits until c reads that the lock has a waiter.
func (f *fixture) awaitQueued(c *dlock.Client) {
	f.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(nap) {
		info, err := c.Inspect(f.ctx, f.Name())
		if err == nil && info.Waiters > 0 {
			return
		}
		if time.Now().After(end) {
			f.Fatalf("the lock has no waiter: %+v, %v", info, err)
		}
	}
}

// granted returns the lease of a waiter, which must get it at most bound after d.
func (f *fixture) granted(w *waiter, d time.Duration) *dlock.Lease {
	f.Helper()
	due := time.Now().Add(d)
	select {
	case <-w.done:
	case <-time.After(d + patience):
		f.Fatalf("the waiter did not get the lock within %v", d+patience)
	}
	if w.err != nil {
		f.Fatalf("Lock: %v", w.err)
	}
	f.inTime("the waiter got the lock", due, w.at)
	return w.lease
}

// inTime fails the test if at is later than bound after due. The lag of this process is subtracted.
func (f *fixture) inTime(what string, due, at time.Time) {
	f.Helper()
	if late := at.Sub(due) - f.lag.Worst(due); late > bound {
		f.Errorf("%s %v late", what, late)
	}
}

// follows checks that next was granted after lease had ended and its holder had been notified.
func (f *fixture) follows(next, lease *dlock.Lease, granted time.Time) {
	f.Helper()
	if err := lease.Err(); !errors.Is(err, dlock.ErrLost) {
		f.Errorf("Err after the next grant: %v, want ErrLost", err)
	}
	if over := lease.Deadline().Sub(granted); over >= 0 {
		f.Errorf("the lock was granted %v before the deadline of the former holder", over)
	}
	if next.Fence() <= lease.Fence() {
		f.Errorf("the fence %d follows %d", next.Fence(), lease.Fence())
	}
}

// leaderFailsWhileHeld checks that a lease is renewed or lost after the leader has failed. A loss
// is reported to the holder before the lock is granted again.
func (f *fixture) leaderFailsWhileHeld(fails away) {
	holder, other := f.client(), f.client()
	lease := f.lock(holder)
	w := f.wait(other)
	leader := f.Ensemble.Leader(f)
	until := lease.Deadline()
	began := time.Now()
	back := fails(leader)
	elected := f.succeeded(leader)
	end := began.Add(f.TTL + patience)
	for ; !lease.Deadline().After(until) && lease.Err() == nil; time.Sleep(nap) {
		if time.Now().After(end) {
			f.Fatal("the lease was neither renewed nor lost")
		}
	}
	if lease.Err() != nil {
		f.inTime("the holder was notified", lease.Deadline(), time.Now())
		left := lease.Deadline().Sub(<-elected)
		f.Logf("the lease was lost after %v, %v after the election of the next leader",
			time.Since(began), left)
		if left-f.lag.Worst(began) > f.TTL/2 { // time for a delayed and another renewal
			f.Errorf("the lease was lost, but another member led %v before its deadline", left)
		}
		next := f.granted(w, f.TTL)
		f.follows(next, lease, w.at)
		back()
		f.unlock(next)
		return
	}
	f.Logf("the lease was renewed after %v, when %v were left; another member led after %v",
		time.Since(began), time.Until(until), (<-elected).Sub(began))
	select {
	case <-w.done:
		f.Errorf("the lock has a second holder: %v", w.err)
	default:
	}
	back()
	f.unlock(lease)
	f.unlock(f.granted(w, f.TTL))
}

// succeeded returns a channel that receives the time at which another member leads instead of
// leader.
func (f *fixture) succeeded(leader *testenv.Server) <-chan time.Time {
	elected := make(chan time.Time, 1)
	go func() {
		f.Ensemble.Successor(f.ctx, leader)
		elected <- time.Now()
	}()
	return elected
}

// leaderFailsWhileWaitedFor checks that a waiter gets the lock within a term of its release,
// although the leader has failed. A waiter gives up if it has no answer for a term. So an
// observation is void if the members needed more than half of that for an election.
func (f *fixture) leaderFailsWhileWaitedFor(fails away) {
	for n := 1; ; n++ {
		reason := f.releaseWithoutLeader(fails)
		switch {
		case reason == "":
			return
		case n == tries:
			f.Fatalf("%d observations are void, the last one because %s", tries, reason)
		}
		f.Logf("%s", announce.Void(reason))
		f.Ensemble.Await(f)
		lag.Calm(f.ctx)
	}
}

// releaseWithoutLeader is one observation of leaderFailsWhileWaitedFor. It returns the reason why
// it is void, or nothing.
func (f *fixture) releaseWithoutLeader(fails away) (reason string) {
	holder, other := f.client(), f.client()
	lease := f.lock(holder)
	w := f.wait(other)
	leader := f.Ensemble.Leader(f)
	back := fails(leader)
	released := time.Now()
	elected := f.succeeded(leader)
	f.unlock(lease)
	unlocked := time.Now()
	select {
	case <-w.done:
	case <-time.After(f.TTL + patience):
		f.Fatalf("the waiter did not get the lock within %v", f.TTL+patience)
	}
	led := <-elected
	seen := fmt.Sprintf("another member led after %v, Unlock returned after %v and Lock after %v",
		led.Sub(released), unlocked.Sub(released), w.at.Sub(released))
	back()
	if w.err != nil {
		left := w.at.Sub(led) - f.lag.Worst(released)
		if left <= f.TTL/2 && errors.Is(w.err, dlock.ErrUnavailable) {
			return seen + ": " + w.err.Error()
		}
		f.Fatalf("Lock: %v; %s", w.err, seen)
	}
	f.Logf("%s", seen)
	f.inTime("the waiter got the lock", unlocked.Add(f.TTL), w.at)
	if w.lease.Fence() <= lease.Fence() {
		f.Errorf("the fence %d follows %d", w.lease.Fence(), lease.Fence())
	}
	f.unlock(w.lease)
	return ""
}

// eachMemberRestarts restarts each member, so that every client must change its member once. It
// checks that leases are kept and waiters are woken.
func (f *fixture) eachMemberRestarts() {
	f.Query = strings.Replace(f.Query, "ttl="+f.TTL.String(), "ttl="+f.LongTTL.String(), 1)
	holder, other := f.client(), f.client()
	lease := f.lock(holder)
	w := f.wait(other)
	for _, s := range f.Ensemble.Members {
		s.Restart(f)
		f.Ensemble.Leader(f)
		if err := lease.Extend(f.ctx); err != nil {
			f.Errorf("Extend after the restart of %s: %v", s.Name, err)
		}
	}
	if err := lease.Err(); err != nil {
		f.Errorf("Err: %v", err)
	}
	f.awaitQueued(other) // its connection is restored
	f.unlock(lease)
	f.unlock(f.granted(w, 0)) // the waiter's next poll comes after a third of the term
}

// holderIsIsolatedWith isolates the only member that a holder can reach. It checks that the holder
// is notified before the majority grants the lock again.
func (f *fixture) holderIsIsolatedWith(member *testenv.Server) {
	holder, other := f.client(member), f.client(f.Ensemble.Others(member)...)
	lease := f.lock(holder)
	w := f.wait(other)
	began := time.Now()
	heal := f.Ensemble.Isolate(f, member)
	// A term, the same term again from a new leader, and an election.
	next := f.granted(w, 2*f.TTL+patience)
	f.Logf("the lock was granted after %v", w.at.Sub(began))
	f.follows(next, lease, w.at)
	heal()
	f.Ensemble.Await(f)
	if err := lease.Unlock(f.ctx); !errors.Is(err, dlock.ErrLost) {
		f.Errorf("Unlock: %v, want ErrLost", err)
	}
	if err := next.Err(); err != nil {
		f.Errorf("Err of the other holder: %v", err)
	}
	f.unlock(next)
	f.unlock(f.lock(holder))
}

// noQuorum checks an ensemble without a majority: it grants nothing, the holder is notified in
// time, and an opening fails. With a majority everything works again.
func (f *fixture) noQuorum() {
	c := f.client()
	lease := f.lock(c)
	rest := f.Ensemble.Members[0]
	var backs []func()
	for _, s := range f.Ensemble.Others(rest) {
		backs = append(backs, f.kill(s))
	}
	select {
	case <-lease.Lost():
		f.inTime("the holder was notified", lease.Deadline(), time.Now())
	case <-time.After(f.TTL + patience):
		f.Error("the holder was not notified")
	}
	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()
	due := time.Now().Add(openBound)
	opened, err := dlock.Open(ctx, f.url([]*testenv.Server{rest}))
	if err == nil {
		_ = opened.Close()
	}
	if !errors.Is(err, dlock.ErrUnavailable) {
		f.Errorf("Open without a majority: %v, want ErrUnavailable", err)
	}
	f.inTime("Open without a majority returned", due, time.Now())
	for _, back := range backs {
		back()
	}
	next := f.lock(c)
	if next.Fence() <= lease.Fence() {
		f.Errorf("the fence %d follows %d", next.Fence(), lease.Fence())
	}
	f.unlock(next)
}

// firstEndpointFails checks that a URL may contain dead or silent servers, as long as a majority
// answers. The client opens after the election: on a slow machine the two together take longer than
// an Open may.
func (f *fixture) firstEndpointFails(fails away) {
	leader := f.Ensemble.Leader(f)
	defer fails(leader)()
	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()
	if f.Ensemble.Successor(ctx, leader) == nil {
		f.Fatal("no other member leads")
	}
	began := time.Now()
	c := f.client(append([]*testenv.Server{leader}, f.Ensemble.Others(leader)...)...)
	f.Logf("opened after %v", time.Since(began))
	for range 3 {
		f.unlock(f.lock(c))
	}
}
