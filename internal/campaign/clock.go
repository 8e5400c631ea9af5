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
	lagTick    = 5 * time.Millisecond
	lagMinimum = 5 * time.Millisecond // shorter delays are normal

	chainTick    = 4 * time.Millisecond
	chainMinimum = time.Millisecond // shorter delays are normal
)

// meterLag reports how late a goroutine of this process wakes, until stop is closed. Unlike a
// lag.Meter it reports each delay with its time, so that the judge can evaluate any period later.
func meterLag(stop <-chan struct{}, report func(Event)) {
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
			report(Event{At: at, Op: Lag, Late: at.Sub(due)})
		}
	}
}

// meterChain reports how late the last of three goroutines runs that wake each other, until stop is
// closed. The detection of a loss is such a chain: the client ends the lease, then the context of a
// leader ends, then the worker records it. Each delay is counted from one chainTick after the end
// of the former one. So delays do not overlap, and a report that takes long, because the process
// has no processor, is part of the next delay.
func meterChain(stop <-chan struct{}, report func(Event)) {
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
		due := last.Add(chainTick)
		time.AfterFunc(due.Sub(Now()), func() { second <- struct{}{} })
		<-third // before stop, because second must not be closed while a goroutine sends
		if last = Now(); last.Sub(due) > chainMinimum {
			report(Event{At: last, Op: Chain, Late: last.Sub(due)})
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}
