//go:build unix

package campaign

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience limits the time that porcupine takes for one lock.
const patience = 30 * time.Second

// state is the state of a fenced mutex.
type state struct {
	holder *grant // nil: free
	fence  uint64 // of the last grant
}

// step is one operation on the mutex: the begin or the end of a grant.
type step struct {
	grant *grant
	ends  bool
}

// model is a fenced mutex. A grant begins on a free lock, with a higher fence than all earlier
// grants. A grant ends by an Unlock, or on the server alone, while it is the present grant.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, input, _ any) (bool, any) {
		now, do := s.(state), input.(step)
		if do.ends {
			return now.holder == do.grant, state{fence: now.fence}
		}
		return now.holder == nil && do.grant.fence > now.fence, state{do.grant, do.grant.fence}
	},
	DescribeOperation: func(input, _ any) string {
		do := input.(step)
		if do.ends {
			return fmt.Sprintf("%s %d %s", do.grant.end, do.grant.fence, do.grant.result)
		}
		return fmt.Sprintf("Lock → %d", do.grant.fence)
	},
	DescribeState: func(s any) string {
		if holder := s.(state).holder; holder != nil {
			return "held by " + holder.String()
		}
		return fmt.Sprintf("free after %d", s.(state).fence)
	},
}

// linearizable checks rule e.
func (j judge) linearizable(name string, grants []*grant) {
	if j.class(j.rounds[name]) != X {
		return
	}
	result := porcupine.CheckOperationsTimeout(model, j.operations(grants), patience)
	if result != porcupine.Ok {
		j.violation(RuleE, grants[0].asked, name, "porcupine: %s, %d grants", result, len(grants))
	}
}

// operations returns the two operations of each grant.
func (l *ledger) operations(grants []*grant) []porcupine.Operation {
	var operations []porcupine.Operation
	for _, g := range grants {
		client := g.worker*loopsPerWorker + g.loop
		begins := porcupine.Operation{
			ClientId: client, Input: step{g, false},
			Call: int64(g.asked), Return: int64(g.granted),
		}
		from, to := l.release(g)
		ends := porcupine.Operation{
			ClientId: client, Input: step{g, true},
			Call: int64(from), Return: int64(to),
		}
		operations = append(operations, begins, ends)
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
	if g.end == Lost || g.result == "lost" || g.result == "not held" {
		from = max(g.granted, g.ended.Add(-grain-l.lag(g.worker, g.granted, g.ended)))
		for _, w := range l.stops(g.worker, g.asked, g.ended) {
			from = min(from, max(g.asked, w.from))
		}
	}
	return from, never
}
