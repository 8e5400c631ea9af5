//go:build unix

package campaign

import (
	"cmp"
	"slices"
	"time"
)

// gaps checks rule d: if a healthy worker waits for a free lock, the lock is granted in time. The
// time starts again with each fault, each death of a process and each end of a belief.
func (j judge) gaps() {
	limit := j.Settings.Expiry + bound
	for _, w := range chains(j.wants) {
		if w.to.Sub(w.from) <= limit {
			continue
		}
		from := w.from
		for _, to := range append(j.between(w), w.to) {
			if to.Sub(from) > limit && !j.held(w, from, to) &&
				!j.disturbed(w.worker, from, to) &&
				to.Sub(from)-j.allowance(w.worker, from, to) > limit {
				j.violation(RuleD, to, w.names[0], "worker %d.%d loop %d waited %v for a free lock",
					w.worker, w.life, w.loop, to.Sub(from))
				break
			}
			from = to
		}
	}
}

// requests is the number of requests, one after the other, that pass a lock on: the release,
// another attempt, and the read of a queue or of a fence.
const requests = 3

// allowance is the time that a slow machine adds to a hand-off: the lag of the processes, or their
// longest stall, because goroutines wake each other in a hand-off, and the answers of the server.
func (j judge) allowance(worker int, from, to Instant) time.Duration {
	lag := max(j.delay(worker, from, to), j.stall(worker, from, to))
	return lag + requests*j.slowest(from.Add(-bound), to)
}

// chains joins consecutive attempts of a loop without a grant. An attempt with a deadline of a few
// milliseconds begins no chain.
func chains(wants []want) []want {
	wants = slices.Clone(wants)
	slices.SortFunc(wants, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.worker, b.worker), cmp.Compare(a.life, b.life),
			cmp.Compare(a.loop, b.loop), cmp.Compare(a.try, b.try))
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
	return w.outcome == Refused && slices.Equal(w.names, next.names) && w.worker == next.worker &&
		w.life == next.life && w.loop == next.loop && w.try+1 == next.try &&
		next.from.Sub(w.to) < 100*time.Millisecond
}

// between returns the times at which the time limit of rule d starts again while w waits.
func (j judge) between(w want) []Instant {
	var points []Instant
	first, _ := slices.BinarySearch(j.marks, w.from)
	for _, at := range j.marks[first:] {
		if at >= w.to {
			break
		}
		points = append(points, at)
	}
	for _, name := range w.names {
		for _, g := range j.grants[name] {
			for _, at := range []Instant{g.granted, g.ended, g.over, g.answered} {
				if at > w.from && at < w.to {
					points = append(points, at)
				}
			}
		}
	}
	slices.Sort(points)
	return points
}

// held reports whether the holders of one of the wanted names keep w out between from and to: as
// many as the limit, in processes that are not stopped. No belief may begin or end in this period.
// A reader can wait for a reader, because a writer waits between them. A set that has lost one of
// its leases keeps the others until its Unlock.
func (j judge) held(w want, from, to Instant) bool {
	covers := func(s span) bool { return s.from <= from.Add(bound) && s.to >= to }
	return slices.ContainsFunc(w.names, func(name string) bool {
		holders := 0
		for _, g := range j.grants[name] {
			believed := g.granted <= from && g.ended >= to &&
				slices.ContainsFunc(j.belief(g), covers)
			if believed || g.isKept(from, to) {
				holders++
			}
		}
		return holders >= j.lockOf(j.rounds[name]).limit
	})
}

// disturbed reports whether a fault separates a worker from the lock between from and to. No fault
// may begin or end in this period.
func (j judge) disturbed(worker int, from, to Instant) bool {
	return slices.ContainsFunc(j.windows, func(w window) bool {
		return (w.worker == Engine || w.worker == worker) &&
			w.from <= from && w.to >= to && w.kind != Linger
	})
}

// handoffs checks rule d for a release. It requires a time without faults that is long enough for
// all dead waiters to expire. Then the next waiter gets the lock long before the end of the term
// that a lost wake-up would cost. A set waits for several names, so it is not checked.
func (j judge) handoffs(name string, grants []*grant) {
	lock := j.lockOf(j.rounds[name])
	if lock.isSet {
		return
	}
	for i, next := range grants {
		g := lock.predecessor(grants[:i], next)
		if g == nil {
			continue
		}
		from := max(g.ended, next.asked)
		released := g.end == Unlock && g.result == "" && g.answered > 0 && next.granted > g.ended
		if !released || !j.calm(g.ended.Add(-j.Settings.Expiry-bound/2), next.granted) {
			continue
		}
		took := next.granted.Sub(from)
		j.verdict.Figures.Handoff.add(took)
		limit := j.Settings.TTL / 4
		if took > limit && took-j.allowance(next.worker, from, next.granted) > limit {
			j.violation(RuleD, next.granted, name, "%v got the lock %v after the Unlock of %v",
				next, took, g)
		}
	}
}

// predecessor returns the grant that had to end before next could begin. Of the earlier grants that
// next does not share the lock with, it is the grant that ended last.
func (l *lock) predecessor(earlier []*grant, next *grant) (last *grant) {
	for _, g := range earlier {
		if !l.shares(g, next) && (last == nil || g.ended >= last.ended) {
			last = g
		}
	}
	return last
}

// calm reports whether the period has no fault except a long critical section, and no start or end
// of a process.
func (j judge) calm(from, to Instant) bool {
	first, _ := slices.BinarySearch(j.marks, from)
	if first < len(j.marks) && j.marks[first] <= to {
		return false
	}
	return !slices.ContainsFunc(j.windows, func(w window) bool {
		return w.from <= to && from <= w.to && w.kind != Linger
	})
}
