//go:build unix

package campaign

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	told  = 60 * time.Millisecond    // limit for the detection of a loss after waking
	bound = 500 * time.Millisecond   // tolerance for a promised time
	grain = chainTick + chainMinimum // the time in which a chain can be late without a record
)

// Rule is one of the rules of the package.
type Rule string

// The rules.
const (
	RuleA Rule = "a"
	RuleB Rule = "b"
	RuleC Rule = "c"
	RuleD Rule = "d"
	RuleE Rule = "e"
	RuleF Rule = "f"
	RuleG Rule = "g"
	RuleH Rule = "h"
	RuleK Rule = "k"
)

var rules = []Rule{RuleA, RuleB, RuleC, RuleD, RuleE, RuleF, RuleG, RuleH, RuleK}

// Violation is one breach of a rule.
type Violation struct {
	Rule Rule
	At   Instant
	Name string // of the lock; may be empty
	Text string
}

// Verdict is the judgement of a history.
type Verdict struct {
	Figures    Figures
	Violations []Violation

	ledger *ledger
}

// judge finds the violations in a ledger.
type judge struct {
	*ledger
	verdict *Verdict
}

// Judge applies all rules to a history.
func Judge(h *History) *Verdict {
	v := &Verdict{ledger: newLedger(h)}
	j := judge{v.ledger, v}
	v.Figures = j.figures()
	for name, grants := range j.grants {
		j.exclusion(name, grants)
		j.fences(name, grants)
		j.unlocks(name, grants)
		j.resource(name, grants)
		j.handoffs(name, grants)
		j.linearizable(name, grants)
		j.moves(name, grants)
	}
	j.sets()
	j.adoptions()
	for _, w := range j.windows {
		j.wakings(w)
		j.takings(w)
	}
	if v.Figures.Grants == 0 && !h.Cut {
		j.violation(RuleD, h.Ended, "", "nothing was granted")
	}
	j.gaps()
	j.losses()
	j.refusals()
	for _, e := range h.Events {
		if e.Op == Finding {
			j.violation(e.Rule, e.At, "", "worker %d: %s", e.Worker, e.Error)
		}
	}
	j.election()
	slices.SortFunc(v.Violations, func(a, b Violation) int { return int(a.At - b.At) })
	j.countViolations()
	return v
}

func (j judge) violation(r Rule, at Instant, name, format string, args ...any) {
	v := Violation{r, at, name, fmt.Sprintf(format, args...)}
	j.verdict.Violations = append(j.verdict.Violations, v)
}

func (g *grant) String() string {
	return fmt.Sprintf("worker %d.%d loop %d with fence %d", g.worker, g.life, g.loop, g.fence)
}

// rival is a grant whose belief overlaps with the belief of a later grant.
type rival struct {
	*grant
	over time.Duration
}

// exclusion checks rule a: no more beliefs overlap than the lock admits. In the classes F and U it
// measures the overlap.
func (j judge) exclusion(name string, grants []*grant) {
	lock := j.lockOf(j.rounds[name])
	for i, b := range grants {
		rivals := j.rivals(lock, grants[:i], b)
		if len(rivals) < lock.limit {
			continue
		}
		a := rivals[lock.limit-1]
		j.verdict.Figures.overlap(j.ledger, a.grant, b, a.over)
		if j.class(b.round) == X {
			j.violation(RuleA, b.granted, name, "%v and %v held at once for %v, the limit is %d",
				a, b, a.over, lock.limit)
		}
	}
}

// rivals returns the earlier grants that b does not share the lock with and whose beliefs overlap
// with the belief of b, the longest overlap first.
func (j judge) rivals(lock *lock, earlier []*grant, b *grant) (rivals []rival) {
	for _, a := range earlier {
		if a.ended <= b.granted || lock.shares(a, b) {
			continue
		}
		if over := j.over(a, b); over > 0 {
			rivals = append(rivals, rival{a, over})
		}
	}
	slices.SortFunc(rivals, func(a, b rival) int { return cmp.Compare(b.over, a.over) })
	return rivals
}

// sets checks rule a for the calls that take several names: the beliefs of a set begin and end
// together.
func (j judge) sets() {
	for _, s := range j.ledger.sets {
		first := slices.MinFunc(s.grants, byEnd)
		last := slices.MaxFunc(s.grants, byEnd)
		if first.end != Lost && first.end != Unlock {
			continue
		}
		if len(s.grants) < len(s.names) {
			j.violation(RuleA, first.granted, first.name, "%v got %d of %d names",
				first, len(s.grants), len(s.names))
		}
		late := last.ended.Sub(first.ended) - j.lag(first.worker, first.ended, last.ended)
		if late > told && len(j.stops(first.worker, first.ended, last.ended)) == 0 {
			j.violation(RuleA, last.ended, last.name, "%v outlived another lease of its set by %v",
				last, late)
		}
	}
}

func byEnd(a, b *grant) int { return cmp.Compare(a.ended, b.ended) }

