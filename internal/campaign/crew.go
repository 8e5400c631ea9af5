//go:build unix

package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// crew is the set of workers of a campaign, with the resource that they share.
type crew struct {
	settings Settings
	start    func(worker, life int) (Process, error)
	suits    func(k Kind, m *member) bool // reports whether the fault can hit the member
	log      *recorder
	store    *store

	mu      sync.Mutex
	round   *lockOrder
	members []*member
	ended   bool
	wg      sync.WaitGroup // the goroutines that read the members' reports
}

// member is one worker. A killed process is followed by the worker's next life. The crew's mutex
// guards it.
type member struct {
	id, life int
	proc     Process
	orders   *json.Encoder
	killed   bool               // the engine has killed this life
	holds    map[attempt]string // names of the leases in which the worker believes
	bye      *bye
	gone     chan struct{} // closed when this life has ended
}

// hire starts all members.
func (c *crew) hire() error {
	for i := range c.settings.Workers {
		m := &member{id: i}
		c.members = append(c.members, m)
		if err := c.live(m); err != nil {
			return err
		}
	}
	return nil
}

// live starts the next life of m.
func (c *crew) live(m *member) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil
	}
	m.life++
	proc, err := c.start(m.id, m.life)
	if err != nil {
		return fmt.Errorf("start worker %d: %w", m.id, err)
	}
	m.proc, m.orders, m.killed, m.bye = proc, json.NewEncoder(proc), false, nil
	m.holds, m.gone = make(map[attempt]string), make(chan struct{})
	hello := hello{
		Worker: m.id, Life: m.life, Seed: c.settings.Seed,
		TTL: c.settings.TTL, Loops: loopsPerWorker, Alone: !c.settings.Shared,
	}
	if c.settings.Elections > 0 {
		hello.Loops = 1
	}
	_ = m.orders.Encode(order{Hello: &hello}) // read detects a process that has already ended
	if c.round != nil {
		_ = m.orders.Encode(order{Round: c.round})
	}
	life := m.life
	c.wg.Go(func() { c.read(m, life, proc) })
	return nil
}

// read handles the reports of one life and records its end.
func (c *crew) read(m *member, life int, proc Process) {
	reports := json.NewDecoder(proc)
	for {
		var r report
		if err := reports.Decode(&r); err != nil {
			break
		}
		c.take(m, r)
	}
	err := proc.Wait()
	at := Now()
	_ = proc.Close()
	c.mu.Lock()
	expected := m.killed || m.bye != nil && err == nil
	close(m.gone)
	c.mu.Unlock()
	e := Event{At: at, Op: Exited, Worker: m.id, Life: life}
	c.log.record(e)
	if !expected {
		e.Op, e.Rule, e.Error = Finding, RuleH, fmt.Sprintf("the worker ended by itself: %v", err)
		c.log.record(e)
		time.Sleep(retryPause)
		_ = c.live(m)
	}
}

// take handles one report.
func (c *crew) take(m *member, r report) {
	switch {
	case r.Event != nil:
		c.log.record(*r.Event)
		c.follow(m, *r.Event)
	case r.Access != nil:
		got, e := c.store.do(*r.Access)
		c.mu.Lock()
		e.Worker, e.Life = m.id, m.life
		_ = m.orders.Encode(order{Answer: &got})
		c.mu.Unlock()
		c.log.record(e)
	case r.Handoff != nil:
		c.pass(m, *r.Handoff)
	case r.Bye != nil:
		c.mu.Lock()
		m.bye = r.Bye
		c.mu.Unlock()
	}
}

// follow records the leases in which m believes.
func (c *crew) follow(m *member, e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Op {
	case Granted:
		m.holds[e.attempt()] = e.Name
	case Unlock, Export, Lost:
		delete(m.holds, e.attempt())
	}
}

// begin starts a round for all members.
func (c *crew) begin(r *lockOrder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round = r
	for _, m := range c.members {
		_ = m.orders.Encode(order{Round: r})
	}
}

// linger makes the present or the next critical section of m longer by d.
func (c *crew) linger(m *member, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = m.orders.Encode(order{Linger: d})
}

