//go:build unix

package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrMissed is the error of Site.Inject if the fault had no effect.
var ErrMissed = errors.New("the fault hit nothing")

// Network is the network of one worker, for example a *faultproxy.Proxy.
type Network interface {
	Cut() (heal func())
	Reset()
	Latency(d time.Duration) (remove func() error, err error)
	DropReply(nth int)
	Delay() (deliver func())
}

// Site is a server under test that the caller has set up.
type Site struct {
	Settings
	Version string
	// Start starts the process of a worker. Its main function is [Serve].
	Start func(worker, life int) (Process, error)
	// Network returns the network of a worker, or nil if the worker has none that can be broken.
	Network func(worker int) Network
	// Inject causes a fault of the server or an act of an operator on the lock of that name. Break
	// must take the lock from all its holders. heal ends the fault; it may be nil.
	Inject func(ctx context.Context, k Kind, name string) (heal func() error, err error)
	// Probe makes a request that writes, over a connection that no fault of a worker affects. So
	// the judge knows how slow the server is. It may be nil.
	Probe func(ctx context.Context) error
	// Left returns the data that the server still has of names with that prefix. It is called after
	// all workers have ended.
	Left func(ctx context.Context, prefix string) ([]string, error)
	// Progress, if not nil, is called at the beginning of each round.
	Progress func(text string)
}

// engine is one campaign.
type engine struct {
	Site
	plan   Plan
	prefix string
	log    recorder
	crew   *crew
	faults counter
}

// counter numbers injections.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

// Run executes a campaign and returns its history. It returns an error if it cannot execute the
// campaign. If ctx ends, the history has the events so far.
func Run(ctx context.Context, s Site) (*History, error) {
	s.Settings = s.withDefaults()
	e := &engine{
		Site: s, plan: NewPlan(s.Settings), prefix: fmt.Sprintf("campaign-%x", uint64(Now())),
	}
	e.crew = &crew{
		settings: s.Settings, start: s.Start, log: &e.log, store: newStore(), suits: e.suits,
	}
	stop := make(chan struct{})
	var meter sync.WaitGroup
	report := func(late Event) {
		late.Worker = Engine
		e.log.record(late)
	}
	meter.Go(func() { meterLag(stop, report) })
	meter.Go(func() { meterChain(stop, report) })
	if s.Probe != nil {
		meter.Go(func() { e.meterAnswers(ctx, stop) })
	}
	err := e.crew.hire()
	if err == nil {
		err = e.rounds(ctx)
	}
	e.crew.dismiss(s.TTL + dismissal)
	close(stop)
	meter.Wait()
	if err == nil && ctx.Err() == nil {
		e.leftovers(ctx)
	}
	h := &History{
		Settings: s.Settings, Plan: e.plan, Version: s.Version,
		Ended: Now(), Cut: ctx.Err() != nil, Events: e.log.sorted(),
	}
	return h, err
}

// meterAnswers records the answers to the probe that take long, until stop is closed.
func (e *engine) meterAnswers(ctx context.Context, stop <-chan struct{}) {
	probe := func() error {
		ctx, cancel := context.WithTimeout(ctx, e.TTL)
		defer cancel()
		return e.Probe(ctx)
	}
	meterAnswers(stop, probe, func(at Instant, took time.Duration) {
		e.log.record(Event{At: at, Op: Answer, Worker: Engine, Late: took})
	})
}

// rounds executes the rounds of the plan until ctx ends.
func (e *engine) rounds(ctx context.Context) error {
	for i, r := range e.plan.Rounds {
		names := make([]string, r.Kind.lock().count(e.Locks))
		for n := range names {
			names[n] = fmt.Sprintf("%s-%d-%d", e.prefix, i, n)
		}
		e.log.record(Event{Op: RoundBegins, Worker: Engine, Round: i})
		e.crew.begin(&lockOrder{Round: i, Kind: r.Kind, Names: names, Fair: r.Fair})
		if e.Progress != nil {
			e.Progress(fmt.Sprintf("round %d of %d: %s, class %s, %d faults",
				i+1, len(e.plan.Rounds), r.Kind, r.Class, len(r.Faults)))
		}
		if err := e.round(ctx, i, r, names); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		if !sleep(ctx, e.recovery()) {
			return nil
		}
		e.crew.begin(&lockOrder{Round: i}) // no new attempts: the waiters get their turns
		if !sleep(ctx, e.drain()) {
			return nil
		}
	}
	return nil
}

