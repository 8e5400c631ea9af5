package memcachedbackend

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
)

const (
	// counterLife is when a counter is given up, in seconds: a day after it was seeded. The next
	// seed is greater by that day. Without an end the counters of names that nobody uses any
	// more would push locks out of the server's memory.
	counterLife = 24 * 60 * 60
	// maxFences bounds what a driver remembers.
	maxFences = 16384
	// maxSeedAge is how old a seed may be when it is added, in microseconds: what others may have drawn since it was
	// foreseen, and the server has lost since, must not exceed it by more. No lock expires within that time.
	maxSeedAge = 100_000
)

// fences remembers the last fence of each name that this driver drew, which is never
// greater than the counter, unless the server has lost that. When there are many, those that
// were drawn longest ago are forgotten.
type fences struct {
	mu           sync.Mutex
	last, before map[string]uint64 // before: of when last was full
}

// forecast is the fence that will be drawn if nobody else draws.
type forecast struct {
	fence uint64
	next  bool // of one that this driver drew; else a seed, in case that there is no counter
}

func (f *fences) foresee(name string) forecast {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := max(f.last[name], f.before[name]); last > 0 {
		return forecast{last + 1, true}
	}
	return forecast{fence: seedNow()}
}

func (f *fences) drawn(name string, fence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil || len(f.last) >= maxFences/2 {
		f.last, f.before = make(map[string]uint64), f.last
	}
	f.last[name] = max(f.last[name], f.before[name], fence)
}

// draw returns the next fence of name, and whether it is sure that it is as foreseen since nobody else has
// drawn one meanwhile.
func (d *driver) draw(c *memcache.Client, counter, name string, foreseen forecast) (fence uint64, sure bool, err error) {
	fence, err = c.Increment(counter, 1)
	sure = foreseen.next && fence == foreseen.fence
	if errors.Is(err, memcache.ErrCacheMiss) {
		fence, sure, err = seed(c, counter, foreseen)
	}
	if err == nil && foreseen.next && fence < foreseen.fence { // seeded again, by a clock that is behind
		fence, err = c.Increment(counter, foreseen.fence-fence)
	}
	if err != nil {
		return 0, false, err
	}
	d.fences.drawn(name, fence)
	return fence, sure, nil
}

// seed begins a counter, as foreseen where that was a seed and is not old. A counter that this driver
// has drawn from, and that was lost, begins with the time anew.
func seed(c *memcache.Client, counter string, foreseen forecast) (fence uint64, sure bool, err error) {
	fence, sure = foreseen.fence, true
	if now := seedNow(); foreseen.next || now > fence+maxSeedAge {
		fence, sure = max(now, fence), false
	}
	err = c.Add(&memcache.Item{
		Key: counter, Value: strconv.AppendUint(nil, fence, 10), Expiration: counterLife,
	})
	if errors.Is(err, memcache.ErrNotStored) { // another was faster
		fence, err = c.Increment(counter, 1)
		sure = false
	}
	return fence, sure, err
}

// seedNow is the time, which is greater than all that a lost counter can have reached, unless
// clocks differ, or the request to add it was under way, for more than the time since it was seeded.
func seedNow() uint64 { return uint64(max(time.Now().UnixMicro()-backend.FenceEpoch, 1)) }
