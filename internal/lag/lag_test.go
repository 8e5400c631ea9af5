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
		{"the longest of all", 0, 161, 100},
		{"the part of it since then", 60, 161, 50},
		{"the longest after it", 112, 161, 30},
		{"none", 150, 161, 0},
		{"a wake-up that is overdue", 150, 405, 240},
		{"an overdue wake-up, since then", 400, 405, 5},
	} {
		if got := m.worst(at(tt.since), at(tt.now)); got != time.Duration(tt.want)*time.Millisecond {
			t.Errorf("%s: %v, want %d ms", tt.what, got, tt.want)
		}
	}
	if len(m.late.peaks) > 3 {
		t.Errorf("%d peaks are kept", len(m.late.peaks))
	}
}

func TestPunctualProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, start := Start(), time.Now()
		time.Sleep(time.Minute)
		if got := m.Worst(start); got != 0 {
			t.Errorf("the lag is %v where the clock waits for each goroutine", got)
		}
		m.Stop()
		time.Sleep(time.Minute)
		if got := m.Worst(start); got != 0 {
			t.Errorf("the lag is %v after Stop", got)
		}
	})
}
