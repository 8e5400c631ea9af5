package bench

import (
	"cmp"
	"context"
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
	subject Subject
	crews   []crew
	floor   *localCrew // nil if there is none
	beside  func() error

	tally, floorTally tally
	floorAllocs       *float64
	err               error
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

// addContended adds a turn on one lock. Each change of contender is a hand-off
// from the contender before.
func (t *tally) addContended(visits [][]visit, elapsed time.Duration) {
	t.merged = t.merged[:0]
	for i, list := range visits {
		t.count(i, len(list))
		for _, v := range list {
			t.merged = append(t.merged, grant{v, i})
		}
	}
	slices.SortFunc(t.merged, func(a, b grant) int { return cmp.Compare(a.Granted, b.Granted) })
	for i, g := range t.merged {
		if i > 0 && g.contender != t.merged[i-1].contender {
			t.changes++
			record(t.times, g.Granted-t.merged[i-1].Granted)
		}
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

// open opens a crew for each element of names, and the floor.
func (w *row) open(ctx context.Context, names [][][]string, withFloor bool) (err error) {
	w.forget()
	s := Settings{TTL: w.TTL, Handoff: w.Handoff}
	for _, list := range names {
		var c crew
		if len(names) > 1 && w.subject.Command != nil {
			w.Separate = true
			c, err = startChild(ctx, w.subject.Command(), s, list)
		} else {
			c, err = newCrew(ctx, w.subject.Open, s, list)
		}
		if err != nil {
			return err
		}
		w.crews = append(w.crews, c)
		w.Contenders += len(list)
	}
	w.Processes = len(names)
	if withFloor {
		return w.openFloor(ctx, names[0])
	}
	return nil
}

func (w *row) openFloor(ctx context.Context, names [][]string) error {
	conn, err := aside(ctx, w.subject)
	if err != nil {
		return err
	}
	w.beside = conn.Close
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
		start := time.Now()
		visits, err := w.floor.turn(ctx, d)
		if err != nil {
			return err
		}
		w.floorTally.addPairs(visits, time.Since(start))
	}
	parts := make([][][]visit, len(w.crews))
	errs := make([]error, len(w.crews))
	start := time.Now()
	var wg sync.WaitGroup
	for i, c := range w.crews {
		wg.Go(func() { parts[i], errs[i] = c.turn(ctx, d) })
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err := firstOf(errs); err != nil {
		return err
	}
	if visits := slices.Concat(parts...); w.contended() {
		w.tally.addContended(visits, elapsed)
	} else {
		w.tally.addPairs(visits, elapsed)
	}
	return nil
}

func (w *row) contended() bool { return w.Locks == 1 && w.Contenders > 1 }

func (w *row) close() {
	var wg sync.WaitGroup
	for _, c := range w.crews {
		wg.Go(func() { _ = c.close() }) // its locks end with their TTL
	}
	wg.Wait()
	if w.beside != nil {
		_ = w.beside()
	}
}

// finish returns the Result of the turns.
func (w *row) finish() Result {
	t, f := &w.tally, &w.floorTally
	w.Elapsed, w.Operations = t.elapsed, t.pairs
	if t.pairs == 0 {
		return w.Result
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
	return w.Result
}

const (
	// longestTurn is the longest turn. It limits how long an interrupted run goes on.
	longestTurn = 500 * time.Millisecond
	// warmUp is the length of a first turn that does not count: clients open
	// their connections in it.
	warmUp = 20 * time.Millisecond
)

// takeTurns opens the rows, lets each take at least so many turns, and closes them. A row that
// fails has no more turns.
func (r *run) takeTurns(
	ctx context.Context, rows []*row, turns int, names func(*row) [][][]string, withFloor bool,
) {
	turns = max(turns, int((r.Duration+longestTurn-1)/longestTurn))
	for _, w := range rows {
		w.err = w.open(ctx, names(w), withFloor)
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
		result := w.finish()
		switch {
		case w.err != nil && ctx.Err() == nil:
			r.fail(result, w.err)
		case result.Operations > 0:
			r.results = append(r.results, result)
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