// holdTick is the time between two looks at the locks that a member holds.
const holdTick = 5 * time.Millisecond

// lingerer makes a critical section of m last for d. It returns the name of the lock that m then
// holds, or "" if m does not get a lock within a TTL.
func (c *crew) lingerer(ctx context.Context, m *member, d time.Duration) (name string) {
	c.linger(m, d)
	since := make(map[attempt]Instant)
	for end := Now().Add(c.settings.TTL + 2*holdMax); Now() < end; sleep(ctx, holdTick) {
		c.mu.Lock()
		for key, name := range m.holds {
			if since[key] == 0 {
				since[key] = Now()
			} else if Now().Sub(since[key]) > holdMax+holdTick {
				c.mu.Unlock()
				return name
			}
		}
		c.mu.Unlock()
	}
	return ""
}

// process returns the process of the present life of m.
func (c *crew) process(m *member) (proc Process, life int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return m.proc, m.life
}

// victim returns a member of a lane for in: a holder or a waiter, as the fault requires. It waits
// for a suitable member for at most a TTL. Then it returns any member.
func (c *crew) victim(ctx context.Context, in Injection) *member {
	for end := Now().Add(c.settings.TTL); Now() < end; {
		if m := c.fit(in); m != nil {
			return m
		}
		if !sleep(ctx, time.Millisecond) { // holders are short-lived
			break
		}
	}
	return c.members[in.Lane+in.N%(len(c.members)/lanes)*lanes]
}

// fit returns a member of the lane of in that holds a lock or does not hold one, as the fault
// requires.
func (c *crew) fit(in Injection) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	var fit []*member
	for _, m := range c.members {
		isInLane := m.id%lanes == in.Lane || in.Lane == lanes
		if isInLane && (len(m.holds) > 0) == in.Kind.wantsHolder() &&
			c.suits(in.Kind, m) {
			fit = append(fit, m)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return fit[in.N%len(fit)]
}

// kill kills the present life of m. It records the Killed event before the process dies. It returns
// ErrMissed if another call is killing it.
func (c *crew) kill(m *member) error {
	c.mu.Lock()
	if m.killed {
		c.mu.Unlock()
		return ErrMissed
	}
	m.killed = true
	proc, gone := m.proc, m.gone
	c.log.record(Event{Op: Killed, Worker: m.id, Life: m.life})
	c.mu.Unlock()
	if err := proc.Kill(); err != nil {
		return err
	}
	<-gone
	return nil
}

// dismiss makes all members finish and waits for their ends. A member that needs more than patience
// is hanging.
func (c *crew) dismiss(patience time.Duration) {
	c.mu.Lock()
	c.ended = true
	members := slices.Clone(c.members)
	for _, m := range members {
		if m.proc != nil {
			_ = errors.Join(m.proc.Continue(), m.orders.Encode(order{Finish: true}))
		}
	}
	c.mu.Unlock()
	end := time.NewTimer(patience)
	defer end.Stop()
	for _, m := range members {
		if m.proc != nil {
			c.farewell(m, end)
		}
	}
	c.wg.Wait()
}

// farewell waits for the end of m and records the resources that m leaked.
func (c *crew) farewell(m *member, end *time.Timer) {
	select {
	case <-m.gone:
	case <-end.C:
		end.Reset(0)
		c.finding(m, RuleH, "the worker hangs: it did not finish in time")
		_ = m.proc.Quit()
		kill := time.AfterFunc(time.Second, func() { _ = m.proc.Kill() })
		<-m.gone
		kill.Stop()
	}
	switch {
	case m.bye == nil:
	case m.bye.Leaked != "":
		c.finding(m, RuleG, "after Close "+m.bye.Leaked)
	case m.bye.Error != "":
		c.finding(m, RuleG, "Close: "+m.bye.Error)
	}
}

func (c *crew) finding(m *member, rule Rule, text string) {
	c.log.record(Event{Op: Finding, Worker: m.id, Life: m.life, Rule: rule, Error: text})
}
