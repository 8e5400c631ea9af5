//go:build unix

package campaign

import (
	"cmp"
	"slices"
	"time"
)

// attempt identifies one name of one call that acquires locks.
type attempt struct{ worker, life, loop, try, part int }

func (e Event) attempt() attempt { return attempt{e.Worker, e.Life, e.Loop, e.Try, e.Part} }

// call returns the attempt that stands for all names of the call.
func (a attempt) call() attempt {
	a.part = 0
	return a
}

// grant is one lease, from the call of Lock to the end of its holder's belief.
type grant struct {
	attempt
	name   string
	round  int
	fence  uint64
	reader bool

	asked, granted Instant
	earliest       Instant // the earliest possible time of the grant
	first          Instant // when the server's grant was requested
	ended          Instant // end of the belief: a loss, a call of Unlock, or the process's death
	end            Op      // Unlock, Export, Downgrade, Lost, Killed; Granted if it has not ended
	answered       Instant // the return of Unlock or Export; 0: it has not returned
	result         string  // the error of Unlock or Export

	// An Adopt or a Downgrade continues the source by its successor.
	source, successor *grant
	settled           Instant // the server has the grant; later than granted after a Downgrade

	isPart bool    // a set contains it
	losses int     // of the lease, and of the set that contains it
	over   Instant // the second loss, Unlock's return, or the process's death; 0: none of them
}

// isKept reports whether the server keeps the lock of g although the holder's belief has ended: the
// set that contains g has lost another of its leases. It keeps the lock until the set's Unlock
// returns, or g is lost, too.
func (g *grant) isKept(from, to Instant) bool {
	return g.isPart && g.end == Lost && from >= g.ended && (g.over == 0 || to <= g.over)
}

// lose counts a loss of g, or of the set that contains it. A lease without a set has one only.
func (g *grant) lose(at Instant) {
	if g.losses++; g.losses == 2 {
		g.over = cmp.Or(g.over, at)
	}
}

// want is one call that acquires locks, successful or not.
type want struct {
	attempt
	names    []string
	from, to Instant
	outcome  Op     // Granted or Refused; Ask if there is none
	reason   string // of the refusal
	limited  bool
	handle   string // what is adopted; empty: an attempt to lock
	// exported is the lease whose Export was not executed, or nil. Export is refused for some
	// seconds after a grant if an attempt before the grant had no answer.
	exported *grant
}

// window is the time of one fault.
type window struct {
	kind           Kind
	worker         int // Engine for the server
	round          int
	name           string  // of a fault that affects one lock
	from, done, to Instant // the fault begins, is in force, is over
}

// touches reports whether w can affect a worker between from and to.
func (w window) touches(worker int, from, to Instant) bool {
	return (w.worker == Engine || w.worker == worker) && w.from <= to && from <= w.to
}

// ledger is a history in the form that the rules need.
type ledger struct {
	*History
	grants  map[string][]*grant // by name, in the order of granted
	wants   []want
	windows []window
	lags    map[int][]Event // by worker
	chains  map[int][]Event // by worker
	answers []Event         // to the engine's requests, if they took long
	access  map[string][]Event
	rounds  map[string]int // by name
	begun   []Instant      // of the rounds
	marks   []Instant      // start or end of a fault, end of a process, start of a round
	byTry   map[attempt]*grant
	sets    map[attempt]*grantSet // by call
	handles map[string]*grant     // the grants that were exported

	requests []want // that concerned a lease and failed
}

// grantSet is the grants of one call that takes several names.
type grantSet struct {
	names  []string
	grants []*grant
}

func newLedger(h *History) *ledger {
	l := &ledger{
		History: h, grants: make(map[string][]*grant), rounds: make(map[string]int),
		lags: make(map[int][]Event), chains: make(map[int][]Event),
		access: make(map[string][]Event),
		byTry:  make(map[attempt]*grant), sets: make(map[attempt]*grantSet),
		handles: make(map[string]*grant),
	}
	asked := make(map[attempt]want)
	open := make(map[int]window)
	for _, e := range h.Events {
		if e.Op == Killed || e.Op == Exited {
			l.bury(e, asked)
		}
		l.lock(e, asked)
		l.unlock(e)
		l.move(e)
		l.disturbance(e, open)
	}
	for _, w := range asked {
		w.to = h.Ended
		l.wants = append(l.wants, w)
	}
	for _, w := range open {
		w.to = h.Ended
		if w.done == 0 {
			w.done = h.Ended
		}
		l.windows = append(l.windows, w)
	}
	for _, grants := range l.grants {
		slices.SortStableFunc(grants, func(a, b *grant) int {
			return cmp.Compare(a.granted, b.granted)
		})
		link(grants)
	}
	slices.SortFunc(l.windows, func(a, b window) int { return cmp.Compare(a.from, b.from) })
	slices.Sort(l.marks)
	for _, grants := range l.grants {
		for _, g := range grants {
			g.earliest = l.earliest(g)
		}
	}
	return l
}

