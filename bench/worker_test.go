package bench

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"
)

func TestVisitsSurviveTheTransfer(t *testing.T) {
	t.Parallel()
	for _, want := range [][]visit{
		{},
		{{1, 2, 3}},
		{{math.MinInt64, 0, math.MaxInt64}, {1_795_000_000_123_456_789, -1, 1<<53 + 1}},
	} {
		if got := decodeVisits(encodeVisits(want)); !slices.Equal(got, want) {
			t.Errorf("%v became %v", want, got)
		}
	}
}

// slowCrew is a crew whose visits take a second, and which returns them at another time.
type slowCrew struct{ start int64 }

func (c slowCrew) turn(context.Context, time.Duration) ([][]visit, error) {
	second := c.start + int64(time.Second)
	return [][]visit{
		{{c.start + 2, c.start + 3, c.start + 5}, {c.start + 5, second - 1, second}},
		{{c.start, c.start + 1, c.start + 2}},
	}, nil
}

func (slowCrew) close() error { return nil }

// TestRateExcludesTheTransfer checks that the rate of a turn is about the time of its visits. The
// time at which the crew returns them does not matter, nor does the clock of another process.
func TestRateExcludesTheTransfer(t *testing.T) {
	t.Parallel()
	w := &row{crews: []crew{slowCrew{0}, slowCrew{int64(time.Hour)}}, kind: reader}
	w.forget()
	if err := w.turn(t.Context(), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if w.finish(); w.Elapsed != time.Second || *w.PerSecond != 6 {
		t.Errorf("%d pairs in %v, %v per second", w.Operations, w.Elapsed, *w.PerSecond)
	}
}
