//go:build unix

package campaign

import (
	"slices"
	"time"
)

// Figures are the numbers of one campaign on one server.
type Figures struct {
	Server     string        `json:"server"`
	Version    string        `json:"version"`
	Seed       uint64        `json:"seed"`
	Date       string        `json:"date"`
	Took       time.Duration `json:"took"`
	TTL        time.Duration `json:"ttl"`
	Grants     int           `json:"grants"`
	Rounds     int           `json:"rounds"`
	Violations map[Rule]int  `json:"violations"`
	Voids      int           `json:"voids"` // losses while the machine was stopped or slow

	Kinds  map[LockKind]*KindFigures `json:"kinds"`
	Faults map[Kind]*FaultFigures    `json:"faults"`

	Handoff     Times         `json:"handoff"` // from an Unlock to the next grant, without faults
	KillToGrant Times         `json:"kill_to_grant"`
	StopToGrant Times         `json:"stop_to_grant"`
	WakeToLoss  Times         `json:"wake_to_loss"` // without the lag of the process
	TakeToLoss  Times         `json:"take_to_loss"`
	OverlapX    time.Duration `json:"overlap_x"`
	OverlapF    time.Duration `json:"overlap_f"`
	Accesses    int           `json:"accesses"`
	RefusedF    int           `json:"refused_writes"` // stale writes that the fence has refused
	LostFenced  int           `json:"lost_fenced"`
	LostPlain   int           `json:"lost_plain"`

	Election *ElectionFigures `json:"election,omitempty"`
}

// KindFigures are the numbers of one kind of lock, from the latest campaign that had the kind.
type KindFigures struct {
	Grants     int          `json:"grants"`
	Violations map[Rule]int `json:"violations"`
	Seed       uint64       `json:"seed"`
	Date       string       `json:"date"`
}

// FaultFigures are the numbers of one kind of fault.
type FaultFigures struct {
	Class    Class         `json:"class"`
	Injected int           `json:"injected"`
	Grants   int           `json:"grants"` // in the rounds with this fault
	Overlap  time.Duration `json:"overlap"`
}

// minInjected and minGrants are the numbers from which a fault counts.
const minInjected, minGrants = 3, 100

// Counts reports whether f has enough injections and grants to prove anything.
func (f *FaultFigures) Counts() bool { return f.Injected >= minInjected && f.Grants >= minGrants }

// Times has the median and the maximum of n times.
type Times struct {
	N   int           `json:"n"`
	P50 time.Duration `json:"p50"`
	Max time.Duration `json:"max"`
	all []time.Duration
}

func (t *Times) add(d time.Duration) {
	at, _ := slices.BinarySearch(t.all, d)
	t.all = slices.Insert(t.all, at, d)
	t.N, t.P50, t.Max = len(t.all), t.all[len(t.all)/2], t.all[len(t.all)-1]
}

// figures computes the figures that need no judgement.
func (j judge) figures() Figures {
	h := j.History
	f := Figures{
		Server: h.Settings.Server, Version: h.Version, Seed: h.Plan.Seed, TTL: h.Settings.TTL,
		Date: time.Now().UTC().Format(time.DateOnly), Rounds: len(j.begun),
		Violations: make(map[Rule]int), Faults: make(map[Kind]*FaultFigures),
		Kinds: make(map[LockKind]*KindFigures),
	}
	for _, k := range h.Settings.withDefaults().Kinds {
		f.Kinds[k] = &KindFigures{
			Violations: make(map[Rule]int), Seed: f.Seed, Date: f.Date,
		}
	}
	if len(h.Events) > 0 {
		f.Took = h.Ended.Sub(h.Events[0].At).Round(time.Second)
	}
	perRound := make(map[int]int)
	for _, grants := range j.grants {
		for _, g := range grants {
			if g.source != nil && g.reader { // a Downgrade
				continue
			}
			f.Grants++
			perRound[g.round]++
			if of := f.Kinds[j.lockOf(g.round).kind]; of != nil {
				of.Grants++
			}
		}
	}
	j.countFaults(&f, perRound)
	for _, all := range j.access {
		f.Accesses += len(all)
		for _, e := range all {
			if e.Op == Write && !e.Accepted {
				f.RefusedF++
			}
		}
	}
	for _, w := range j.windows {
		j.successions(&f, w)
	}
	return f
}

// countFaults counts the injections of each kind, and the grants in the rounds with that kind.
func (j judge) countFaults(f *Figures, perRound map[int]int) {
	for k, class := range j.Settings.Faults {
		f.Faults[k] = &FaultFigures{Class: class}
		hit := make(map[int]bool)
		for _, w := range j.windows {
			if w.kind == k {
				f.Faults[k].Injected++
				hit[w.round] = true
			}
		}
		for round := range hit {
			f.Faults[k].Grants += perRound[round]
		}
	}
}

// successions measures the times from the kill or stop of a holder to the next grant, if the next
// holder waited for that holder alone.
func (j judge) successions(f *Figures, w window) {
	times := &f.KillToGrant
	switch w.kind {
	case Kill:
	case Stop:
		times = &f.StopToGrant
	default:
		return
	}
	for _, grants := range j.grants {
		for i, g := range grants {
			if g.worker != w.worker || g.granted >= w.from || g.ended < w.from ||
				g.end == Unlock || i+1 == len(grants) || !j.lockOf(g.round).isSole {
				continue
			}
			next := grants[i+1]
			waited := next.asked < w.from.Add(j.Settings.TTL/2) // otherwise no worker waited
			if waited && next.granted > w.from && !j.hit(w.from, next.granted) {
				times.add(next.granted.Sub(w.from))
			}
		}
	}
}

// hit reports whether a fault of the server overlaps with a period.
func (j judge) hit(from, to Instant) bool {
	return slices.ContainsFunc(j.windows, func(w window) bool {
		return w.worker == Engine && w.from <= to && from <= w.to
	})
}

// overlap records the overlap of two beliefs, with the fault that caused it.
func (f *Figures) overlap(l *ledger, a, b *grant, over time.Duration) {
	if l.class(a.round) == X {
		f.OverlapX = max(f.OverlapX, over)
		return
	}
	f.OverlapF = max(f.OverlapF, over)
	var last *window // the latest fault before the overlap is the cause
	for i, w := range l.windows {
		if w.from <= b.granted && (w.worker == Engine || w.worker == a.worker) {
			last = &l.windows[i]
		}
	}
	if last != nil && f.Faults[last.kind] != nil {
		f.Faults[last.kind].Overlap = max(f.Faults[last.kind].Overlap, over)
	}
}

func (f *Figures) woken(late time.Duration) { f.WakeToLoss.add(max(0, late)) }
func (f *Figures) taken(late time.Duration) { f.TakeToLoss.add(max(0, late)) }

// countViolations counts the violations of each rule, also for each kind of lock.
func (j judge) countViolations() {
	f := &j.verdict.Figures
	for _, v := range j.verdict.Violations {
		f.Violations[v.Rule]++
		round, ok := j.rounds[v.Name]
		if !ok { // of no lock
			round = j.roundAt(v.At)
		}
		if of := f.Kinds[j.lockOf(round).kind]; of != nil {
			of.Violations[v.Rule]++
		}
	}
}

// roundAt returns the round that had begun last.
func (j judge) roundAt(at Instant) int {
	begun, isBegun := slices.BinarySearch(j.begun, at)
	if isBegun {
		return begun
	}
	return max(0, begun-1)
}