// handoffBits are the low bits of a fence, which count the hand-offs in a process.
const handoffBits = 12

// link sets the field first of each grant. Grants of one process whose fences differ only in the
// handoffBits were handed off from one grant of the server.
func link(grants []*grant) {
	type source struct {
		worker, life int
		fence        uint64
	}
	first := make(map[source]Instant)
	for _, g := range grants {
		key := source{g.worker, g.life, g.fence >> handoffBits}
		if _, ok := first[key]; !ok {
			first[key] = g.asked
		}
		g.first = first[key]
	}
}

// lock handles the events of a Lock.
func (l *ledger) lock(e Event, asked map[attempt]want) {
	switch e.Op {
	case Ask:
		l.rounds[e.Name] = e.Round
		call := e.attempt().call()
		w, ok := asked[call]
		if !ok {
			w = want{attempt: call, from: e.At, outcome: Ask, limited: e.Limited, handle: e.Handle}
		}
		w.names = append(w.names, e.Name)
		asked[call] = w
	case Granted, Refused:
		call := e.attempt().call()
		w := asked[call]
		if e.Op == Granted {
			l.grant(e, w)
		}
		if e.Op == Refused || e.Part == len(w.names)-1 { // the last event of the call
			delete(asked, call)
			w.to, w.outcome, w.reason = e.At, e.Op, e.Error
			l.wants = append(l.wants, w)
		}
	}
}

// grant adds the grant of one of the names of w.
func (l *ledger) grant(e Event, w want) {
	g := &grant{
		attempt: e.attempt(), name: e.Name, round: l.rounds[e.Name], fence: e.Fence,
		reader: e.Reader, asked: w.from, granted: e.At, settled: e.At, ended: l.Ended,
		end: Granted,
	}
	if from := l.handles[w.handle]; from != nil {
		g.source = from
		if from.successor == nil {
			from.successor = g
		}
	}
	l.grants[e.Name] = append(l.grants[e.Name], g)
	l.byTry[g.attempt] = g
	if len(w.names) < 2 {
		return
	}
	g.isPart = true
	if l.sets[w.attempt] == nil {
		l.sets[w.attempt] = &grantSet{names: w.names}
	}
	l.sets[w.attempt].grants = append(l.sets[w.attempt].grants, g)
}

// unlock handles the events that end a belief, and the accesses.
func (l *ledger) unlock(e Event) {
	g := l.byTry[e.attempt()]
	switch e.Op {
	case Unlock, Lost:
		if g == nil {
			return
		}
		if g.end == Granted {
			g.ended, g.end = e.At, e.Op
		}
		if e.Op == Lost {
			g.lose(e.At)
		}
	case Unlocked:
		if g != nil {
			g.answered, g.result = e.At, e.Error
			g.over = cmp.Or(g.over, e.At)
		}
	case Read, Write:
		l.access[e.Name] = append(l.access[e.Name], e)
	}
}

// move handles the events of an Export and of a Downgrade.
func (l *ledger) move(e Event) {
	g := l.byTry[e.attempt()]
	if g == nil {
		return
	}
	switch e.Op {
	case Export:
		if g.end == Granted {
			g.ended, g.end = e.At, Export
		}
	case Exported:
		l.fail(e, g)
		if g.end == Export && !endsLease[e.Error] {
			g.ended, g.end = l.Ended, Granted
			return
		}
		g.answered, g.over, g.result = e.At, e.At, e.Error
		if e.Error == "" {
			l.handles[e.Handle] = g
		}
	case Downgrade:
		if g.end == Granted {
			l.downgrade(e, g)
		}
	case Downgraded:
		l.fail(e, g)
		if g.source != nil {
			l.downgraded(e, g)
		}
	}
}

// fail records an error that only a fault explains.
func (l *ledger) fail(e Event, g *grant) {
	if e.Error == "unavailable" || e.Error == "uncertain" {
		w := want{
			attempt: g.attempt, names: []string{g.name}, from: g.ended, to: e.At,
			outcome: Refused, reason: e.Error,
		}
		if e.Op == Exported && e.Error == "unavailable" {
			w.exported = g
		}
		l.requests = append(l.requests, w)
	}
}

