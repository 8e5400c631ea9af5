//go:build unix

package campaign

import (
	"cmp"
	"slices"
	"time"
)

// attempt names one Lock.
type attempt struct{ worker, life, loop, try int }

func (e Event) attempt() attempt { return attempt{e.Worker, e.Life, e.Loop, e.Try} }

// grant is one lease, from the call of Lock to the end of its holder's belief.
type grant struct {
	attempt
	name  string
	round int
	fence uint64

	asked, granted Instant
	earliest       Instant // of granted, as far as is known
	first          Instant // when the server was asked: asked, or that of the grant that was handed off to this one
	ended          Instant // of the belief: by the first of loss, call of Unlock, and death
	end            Op      // Unlock, Lost, Killed, or Granted: not ended
	answered       Instant // Unlock's return; 0: never
	result         string  // Unlock's error
}

// want is one call of Lock, successful or not.
type want struct {
	attempt
	name     string
	from, to Instant
	outcome  Op // Granted or Refused; Ask: none
	limited  bool
}

// window is the time of one fault.
type window struct {
	kind           Kind
	worker         int // Engine: the server's
	round          int
	name           string  // of a fault that hits one lock
	from, done, to Instant // begins, is in force, is over
}

// touches reports whether w may hit a worker in a time.
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
	access  map[string][]Event
	rounds  map[string]int // by name
	begun   []Instant      // of the rounds
	marks   []Instant      // when a fault begins or ends, a process is killed or ends, a round begins
	byTry   map[attempt]*grant
}

func newLedger(h *History) *ledger {
	l := &ledger{
		History: h, grants: make(map[string][]*grant), lags: make(map[int][]Event),
		access: make(map[string][]Event), rounds: make(map[string]int), byTry: make(map[attempt]*grant),
	}
	asked := make(map[attempt]want)
	open := make(map[int]window)
	for _, e := range h.Events {
		if e.Op == Killed || e.Op == Exited {
			l.bury(e, asked)
		}
		l.lock(e, asked)
		l.unlock(e)
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
		slices.SortStableFunc(grants, func(a, b *grant) int { return cmp.Compare(a.granted, b.granted) })
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

// handoffBits are the low bits of a fence, which count the hand-offs inside of a process.
const handoffBits = 12

// link finds for each grant the one that the server has made. The others were handed off from it.
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
		asked[e.attempt()] = want{attempt: e.attempt(), name: e.Name, from: e.At, outcome: Ask, limited: e.Limited}
	case Granted, Refused:
		w := asked[e.attempt()]
		delete(asked, e.attempt())
		w.to, w.outcome = e.At, e.Op
		l.wants = append(l.wants, w)
		if e.Op == Granted {
			g := &grant{
				attempt: w.attempt, name: e.Name, round: l.rounds[e.Name], fence: e.Fence,
				asked: w.from, granted: e.At, ended: l.Ended, end: Granted,
			}
			l.grants[e.Name] = append(l.grants[e.Name], g)
			l.byTry[g.attempt] = g
		}
	}
}

// unlock handles the events that end a belief.
func (l *ledger) unlock(e Event) {
	g := l.byTry[e.attempt()]
	switch e.Op {
	case Unlock, Lost:
		if g != nil && g.end == Granted {
			g.ended, g.end = e.At, e.Op
		}
	case Unlocked:
		if g != nil {
			g.answered, g.result = e.At, e.Error
		}
	case Read, Write:
		l.access[e.Name] = append(l.access[e.Name], e)
	}
}

// bury ends what a process had begun when it died.
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
		delete(l.byTry, key)
	}
}

// disturbance handles the events of faults, of processes and of lag.
func (l *ledger) disturbance(e Event, open map[int]window) {
	switch e.Op {
	case Lag:
		l.lags[e.Worker] = append(l.lags[e.Worker], e)
		return
	case Begin:
		open[e.Fault] = window{kind: e.Kind, worker: e.Worker, round: e.Round, name: e.Name, from: e.At}
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

// lag returns for how long the goroutines of a worker, or of the engine, ran late in a time.
func (l *ledger) lag(worker int, from, to Instant) time.Duration {
	var sum time.Duration
	if l.Settings.Shared {
		worker = Engine
	}
	lags := l.lags[worker]
	first, _ := slices.BinarySearchFunc(lags, from, func(e Event, at Instant) int { return cmp.Compare(e.At, at) })
	for _, e := range lags[first:] {
		begin := e.At.Add(-e.Late)
		if begin > to {
			break
		}
		sum += max(0, min(e.At, to).Sub(max(begin, from)))
	}
	return sum
}

// delay is the greater lag of a worker and of the engine: what the whole machine may have added to
// a time.
func (l *ledger) delay(worker int, from, to Instant) time.Duration {
	return max(l.lag(worker, from, to), l.lag(Engine, from, to))
}

// slowest returns the longest answer to an Unlock in a time: what a server on a slow machine adds. It
// leaves out answers that a fault has delayed.
func (l *ledger) slowest(from, to Instant) (slowest time.Duration) {
	for _, grants := range l.grants {
		for _, g := range grants {
			if g.end != Unlock || g.answered < from || g.ended > to || g.answered.Sub(g.ended) <= slowest {
				continue
			}
			if !slices.ContainsFunc(l.windows, func(w window) bool { return w.kind != Linger && w.touches(g.worker, g.ended, g.answered) }) {
				slowest = g.answered.Sub(g.ended)
			}
		}
	}
	return slowest
}

// stops returns the times in which a worker was stopped, of those that overlap from to to.
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

// span is a time from, to.
type span struct{ from, to Instant }

// belief returns when the holder of g could act on its belief: not while it was stopped, nor within
// the time that it has to learn of a loss after it was woken.
func (l *ledger) belief(g *grant) []span {
	var believed []span
	from := g.granted
	for _, w := range l.stops(g.worker, g.asked, g.ended) {
		if w.from > from {
			believed = append(believed, span{from, w.from})
		}
		from = max(from, w.to.Add(told+l.lag(g.worker, w.to, w.to.Add(told))))
	}
	if from < g.ended {
		believed = append(believed, span{from, g.ended})
	}
	return believed
}

// earliest is when g was granted at the earliest, by its events. They are late if the process was
// stopped while Lock returned.
func (l *ledger) earliest(g *grant) Instant {
	for _, w := range l.stops(g.worker, g.asked, g.granted) {
		return max(g.asked, w.from)
	}
	return g.granted
}

func (l *ledger) class(round int) Class {
	if round < len(l.Plan.Rounds) {
		return l.Plan.Rounds[round].Class
	}
	return X
}