// round injects the faults of a round, each lane at its own pace.
func (e *engine) round(ctx context.Context, i int, r Round, names []string) error {
	begin := Now()
	errs := make([]error, lanes+1)
	var all sync.WaitGroup
	for lane := range errs {
		all.Go(func() {
			for _, in := range r.Faults {
				late := Now().Sub(begin) - in.Begin
				if in.Lane != lane || late > e.Round/2 { // a slow server delays its lane
					continue
				}
				if errs[lane] != nil || !sleep(ctx, -late) {
					return
				}
				errs[lane] = e.inject(ctx, i, in, names)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// inject causes one fault and ends it after its duration.
func (e *engine) inject(ctx context.Context, round int, in Injection, names []string) error {
	f := Event{
		Worker: Engine, Round: round,
		Fault: e.faults.next(), Kind: in.Kind, Name: names[in.N%len(names)],
	}
	m := e.aim(ctx, in, &f)
	note := func(op Op) {
		f.Op = op
		e.log.record(f)
	}
	note(Begin)
	heal, err := e.begin(ctx, in, f.Name, m)
	if errors.Is(err, ErrMissed) {
		note(Missed)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", in.Kind, err)
	}
	note(Done)
	if in.For > 0 {
		sleep(ctx, in.For)
	}
	if heal != nil {
		err = heal()
	}
	note(End)
	if err != nil {
		return fmt.Errorf("end of %s: %w", in.Kind, err)
	}
	return nil
}

// aim chooses the victim of a fault, and makes a holder stay until the fault hits it.
func (e *engine) aim(ctx context.Context, in Injection, f *Event) (m *member) {
	switch {
	case in.Kind.ofWorker():
		m = e.crew.victim(ctx, in)
		switch in.Kind {
		case Kill, Stop, StopShort:
			held := e.crew.lingerer(ctx, m, 10*holdMax)
			for n := 1; held == "" && e.Elections > 0 && n < aims; n++ {
				m = e.crew.victim(ctx, in)
				held = e.crew.lingerer(ctx, m, 10*holdMax)
			}
		case Fade:
			e.crew.lingerer(ctx, m, 4*e.TTL)
		}
		_, f.Life = e.crew.process(m)
		f.Worker, f.Name = m.id, ""
	case in.Kind.takesLock():
		holder := e.crew.members[in.N%len(e.crew.members)]
		f.Name = cmp.Or(e.crew.lingerer(ctx, holder, e.TTL+2*bound), f.Name)
	}
	return m
}

// begin begins a fault. heal ends it; it may be nil.
func (e *engine) begin(
	ctx context.Context, in Injection, name string, m *member,
) (heal func() error, err error) {
	switch {
	case !in.Kind.ofWorker():
		return e.Inject(ctx, in.Kind, name)
	case in.Kind.ofProcess():
		return e.disturb(in, m)
	}
	if !e.suits(in.Kind, m) {
		return nil, ErrMissed
	}
	return e.interfere(ctx, in, m, e.Network(m.id))
}

// suits reports whether k can hit m.
func (e *engine) suits(k Kind, m *member) bool {
	return !k.ofWorker() || k.ofProcess() || e.Network != nil && e.Network(m.id) != nil
}

// interfere disturbs the network n of m.
func (e *engine) interfere(
	ctx context.Context, in Injection, m *member, n Network,
) (heal func() error, err error) {
	switch in.Kind {
	case Cut:
		return quiet(n.Cut()), nil
	case Reset:
		n.Reset()
	case Latency:
		delay := e.TTL * 3 / 2
		if in.N%2 == 0 {
			delay = e.TTL * 7 / 10 // a reply in time, but little of its term is left
			e.crew.linger(m, in.For)
		}
		return n.Latency(delay)
	case LateRequest:
		return quiet(n.Delay()), nil
	case LostReply:
		for i := range 3 {
			n.DropReply(1 + (in.N>>(4*i))%8)
		}
	case Fade:
		remove, err := n.Latency(e.TTL / 4) // a renewal waits for at most TTL/3
		if err != nil {
			return nil, err
		}
		sleep(ctx, e.TTL)
		cut := n.Cut()
		return quiet(cut), remove()
	}
	return nil, nil
}

// disturb kills, stops or slows the process of m.
func (e *engine) disturb(in Injection, m *member) (heal func() error, err error) {
	switch in.Kind {
	case Kill, KillWaiter:
		if err := e.crew.kill(m); err != nil {
			return nil, err
		}
		return nil, e.crew.live(m)
	case Linger:
		e.crew.linger(m, in.For)
		return nil, nil
	}
	proc, _ := e.crew.process(m)
	return proc.Continue, proc.Stop()
}

func quiet(f func()) func() error {
	return func() error { f(); return nil }
}

// leftovers records the locks that are still on the server after all holders have ended.
func (e *engine) leftovers(ctx context.Context) {
	if e.Left == nil {
		return
	}
	var left []string
	var err error
	for end := Now().Add(e.recovery()); ; sleep(ctx, retryPause) {
		if left, err = e.Left(ctx, e.prefix); err == nil && len(left) == 0 {
			return
		}
		if Now() > end || ctx.Err() != nil {
			break
		}
	}
	text := fmt.Sprintf("locks are left on the server: %q", slices.Clip(left))
	if err != nil {
		text = "cannot list the locks on the server: " + err.Error()
	}
	e.log.record(Event{Op: Finding, Worker: Engine, Rule: RuleG, Error: text})
}

// dismissal is the time, in addition to a TTL, in which a worker must unlock, close, look for leaks
// and end.
const dismissal = leakPatience + 20*time.Second

// sleep waits for d or until ctx ends. It returns false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