// downgrade replaces the writer g by a reader. The server may make the change at any later time,
// unless Downgraded reports one.
func (l *ledger) downgrade(e Event, g *grant) {
	r := *g
	r.part, r.reader, r.source = 1, true, g
	r.asked, r.granted, r.settled = e.At, e.At, l.Ended+1
	g.ended, g.end, g.successor = e.At, Downgrade, &r
	l.grants[g.name] = append(l.grants[g.name], &r)
	l.byTry[e.attempt()] = &r
}

// downgraded handles the result of a Downgrade that made the reader r. If the server has refused
// it, r was the writer all the time. A lease that was lost meanwhile may have been a reader's
// before.
func (l *ledger) downgraded(e Event, r *grant) {
	if e.Error == "" {
		r.settled = e.At
	}
	if endsLease[e.Error] || isContextual[e.Error] {
		return
	}
	g := r.source
	g.ended, g.end, g.successor, g.losses = r.ended, r.end, nil, r.losses
	is := func(other *grant) bool { return other == r }
	l.grants[g.name] = slices.DeleteFunc(l.grants[g.name], is)
	l.byTry[e.attempt()] = g
}

// bury ends all attempts and beliefs of a process that died.
func (l *ledger) bury(e Event, asked map[attempt]want) {
	for key, w := range asked {
		if key.worker == e.Worker && key.life == e.Life {
			w.to = e.At
			l.wants = append(l.wants, w)
			delete(asked, key)
		}
	}
	for key, g := range l.byTry {
		if key.worker != e.Worker || key.life != e.Life {
			continue
		}
		if g.end == Granted {
			g.ended, g.end = e.At, Killed
		}
		if g.over == 0 {
			g.over = e.At
		}
		delete(l.byTry, key)
	}
}

// disturbance handles the events of faults, processes and lag.
func (l *ledger) disturbance(e Event, open map[int]window) {
	switch e.Op {
	case Lag:
		l.lags[e.Worker] = append(l.lags[e.Worker], e)
		return
	case Chain:
		l.chains[e.Worker] = append(l.chains[e.Worker], e)
		return
	case Answer:
		l.answers = append(l.answers, e)
		return
	case Begin:
		open[e.Fault] = window{
			kind: e.Kind, worker: e.Worker, round: e.Round, name: e.Name, from: e.At,
		}
	case Done:
		w := open[e.Fault]
		w.done = e.At
		open[e.Fault] = w
	case End:
		w := open[e.Fault]
		w.to = e.At
		delete(open, e.Fault)
		l.windows = append(l.windows, w)
	case Missed:
		delete(open, e.Fault)
	case RoundBegins:
		l.begun = append(l.begun, e.At)
	case Killed, Exited, Started:
	default:
		return
	}
	l.marks = append(l.marks, e.At)
}

// lag returns the total delay of the goroutines of a worker, or of the engine, between from and to.
func (l *ledger) lag(worker int, from, to Instant) (sum time.Duration) {
	lags := l.lags[l.metered(worker)]
	first, _ := slices.BinarySearchFunc(lags, from, atOrAfter)
	for _, e := range lags[first:] {
		begin := e.At.Add(-e.Late)
		if begin > to {
			break
		}
		sum += max(0, min(e.At, to).Sub(max(begin, from)))
	}
	return sum
}

// metered returns the worker whose process measures the lag of a worker.
func (l *ledger) metered(worker int) int {
	if l.Settings.Shared {
		return Engine
	}
	return worker
}

func atOrAfter(e Event, at Instant) int { return cmp.Compare(e.At, at) }

// loss returns the earliest time at which the client can have ended a lease whose loss was recorded
// at g.ended. Between the two are delays that were recorded, and at most a grain of other time: the
// meter's pause between two delays, and a delay that is too short. It is not before the record of
// the grant.
func (l *ledger) loss(g *grant) Instant {
	chains, at, left := l.chains[l.metered(g.worker)], g.ended, grain
	after, _ := slices.BinarySearchFunc(chains, at, atOrAfter)
	for _, e := range slices.Backward(chains[:min(after+1, len(chains))]) {
		between := max(0, at.Sub(e.At))
		if between >= left {
			break
		}
		if begin := e.At.Add(-e.Late); begin < at {
			at, left = begin, left-between
		}
	}
	return max(g.granted, at.Add(-left))
}