// over returns the time for which both believe, without the delays of a's goroutines. A loss is
// detected late, so the belief of a lost lease ended at the earliest time that the delays allow.
func (j judge) over(a, b *grant) time.Duration {
	if a.isLost() {
		return overlap(clip(j.belief(a), j.loss(a)), j.belief(b))
	}
	return overlap(j.belief(a), j.belief(b)) - j.lag(a.worker, b.granted, a.ended)
}

// clip returns the part of a belief before to.
func clip(belief []span, to Instant) []span {
	clipped := slices.Clone(belief)
	for i := range clipped {
		clipped[i].to = min(clipped[i].to, to)
	}
	return clipped
}

// overlap returns the time for which both beliefs last.
func overlap(a, b []span) (sum time.Duration) {
	for _, s := range a {
		for _, t := range b {
			sum += max(0, min(s.to, t.to).Sub(max(s.from, t.from)))
		}
	}
	return sum
}

// fences checks rule b. Readers may have equal fences, and a lease that is exported or downgraded
// may keep its fence. If two holders are possible, the order of two grants is certain only if one
// was requested after the other. A permit may have been requested by an earlier waiter of its
// process.
func (j judge) fences(name string, grants []*grant) {
	lock := j.lockOf(j.rounds[name])
	unique := make(map[uint64]*grant)
	for i, g := range grants {
		other := unique[g.fence]
		if other != nil && other != g.source && !lock.shares(other, g) {
			j.violation(RuleB, g.granted, name, "%v and %v have the same fence", other, g)
		}
		unique[g.fence] = g
		before := g.granted + 1
		if j.class(g.round) != X || lock.limit > 1 {
			before = g.first
		}
		highest := lock.highest(grants[:i], g, before)
		if highest != nil && g.fence < highest.fence && lock.limit > 1 {
			highest = lock.highest(grants[:i], g, j.queued(g))
		}
		if highest != nil && g.fence < highest.fence && g.earliest >= highest.granted {
			j.violation(RuleB, g.granted, name, "%v was granted after %v", g, highest)
		}
	}
}

// highest returns the grant with the highest fence of the earlier grants that g does not share the
// lock with and that were granted before an Instant.
func (l *lock) highest(earlier []*grant, g *grant, before Instant) (highest *grant) {
	for _, e := range earlier {
		isHigher := highest == nil || e.fence > highest.fence
		if e.granted < before && isHigher && !l.shares(e, g) {
			highest = e
		}
	}
	return highest
}

// unlocks checks rule f, also for an Export. A semaphore may have granted other permits before an
// Unlock.
func (j judge) unlocks(name string, grants []*grant) {
	lock := j.lockOf(j.rounds[name])
	if lock.limit > 1 {
		return
	}
	for i, a := range grants {
		isOver := (a.end == Unlock || a.end == Export) && a.result == "" && a.answered > 0
		if !isOver || j.class(a.round) != X {
			continue
		}
		for _, b := range grants[i+1:] {
			if b.granted < a.ended && b.earliest > a.granted && !lock.shares(a, b) {
				j.violation(RuleF, a.ended, name,
					"%s of %v returned nil after the grant of %v", a.end, a, b)
				break
			}
		}
	}
}

// resource checks rule c.
func (j judge) resource(name string, grants []*grant) {
	by := make(map[attempt]*grant)
	for _, g := range grants {
		by[g.attempt] = g
	}
	var accepted []*grant // in the order of their accesses
	var fenced, plain int64
	for _, e := range j.access[name] {
		g := by[e.attempt()]
		if g == nil {
			continue
		}
		if e.Accepted {
			j.stale(e, g, accepted)
			accepted = append(accepted, g)
		} else {
			j.valid(e, g, accepted)
		}
		if e.Op != Write {
			continue
		}
		if e.Accepted && e.Fenced != fenced+1 {
			j.verdict.Figures.LostFenced++
			j.violation(RuleC, e.At, name, "%v has overwritten an update", g)
		}
		if e.Accepted {
			fenced = e.Fenced
		}
		if e.Plain != plain+1 {
			j.verdict.Figures.LostPlain++
		}
		plain = e.Plain
	}
}

// stale checks an access that was accepted: no later grant may have had access before it.
func (j judge) stale(e Event, g *grant, before []*grant) {
	for _, b := range slices.Backward(before[max(0, len(before)-100):]) {
		later := b.earliest > g.granted
		if j.class(g.round) != X {
			later = b.first > g.granted
		}
		if later && b != g && !j.lockOf(g.round).shares(b, g) {
			j.violation(RuleC, e.At, e.Name, "a stale %s of %v was accepted after one of %v",
				e.Op, g, b)
			return
		}
	}
}

// valid checks an access that was refused. The resource may refuse a holder that overlaps with a
// later holder.
func (j judge) valid(e Event, g *grant, before []*grant) {
	believed := slices.ContainsFunc(j.belief(g), func(s span) bool {
		return s.from <= e.At && e.At < s.to
	})
	if !believed || j.lag(g.worker, e.At.Add(-bound), e.At) > 0 {
		return
	}
	since := g.earliest
	if j.class(g.round) != X {
		since = g.first // a hand-off of a lost grant is no newer than the grant
	}
	newer := func(b *grant) bool { return b.granted > since }
	if j.class(g.round) != X && slices.ContainsFunc(before, newer) {
		return
	}
	j.violation(RuleC, e.At, e.Name, "a valid %s of %v was refused", e.Op, g)
}

