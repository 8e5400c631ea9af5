package faultproxy

import (
	"sync"
	"time"
)

// faults is the present state of the faults of the network.
type faults struct {
	mu    sync.Mutex
	until chan struct{} // closed by heal; nil if there is no cut
	drops []int         // for each DropReply, the number of replies up to the dropped one

	latency time.Duration // the sum of the present latencies
}

func (f *faults) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until == nil {
		f.until = make(chan struct{})
	}
}

func (f *faults) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until != nil {
		close(f.until)
		f.until = nil
	}
}

// healed returns a channel that is closed at the end of the present cut, or nil if there is no cut.
func (f *faults) healed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.until
}

func (f *faults) drop(nth int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drops = append(f.drops, nth)
}

func (f *faults) addLatency(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latency += d
}

// admit returns the latency of a chunk, and whether it must be dropped; requests have neither.
// DropReply does not count replies that a cut swallows.
func (f *faults) admit(reply bool) (latency time.Duration, drop bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !reply || f.until != nil {
		return 0, false
	}
	left := f.drops[:0]
	for _, n := range f.drops {
		if n == 1 {
			drop = true
		} else {
			left = append(left, n-1)
		}
	}
	f.drops = left
	return f.latency, drop
}
