//go:build unix

package campaign

import (
	"cmp"
	"slices"
	"time"
)

// gaps is rule d: a lock that a healthy worker wants and that is free is granted in time. Each
// fault, each death and each end of a belief starts the time again.
func (j judge) gaps() {
	limit := j.Settings.Expiry + bound
	for _, w := range chains(j.wants) {
		if w.to.Sub(w.from) <= limit {
			continue
		}
		from := w.from
		for _, to := range append(j.between(w), w.to) {
			if to.Sub(from) > limit && !j.held(w.name, from, to) && !j.disturbed(w.worker, from, to) &&
				to.Sub(from)-j.allowance(w.worker, from, to) > limit {
				j.violation(RuleD, to, w.name, "worker %d.%d loop %d waited %v for a lock that was free", w.worker, w.life, w.loop, to.Sub(from))
				break
			}
			from = to
		}
	}
}

// requests is how many requests one after the other pass a lock on: the release, another attempt, and
// the reading of a queue or of a fence.
const requests = 3

// allowance is what a slow machine adds to a hand-off: the lag of the processes, and the answers of
// the server.
func (j judge) allowance(worker int, from, to Instant) time.Duration {
	return j.delay(worker, from, to) + requests*j.slowest(from.Add(-bound), to)
}

// chains joins the attempts of a loop that follow each other without a grant. Attempts with a
// deadline of a few milliseconds begin no chain.
func chains(wants []want) []want {
	wants = slices.Clone(wants)
	slices.SortFunc(wants, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.worker, b.worker), cmp.Compare(a.life, b.life), cmp.Compare(a.loop, b.loop), cmp.Compare(a.try, b.try))
	})
	var chains []want
	for _, w := range wants {
		last := len(chains) - 1
		switch {
		case last >= 0 && chains[last].follows(w):
			chains[last].to, chains[last].outcome, chains[last].try = w.to, w.outcome, w.try
		case !w.limited:
			chains = append(chains, w)
		}
	}
	return chains
}

// follows reports whether next continues an attempt that was refused.
func (w want) follows(next want) bool {
	return w.outcome == Refused && w.name == next.name && w.worker == next.worker && w.life == next.life &&
		w.loop == next.loop && w.try+1 == next.try && next.from.Sub(w.to) < 100*time.Millisecond
}

// between returns when the time of rule d starts again while w waits.
func (j judge) between(w want) []Instant {
	var points []Instant
	first, _ := slices.BinarySearch(j.marks, w.from)
	for _, at := range j.marks[first:] {
		if at >= w.to {
			break
		}
		points = append(points, at)
	}
	for _, g := range j.grants[w.name] {
		for _, at := range []Instant{g.granted, g.ended, g.answered} {
			if at > w.from && at < w.to {
				points = append(points, at)
			}
		}
	}
	slices.Sort(points)
	return points
}

// held reports whether a worker believes in a lease on the lock, and is not stopped, during a time
// in which no belief begins or ends.
func (j judge) held(name string, from, to Instant) bool {
	return slices.ContainsFunc(j.grants[name], func(g *grant) bool {
		return g.granted <= from && g.ended >= to && slices.ContainsFunc(j.belief(g), func(s span) bool {
			return s.from <= from.Add(bound) && s.to >= to
		})
	})
}

// disturbed reports whether a fault keeps a worker from the lock during a time in which no fault
// begins or ends.
func (j judge) disturbed(worker int, from, to Instant) bool {
	return slices.ContainsFunc(j.windows, func(w window) bool {
		return (w.worker == Engine || w.worker == worker) && w.from <= from && w.to >= to && w.kind != Linger
	})
}

// handoffs is rule d for a release: if nothing has happened to anything for so long that no dead
// waiter is left, the next waiter has the lock long before the end of the term that a lost wake-up
// would cost it.
func (j judge) handoffs(name string, grants []*grant) {
	for i, g := range grants[:max(0, len(grants)-1)] {
		next := grants[i+1]
		from := max(g.ended, next.asked)
		released := g.end == Unlock && g.result == "" && g.answered > 0 && next.granted > g.ended
		if !released || !j.calm(g.ended.Add(-j.Settings.Expiry-bound/2), next.granted) {
			continue
		}
		took := next.granted.Sub(from)
		j.verdict.Figures.Handoff.add(took)
		if limit := j.Settings.TTL / 4; took > limit && took-j.allowance(next.worker, from, next.granted) > limit {
			j.violation(RuleD, next.granted, name, "%v got the lock %v after the Unlock of %v", next, took, g)
		}
	}
}

// calm reports whether no fault but a long critical section lay in a time, and no process began or
// ended.
func (j judge) calm(from, to Instant) bool {
	first, _ := slices.BinarySearch(j.marks, from)
	if first < len(j.marks) && j.marks[first] <= to {
		return false
	}
	return !slices.ContainsFunc(j.windows, func(w window) bool { return w.from <= to && from <= w.to && w.kind != Linger })
}
