//go:build unix

package campaign

import (
	"sync"
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
	lagTick      = 4 * time.Millisecond
	lagMinimum   = 5 * time.Millisecond // shorter delays are normal
	chainMinimum = time.Millisecond     // the same, of a chain
)

// meterLag reports how late goroutines of this process run, until stop is closed. Unlike a
// lag.Meter it reports each delay with its time, so that the judge can evaluate any period later. A
// Lag is the delay of a goroutine that a timer starts. A Chain is the delay of the third of three
// goroutines that wake each other. The detection of a loss is such a chain: the client ends the
// lease, then the context of a leader ends, then the worker records it. Each delay is counted from
// one lagTick after the end of the former chain. So delays do not overlap, and a report that takes
// long is part of the next delay.
func meterLag(stop <-chan struct{}, report func(Event)) {
	second, third := make(chan struct{}), make(chan struct{})
	var relay sync.WaitGroup
	relay.Go(func() {
		for range second {
			third <- struct{}{}
		}
	})
	defer relay.Wait()
	defer close(second)
	for last := Now(); ; {
		due := last.Add(lagTick)
		var first Instant
		time.AfterFunc(due.Sub(Now()), func() {
			first = Now()
			second <- struct{}{}
		})
		<-third
		last = Now()
		if late := first.Sub(due); late > lagMinimum {
			report(Event{At: first, Op: Lag, Late: late})
		}
		if late := last.Sub(due); late > chainMinimum {
			report(Event{At: last, Op: Chain, Late: late})
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}
