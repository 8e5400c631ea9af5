package lag

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWorst(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	m := &Meter{due: at(5)}
	for _, woke := range []int{5, 110, 115, 150, 155, 160} { // late by 0, 100, 0, 30, 0 and 0 ms
		m.wake(at(woke))
	}
	for _, tt := range []struct {
		what       string
		since, now int
		want       int // ms
	}{
		{"the longest of all delays", 0, 161, 100},
		{"only the part after since", 60, 161, 50},
		{"the longest of the later delays", 112, 161, 30},
		{"no delay", 150, 161, 0},
		{"an overdue wake-up", 150, 405, 240},
		{"only the part of an overdue wake-up after since", 400, 405, 5},
	} {
		want := time.Duration(tt.want) * time.Millisecond
		if got := m.worst(at(tt.since), at(tt.now)); got != want {
			t.Errorf("%s: %v, want %d ms", tt.what, got, tt.want)
		}
	}
	if len(m.late.peaks) > 3 {
		t.Errorf("the Record keeps %d peaks, want at most 3", len(m.late.peaks))
	}
}

func TestPunctualProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, start := Start(), time.Now()
		time.Sleep(time.Minute)
		if got := m.Worst(start); got != 0 {
			t.Errorf("the lag is %v on a clock that waits for all goroutines", got)
		}
		m.Stop()
		time.Sleep(time.Minute)
		if got := m.Worst(start); got != 0 {
			t.Errorf("the lag is %v after Stop", got)
		}
	})
}
