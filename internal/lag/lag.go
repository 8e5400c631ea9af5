// Package lag measures how late a process wakes its goroutines. A test that checks a promised time
// subtracts the lag, because the machine caused it. A process of the campaign records the lag.
package lag

import (
	"sync"
	"time"
)

// tick is the time between two wake-ups of a Meter. 200 wake-ups a second cost a few microseconds
// each.
const tick = 5 * time.Millisecond

// Meter is a goroutine that sleeps and records how late it wakes. Its methods may be called from
// several goroutines.
type Meter struct {
	stop chan struct{}
	done sync.WaitGroup

	mu   sync.Mutex
	due  time.Time // of the next wake-up
	late Record    // delays of the wake-ups
}

// Record keeps the longest delays. Its zero value is empty. The caller guards it with a mutex.
type Record struct {
	peaks []peak // in order of time; each is longer than all later ones
}

// peak is one delay, for example the lateness of a wake-up.
type peak struct {
	end  time.Time
	took time.Duration
}

// Add adds a delay. It must not have ended before the delays that were added earlier. Add drops all
// delays that the new one covers, so that few remain.
func (r *Record) Add(end time.Time, took time.Duration) {
	for n := len(r.peaks); n > 0 && r.peaks[n-1].took <= took; n-- {
		r.peaks = r.peaks[:n-1]
	}
	r.peaks = append(r.peaks, peak{end: end, took: took})
}

// Worst returns the longest delay after since. If a delay began before since, only its part after
// since counts.
func (r *Record) Worst(since time.Time) time.Duration {
	var worst time.Duration
	for _, p := range r.peaks {
		worst = max(worst, min(p.took, p.end.Sub(since)))
	}
	return worst
}

// Start starts a Meter. The caller must call Stop.
func Start() *Meter {
	m := &Meter{stop: make(chan struct{}), due: time.Now().Add(tick)}
	m.done.Go(m.run)
	return m
}

// Stop ends the goroutine and waits for its end. Worst still works afterwards.
func (m *Meter) Stop() {
	close(m.stop)
	m.done.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.due = time.Time{}
}

func (m *Meter) run() {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-m.stop:
			return
		case <-timer.C:
			m.wake(time.Now())
			timer.Reset(tick)
		}
	}
}

// wake records a wake-up.
func (m *Meter) wake(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late.Add(now, now.Sub(m.due))
	m.due = now.Add(tick)
}

// Worst returns the longest lateness of a wake-up after since. The process may have been stopped
// for that time. A wake-up that is overdue now counts, too. No lateness counts for more than the
// time since then.
func (m *Meter) Worst(since time.Time) time.Duration { return m.worst(since, time.Now()) }

func (m *Meter) worst(since, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	worst := m.late.Worst(since)
	if !m.due.IsZero() {
		worst = max(worst, min(now.Sub(m.due), now.Sub(since)))
	}
	return worst
}
