//go:build unix

package campaign

import (
	"time"

	"golang.org/x/sys/unix"
)

// Instant is a reading of CLOCK_MONOTONIC in nanoseconds. Instants of different processes on one
// machine can be compared.
type Instant int64

// Now returns the present Instant.
func Now() Instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every supported system has this clock
	}
	return Instant(t.Nano())
}

// Add returns i + d.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns i - j.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// meterAnswers reports the requests of the engine that take long, until stop is closed.
func meterAnswers(
	stop <-chan struct{}, probe func() error, report func(at Instant, took time.Duration),
) {
	for {
		begun := Now()
		_ = probe() // an error took as long as an answer would
		if at := Now(); at.Sub(begun) > lagMinimum {
			report(at, at.Sub(begun))
		}
		select {
		case <-stop:
			return
		case <-time.After(answerTick):
		}
	}
}

const answerTick = 50 * time.Millisecond // between two requests

const (
	lagTick    = 5 * time.Millisecond
	lagMinimum = 5 * time.Millisecond // shorter delays are normal
)

// meterLag reports how late a goroutine of this process wakes, until stop is closed. Unlike a
// lag.Meter it reports each delay with its time, so that the judge can evaluate any period later.
func meterLag(stop <-chan struct{}, report func(at Instant, late time.Duration)) {
	tick := time.NewTimer(lagTick)
	defer tick.Stop()
	for {
		due := Now().Add(lagTick)
		tick.Reset(lagTick)
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if at := Now(); at.Sub(due) > lagMinimum {
			report(at, at.Sub(due))
		}
	}
}
