package bench

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/dlock-go/dlock/backend/measure"
)

// row collects the Result of one subject. Its crews work at the same time. Its floor
// has its turns before them.
type row struct {
	Result
	subject    Subject
	kind       kind
	names      [][][]string // of each contender of each crew
	crews      []crew
	floor      *localCrew // nil if there is none
	closeFloor func() error

	tally, floorTally tally
	floorAllocs       *float64
	err               error

	mutex  *row // the row of the mutexes that a kind is compared with
	writer *row // the row of readers with a writer among them
}

// tally is the sum of the turns so far.
type tally struct {
	elapsed time.Duration
	pairs   int64
	changes int64
	shares  []int64 // visits by contender
	times   *hdrhistogram.Histogram
	merged  []grant // of one turn
}

// grant is a visit and its contender.
type grant struct {
	visit
	contender int
}

// addPairs adds a turn without contention.
func (t *tally) addPairs(visits [][]visit, elapsed time.Duration) {
	for i, list := range visits {
		t.count(i, len(list))
		for _, v := range list {
			record(t.times, v.Released-v.Asked)
		}
	}
	t.elapsed += elapsed
}

// addContended adds a turn on one lock that so many contenders can hold. Nothing is done while it
// is held, so each grant follows the release of the grant that is that many places before it. If
// the contender is another one, this is a hand-off.
func (t *tally) addContended(visits [][]visit, elapsed time.Duration, holders int) {
	t.merged = t.merged[:0]
	for i, list := range visits {
		t.count(i, len(list))
		for _, v := range list {
			t.merged = append(t.merged, grant{v, i})
		}
	}
	slices.SortFunc(t.merged, func(a, b grant) int { return cmp.Compare(a.Granted, b.Granted) })
	for i, before := range t.merged[:max(0, len(t.merged)-holders)] {
		if g := t.merged[i+holders]; g.contender != before.contender {
			t.changes++
			record(t.times, g.Granted-before.Granted)
		}
	}
	t.elapsed += elapsed
}

// addWaits adds the waits of one contender. Other contenders hold the lock for no time, so each
// wait counts from the call of Lock.
func (t *tally) addWaits(visits []visit, elapsed time.Duration) {
	t.count(0, len(visits))
	for _, v := range visits {
		record(t.times, v.Granted-v.Asked)
	}
	t.elapsed += elapsed
}

func (t *tally) count(contender, visits int) {
	if missing := contender + 1 - len(t.shares); missing > 0 {
		t.shares = append(t.shares, make([]int64, missing)...)
	}
	t.shares[contender] += int64(visits)
	t.pairs += int64(visits)
}

func (t *tally) rate(n int64) float64 {
	if t.elapsed <= 0 {
		return 0
	}
	return float64(n) / t.elapsed.Seconds()
}

// open opens a crew for each element of w.names, and the floor.
func (w *row) open(ctx context.Context, withFloor bool) (err error) {
	w.forget()
	for i, list := range w.names {
		var c crew
		k := w.kindOf(i)
		s := Settings{TTL: w.TTL, Handoff: w.Handoff && k != writer}
		if len(w.names) > 1 && w.subject.Command != nil {
			w.Separate = true
			c, err = startChild(ctx, w.subject.Command(), s, k, list)
		} else {
			c, err = newCrew(ctx, w.subject.Open, s, k, list)
		}
		if err != nil {
			return err
		}
		w.crews = append(w.crews, c)
		w.Contenders += len(list)
	}
	w.Processes = len(w.names)
	if withFloor {
		return w.openFloor(ctx, w.names[0])
	}
	return nil
}

// kindOf returns the kind of lock of a crew. A writer is the last crew of its row.
func (w *row) kindOf(crew int) kind {
	if w.kind == writer && crew < len(w.names)-1 {
		return reader
	}
	return w.kind
}

func (w *row) openFloor(ctx context.Context, names [][]string) error {
	conn, err := aside(ctx, w.subject)
	if err != nil {
		return err
	}
	w.closeFloor = conn.Close
	if floor, ok := conn.(measure.Floor); ok {
		w.floor = newFloorCrew(floor, w.subject.Prefix, names)
	}
	return nil
}

// forget resets the counts.
func (w *row) forget() {
	w.tally, w.floorTally = tally{times: newHistogram()}, tally{times: newHistogram()}
}

// turn runs a turn of the floor, and then a turn of all crews together.
func (w *row) turn(ctx context.Context, d time.Duration) error {
	if w.floor != nil {
		d /= 2
		visits, err := w.floor.turn(ctx, d)
		if err != nil {
			return err
		}
		w.floorTally.addPairs(visits, extent(visits))
	}
	parts := make([][][]visit, len(w.crews))
	errs := make([]error, len(w.crews))
	var wg sync.WaitGroup
	for i, c := range w.crews {
		wg.Go(func() { parts[i], errs[i] = c.turn(ctx, d) })
	}
	wg.Wait()
	if err := firstOf(errs); err != nil {
		return err
	}
	var elapsed time.Duration
	for _, visits := range parts {
		elapsed = max(elapsed, extent(visits))
	}
	switch visits := slices.Concat(parts...); {
	case w.kind == writer:
		w.tally.addWaits(visits[len(visits)-1], elapsed)
	case w.contended():
		w.tally.addContended(visits, elapsed, w.kind.holders())
	default:
		w.tally.addPairs(visits, elapsed)
	}
	return nil
}