// wakings checks rule a for a worker that was stopped for longer than a term.
func (j judge) wakings(w window) {
	stopped := w.kind == Stop || w.kind == StopWaiter
	if !stopped || w.to.Sub(w.from) < j.Settings.TTL {
		return
	}
	for name, grants := range j.grants {
		for _, g := range grants {
			if g.worker != w.worker || g.granted >= w.from || g.ended <= w.to {
				continue
			}
			late := g.ended.Sub(w.to) - j.lag(g.worker, w.to, g.ended)
			j.verdict.Figures.woken(late)
			if late > told {
				j.violation(RuleA, g.ended, name, "%v detected its loss %v after waking", g, late)
			}
		}
	}
}

// takings checks rule a for a holder whose lock an operator has taken.
func (j judge) takings(w window) {
	if !w.kind.takesLock() {
		return
	}
	limit := j.Settings.TTL/3 + bound
	for name, grants := range j.grants {
		if w.name != name && w.kind == Break {
			continue
		}
		for _, g := range grants {
			if g.granted >= w.from || g.ended <= w.done {
				continue
			}
			since := j.reachable(g.worker, w.done, g.ended)
			late := g.ended.Sub(since) - j.lag(g.worker, since, g.ended)
			j.verdict.Figures.taken(late)
			if late > limit && len(j.stops(g.worker, w.from, g.ended)) == 0 {
				j.violation(RuleA, g.ended, name, "%v held for %v after %s", g, late, w.kind)
			}
		}
	}
}

// reachable returns the time from which the server could notify a worker: the end of the last fault
// that separated them.
func (j judge) reachable(worker int, from, to Instant) Instant {
	since := from
	for _, w := range j.windows {
		if w.touches(worker, from, to) && !w.kind.takesLock() && w.kind != Linger {
			since = max(since, min(w.to, to))
		}
	}
	return since
}

// losses checks rule k.
func (j judge) losses() {
	for name, grants := range j.grants {
		for _, g := range grants {
			if !g.isLost() || j.class(g.round) != X || j.explained(g) {
				continue
			}
			since := g.ended.Add(-j.Settings.TTL)
			if j.delay(g.worker, since, g.ended)+j.slowest(since, g.ended) > j.Settings.TTL/8 {
				j.verdict.Figures.Voids++
				continue
			}
			j.violation(RuleK, g.ended, name, "%v lost its lease without a fault", g)
		}
	}
}

// explained reports whether a fault explains the loss of g. Under a fault of a weaker class no
// lease must survive.
func (j judge) explained(g *grant) bool {
	since := g.ended.Add(-2 * j.Settings.TTL)
	return slices.ContainsFunc(j.windows, func(w window) bool {
		mayCost := !w.kind.costsNoLease() || !j.isStrong(w.kind) || j.isOverlong(w)
		return mayCost && w.touches(g.worker, since, g.ended)
	})
}

// isOverlong reports whether a short stop lasted for longer than planned, because the machine was
// slow: by more than an eighth of the TTL.
func (j judge) isOverlong(w window) bool {
	limit := w.kind.length(j.Settings.TTL) + j.Settings.TTL/8
	return (w.kind == StopShort || w.kind == PauseShort) && w.to.Sub(w.from) > limit
}

// isStrong reports whether all rules hold under k. A fault without a class is in no schedule.
func (j judge) isStrong(k Kind) bool {
	class, ok := j.Settings.Faults[k]
	return !ok || class == X
}

// refusals checks rule k for an attempt that ended with an error. The end of its context is no
// error, and a fault of the server or of the network explains each other one.
func (j judge) refusals() {
	for _, w := range slices.Concat(j.wants, j.requests) {
		if w.outcome != Refused || w.limited || w.handle != "" || isContextual[w.reason] ||
			j.isExcused(w) {
			continue
		}
		j.violation(RuleK, w.to, w.names[0], "worker %d.%d loop %d was refused without a fault: %s",
			w.worker, w.life, w.loop, w.reason)
	}
}

// isExcused reports whether a fault or a slow machine explains the error of w.
func (j judge) isExcused(w want) bool {
	since := w.to.Add(-2 * j.Settings.TTL)
	if w.exported != nil {
		since = min(since, w.exported.first)
	}
	if slices.ContainsFunc(j.windows, func(f window) bool {
		return f.kind != Linger && f.touches(w.worker, since, w.to)
	}) {
		return true
	}
	if j.delay(w.worker, since, w.to)+j.slowest(since, w.to) > j.Settings.TTL/8 {
		j.verdict.Figures.Voids++
		return true
	}
	return false
}

// isContextual has the reasons of a refusal that the worker has caused itself.
var isContextual = map[string]bool{"": true, "canceled": true, "deadline": true, "closed": true}
