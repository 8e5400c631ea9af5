//go:build unix

package campaign

import (
	"context"
	"fmt"
)

// handoff is an exported lease on its way to another worker.
type handoff struct {
	ID     string `json:"id"` // for the history, because the text is a secret
	Text   string `json:"text"`
	Name   string `json:"name"`
	Round  int    `json:"round"`
	Chance uint64 `json:"chance,string"` // decides what happens to it
}

// Of so many leases or handles, one has the fate that the name of the constant describes.
const (
	oneExported     = 2  // the lease is exported
	oneAdoptedTwice = 4  // two workers try to adopt the handle
	oneForgotten    = 64 // no worker adopts the handle
	oneFatal        = 64 // the exporter is killed
)

// draw returns a number below n.
func (h *handoff) draw(n int) int {
	drawn := h.Chance % uint64(n)
	h.Chance /= uint64(n)
	return int(drawn)
}

// endsLease has the results of an Export after which the exporter has no lease.
var endsLease = map[string]bool{
	"": true, "uncertain": true, "lost": true, "not held": true, "closed": true,
}

// export exports the lease of h for another worker. It reports whether the lease has ended.
func (l *loop) export(ctx context.Context, round int, h *holding) (ended bool) {
	lease := h.leases[0]
	l.noteAll(h, Event{Op: Export})
	text, err := lease.Export(ctx)
	e := Event{Op: Exported, Error: classify(err)}
	if err == nil {
		e.Handle = fmt.Sprintf("%d.%d.%d.%d", l.Worker, l.Life, l.id, l.try)
	}
	l.noteAll(h, e)
	if err == nil {
		_ = l.send(report{Handoff: &handoff{
			ID: e.Handle, Text: text, Name: lease.Name(), Round: round, Chance: l.random.Uint64(),
		}})
	}
	return endsLease[e.Error]
}

// adoptAll adopts the handles that arrive, until ctx ends.
func (l *loop) adoptAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-l.handoffs:
			l.adopt(ctx, h)
		}
	}
}

// adopt makes one attempt to adopt a handle. If it gets a lease, it uses the lease.
func (l *loop) adopt(ctx context.Context, h handoff) {
	l.try++
	l.note(Event{Op: Ask, Name: h.Name, Round: h.Round, Handle: h.ID})
	got, err := hold(l.client.Adopt(ctx, h.Text))
	if err != nil {
		l.note(Event{Op: Refused, Name: h.Name, Error: classify(err)})
		return
	}
	l.hold(ctx, h.Round, Moved.lock(), got)
}

// downgrade makes the writer of h a reader. A lease that has ended already, as after a stop, cannot
// become a reader's, and the judge must not expect that it might.
func (l *loop) downgrade(ctx context.Context, h *holding) {
	if h.err() != nil {
		return
	}
	l.noteAll(h, Event{Op: Downgrade})
	err := h.downgrade(ctx)
	l.noteAll(h, Event{Op: Downgraded, Error: classify(err)})
	h.isDowngraded = err == nil
}

// pass gives the handle of a member to other members. It may kill the exporter.
func (c *crew) pass(m *member, h handoff) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.draw(oneForgotten) != 0 {
		n := len(c.members)
		adopter := m.id + 1 + h.draw(max(1, n-1))
		_ = c.members[adopter%n].orders.Encode(order{Handoff: &h})
		if h.draw(oneAdoptedTwice) == 0 {
			_ = c.members[(adopter+1)%n].orders.Encode(order{Handoff: &h})
		}
	}
	if _, ok := c.settings.Faults[Kill]; !ok || c.ended || h.draw(oneFatal) != 0 {
		return
	}
	c.wg.Go(func() {
		if c.kill(m) == nil {
			_ = c.live(m)
		}
	})
}

// moves checks rule a for an Export: its handle is adopted once, and no worker gets the lock
// between the Export and the Adopt.
func (j judge) moves(name string, grants []*grant) {
	for _, g := range grants {
		from := g.source
		if from == nil || from.end != Export {
			continue
		}
		if from.successor != g {
			j.violation(RuleA, g.granted, name, "%v and %v adopted the same handle",
				from.successor, g)
		}
		for _, b := range grants {
			between := b.earliest > from.answered && b.granted < g.asked && b.source != from
			if between && j.class(g.round) == X {
				j.violation(RuleA, b.granted, name, "%v got the lock between %v and %v", b, from, g)
			}
		}
	}
}

// adoptions checks rule k for the handles that no worker could adopt.
func (j judge) adoptions() {
	attempts := make(map[string][]want)
	for _, w := range j.wants {
		if w.handle != "" {
			attempts[w.handle] = append(attempts[w.handle], w)
		}
	}
	for handle, tries := range attempts {
		from := j.handles[handle]
		if from != nil && from.successor == nil && j.class(from.round) == X {
			j.refusedHandle(from, tries)
		}
	}
}

// refusedHandle checks that a fault, or the end of the handle's term, explains each refusal.
func (j judge) refusedHandle(from *grant, tries []want) {
	for _, w := range tries {
		late := w.to.Sub(from.ended) > j.Settings.TTL*7/8
		if w.outcome != Refused || isContextual[w.reason] || w.reason == "uncertain" || late ||
			j.isExcused(w) || j.isExcused(want{attempt: from.attempt, to: w.to}) {
			return
		}
	}
	j.violation(RuleK, tries[0].to, from.name, "the handle of %v was refused without a fault: %s",
		from, tries[0].reason)
}