// extent returns the time from the first to the last event of a crew. Children send their visits
// after it, which can take as long as the turn.
func extent(visits [][]visit) time.Duration {
	first, last := int64(math.MaxInt64), int64(0)
	for _, list := range visits { // each contender has a visit
		first = min(first, list[0].Asked)
		last = max(last, list[len(list)-1].Released)
	}
	return time.Duration(last - first)
}

// contended reports whether the contenders of w wait for each other.
func (w *row) contended() bool {
	return w.Locks == 1 && w.Contenders > 1 && (w.kind == exclusive || w.kind == permit)
}

func (w *row) close() {
	var wg sync.WaitGroup
	for _, c := range w.crews {
		wg.Go(func() { _ = c.close() }) // its locks end with their TTL
	}
	wg.Wait()
	if w.closeFloor != nil {
		_ = w.closeFloor()
	}
}

// finish makes the Result of the turns.
func (w *row) finish() {
	t, f := &w.tally, &w.floorTally
	w.Elapsed, w.Operations = t.elapsed, t.pairs
	if t.pairs == 0 {
		return
	}
	w.PerSecond, w.Latency = new(t.rate(t.pairs)), latencyOf(t.times)
	if w.contended() {
		w.Changes, w.Jain = new(t.rate(t.changes)), jain(t.shares)
	}
	if f.pairs > 0 {
		w.Floor = &FloorResult{Allocs: w.floorAllocs}
		w.Floor.PerSecond, w.Floor.Latency = f.rate(f.pairs), latencyOf(f.times)
		w.Floor.Ratio = w.Floor.PerSecond / *w.PerSecond
		if w.Contenders == 1 {
			w.Floor.Ratio = float64(w.Latency.P50) / float64(w.Floor.Latency.P50)
		}
	}
}

const (
	// longestTurn is the longest turn. It limits how long an interrupted run goes on.
	longestTurn = 500 * time.Millisecond
	// warmUp is the length of a first turn that does not count: clients open
	// their connections in it.
	warmUp = 20 * time.Millisecond
)

// takeTurns measures the rows in turns and reports them.
func (r *run) takeTurns(ctx context.Context, rows []*row, turns int, withFloor bool) {
	r.measure(ctx, rows, turns, withFloor)
	r.report(ctx, rows)
}

// measure opens the rows, lets each take at least so many turns, and closes them. A row that fails
// has no more turns.
func (r *run) measure(ctx context.Context, rows []*row, turns int, withFloor bool) {
	turns = max(turns, int((r.Duration+longestTurn-1)/longestTurn))
	for _, w := range rows {
		if w.err != nil {
			continue
		}
		w.err = w.open(ctx, withFloor)
		defer w.close()
		if w.err == nil {
			w.err = w.turn(ctx, warmUp)
			w.forget()
		}
	}
	for range turns {
		for _, w := range rows {
			if w.err == nil && ctx.Err() == nil {
				w.err = w.turn(ctx, r.Duration/time.Duration(turns))
			}
			r.step(w.subject, r.Duration/time.Duration(turns))
		}
	}
	for _, w := range rows {
		w.measureAllocs(ctx)
		w.measureCommands(ctx)
		w.finish()
	}
}

// report adds the results of the rows.
func (r *run) report(ctx context.Context, rows []*row) {
	for _, w := range rows {
		switch {
		case w.Unsupported:
			r.results = append(r.results, w.Result)
		case w.err != nil && ctx.Err() == nil:
			r.fail(w.Result, w.err)
		case w.Operations > 0:
			r.results = append(r.results, w.Result)
		}
	}
}

// measureAllocs measures rows with one contender only: otherwise the allocations could
// belong to another contender.
func (w *row) measureAllocs(ctx context.Context) {
	if w.Contenders != 1 || w.err != nil || ctx.Err() != nil {
		return
	}
	w.Allocs = w.crews[0].(*localCrew).allocs(ctx)
	if w.floor != nil {
		w.floorAllocs = w.floor.allocs(ctx)
	}
}

// measureCommands counts the commands of rows that lock several names at once.
func (w *row) measureCommands(ctx context.Context) {
	if w.kind != several || w.err != nil || ctx.Err() != nil {
		return
	}
	meter, err := newMeter(ctx, w.subject)
	if err != nil {
		return // the number stays unknown
	}
	defer meter.Close()
	w.PairCommands = w.crews[0].(*localCrew).commands(ctx, meter)
}
