//go:build unix

package campaign

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience limits the time that porcupine takes for one lock.
const patience = 30 * time.Second

// state is the state of a fenced lock. It is never changed.
type state struct {
	holders []*grant
	fence   uint64 // the highest of all grants
	written uint64 // the highest of all grants but those of readers
}

// step is one operation on the lock: the begin or the end of a grant.
type step struct {
	grant *grant
	ends  bool
}

// model returns the model of a fenced lock. A grant begins if the lock has room for it, with a
// higher fence than all earlier grants that it does not share the lock with. A grant ends by an
// Unlock, or on the server alone, while it is a present grant. An Adopt or a Downgrade replaces a
// present grant, and the fence may stay the same. A mutex has one holder, an RW lock has one writer
// or any number of readers, and a semaphore has a set of holders up to its limit. The permits of a
// semaphore begin in any order, so their fences have none.
func (l *lock) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, input, _ any) (bool, any) {
			now, do := s.(state), input.(step)
			if from := do.grant.source; from != nil && !do.ends {
				isNext := slices.Contains(now.holders, from) && do.grant.fence >= from.fence
				return isNext, now.without(from).with(do.grant)
			}
			if do.ends {
				return slices.Contains(now.holders, do.grant), now.without(do.grant)
			}
			return l.admits(now, do.grant), now.with(do.grant)
		},
		Equal:             func(a, b any) bool { return a.(state).equals(b.(state)) },
		DescribeOperation: func(input, _ any) string { return input.(step).String() },
		DescribeState:     func(s any) string { return s.(state).String() },
	}
}

// admits reports whether g may begin.
func (l *lock) admits(now state, g *grant) bool {
	rivals, fence := 0, now.fence
	for _, h := range now.holders {
		if !l.shares(h, g) {
			rivals++
		}
	}
	if g.reader {
		fence = now.written
	}
	return rivals < l.limit && (g.fence > fence || l.limit > 1)
}

func (s state) with(g *grant) state {
	s.holders = append(slices.Clone(s.holders), g)
	s.fence = max(s.fence, g.fence)
	if !g.reader {
		s.written = max(s.written, g.fence)
	}
	return s
}

func (s state) without(g *grant) state {
	is := func(h *grant) bool { return h == g }
	s.holders = slices.DeleteFunc(slices.Clone(s.holders), is)
	return s
}

// equals compares the holders as sets.
func (s state) equals(t state) bool {
	return s.fence == t.fence && s.written == t.written && len(s.holders) == len(t.holders) &&
		!slices.ContainsFunc(s.holders, func(g *grant) bool {
			return !slices.Contains(t.holders, g)
		})
}

func (s state) String() string {
	if len(s.holders) == 0 {
		return fmt.Sprintf("free after %d", s.fence)
	}
	return fmt.Sprintf("held by %v", s.holders)
}

func (s step) String() string {
	verb := "Lock"
	switch {
	case s.ends:
		return fmt.Sprintf("%s %d %s", s.grant.end, s.grant.fence, s.grant.result)
	case s.grant.source != nil && s.grant.reader:
		verb = "Downgrade"
	case s.grant.source != nil:
		verb = "Adopt"
	case s.grant.reader:
		verb = "RLock"
	}
	return fmt.Sprintf("%s → %d", verb, s.grant.fence)
}

// linearizable checks rule e.
func (j judge) linearizable(name string, grants []*grant) {
	round := j.rounds[name]
	if j.class(round) != X {
		return
	}
	model := j.lockOf(round).model()
	result := porcupine.CheckOperationsTimeout(model, j.operations(grants), patience)
	if result != porcupine.Ok {
		j.violation(RuleE, grants[0].asked, name, "porcupine: %s, %d grants", result, len(grants))
	}
}

// operations returns the two operations of each grant. An Adopt or a Downgrade is also the end of
// the grant before.
func (l *ledger) operations(grants []*grant) []porcupine.Operation {
	var operations []porcupine.Operation
	for _, g := range grants {
		client := g.worker*seats + g.loop
		begins := porcupine.Operation{
			ClientId: client, Input: step{g, false},
			Call: int64(g.asked), Return: int64(g.settled),
		}
		operations = append(operations, begins)
		if g.successor != nil {
			continue
		}
		from, to := l.release(g)
		ends := porcupine.Operation{
			ClientId: client, Input: step{g, true},
			Call: int64(from), Return: int64(to),
		}
		operations = append(operations, ends)
	}
	return operations
}

// release returns the times between which the server has freed the lock. Only an Unlock that
// returned nil proves the end of a grant.
func (l *ledger) release(g *grant) (from, to Instant) {
	never := l.Ended + 1
	if g.end == Unlock && g.result == "" && g.answered > 0 {
		return g.ended, g.answered
	}
	if g.end == Granted {
		return never, never
	}
	from = g.ended
	if g.isLost() {
		from = l.loss(g)
		for _, w := range l.stops(g.worker, g.asked, g.ended) {
			from = min(from, max(g.asked, w.from))
		}
	}
	return from, never
}