// delay is the larger lag of a worker and of the engine: the time that the whole machine can have
// added to a period.
func (l *ledger) delay(worker int, from, to Instant) time.Duration {
	return max(l.lag(worker, from, to), l.lag(Engine, from, to))
}

// stall returns the longest delay of three goroutines that wake each other, in the process of a
// worker or of the engine, between from and to.
func (l *ledger) stall(worker int, from, to Instant) (longest time.Duration) {
	for _, metered := range []int{l.metered(worker), Engine} {
		chains := l.chains[metered]
		first, _ := slices.BinarySearchFunc(chains, from, atOrAfter)
		for _, e := range chains[first:] {
			begin := e.At.Add(-e.Late)
			if begin > to {
				break
			}
			longest = max(longest, min(e.At, to).Sub(max(begin, from)))
		}
	}
	return longest
}

// slowest returns the longest answer to a request of the engine in a period: the time that a server
// adds on a slow machine. It omits answers that a fault of the server has delayed.
func (l *ledger) slowest(from, to Instant) (slowest time.Duration) {
	for _, e := range l.answers {
		sent := e.At.Add(-e.Late)
		if e.At < from || sent > to || e.Late <= slowest {
			continue
		}
		if !slices.ContainsFunc(l.windows, func(w window) bool {
			return w.touches(Engine, sent, e.At)
		}) {
			slowest = e.Late
		}
	}
	return slowest
}

// stops returns the windows of all stops of a worker that overlap with the period between from and
// to.
func (l *ledger) stops(worker int, from, to Instant) []window {
	var stops []window
	for _, w := range l.windows {
		stopped := w.kind == Stop || w.kind == StopShort || w.kind == StopWaiter
		if stopped && w.worker == worker && w.touches(worker, from, to) {
			stops = append(stops, w)
		}
	}
	return stops
}

// isLost reports whether the lease of g was lost, also if its Unlock or Export detected that first.
func (g *grant) isLost() bool {
	isOver := g.end == Unlock || g.end == Export
	return g.end == Lost || isOver && (g.result == "lost" || g.result == "not held")
}

// span is a period.
type span struct{ from, to Instant }

// belief returns the periods in which the holder of g could act on its belief. It omits the time in
// which the process was stopped, and the time that a woken holder has for the detection of a loss.
func (l *ledger) belief(g *grant) []span {
	var believed []span
	from := g.granted
	for _, w := range l.stops(g.worker, g.asked, g.ended) {
		if w.from > from {
			believed = append(believed, span{from, w.from})
		}
		from = max(from, l.awake(g.worker, w))
	}
	if from < g.ended {
		believed = append(believed, span{from, g.ended})
	}
	return believed
}

// awake returns when a worker that was stopped must have detected a loss: the limit after its
// waking, without the delays until then.
func (l *ledger) awake(worker int, w window) Instant {
	end, lags := w.to.Add(told), l.lags[l.metered(worker)]
	first, _ := slices.BinarySearchFunc(lags, w.to, atOrAfter)
	for _, e := range lags[first:] {
		begin := max(w.to, e.At.Add(-e.Late))
		if begin >= end {
			break
		}
		end = end.Add(e.At.Sub(begin))
	}
	return end
}

// earliest returns the earliest time at which g can have been granted. The event of a grant is late
// if the process was stopped while Lock returned.
func (l *ledger) earliest(g *grant) Instant {
	for _, w := range l.stops(g.worker, g.asked, g.granted) {
		return max(g.asked, w.from)
	}
	return g.granted
}

// queued returns the earliest time at which the request of g can have entered the queue of the
// server. A waiter that gives up leaves its place to the next waiter of its process, so the request
// is as old as the first of the attempts that were refused one after the other.
func (l *ledger) queued(g *grant) Instant {
	since := g.first
	for i := 0; i < len(l.wants); i++ {
		w := l.wants[i]
		if w.outcome == Refused && w.worker == g.worker && w.life == g.life &&
			w.from < since && w.to >= since && slices.Contains(w.names, g.name) {
			since, i = w.from, -1
		}
	}
	return since
}

// lockOf returns the kind of the locks of a round.
func (l *ledger) lockOf(round int) *lock {
	if round < len(l.Plan.Rounds) {
		return l.Plan.Rounds[round].Kind.lock()
	}
	return Mutex.lock()
}

func (l *ledger) class(round int) Class {
	if round < len(l.Plan.Rounds) {
		return l.Plan.Rounds[round].Class
	}
	return X
}
