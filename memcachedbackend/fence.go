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
	maxFences = 4096
)

// fences remembers the last fence of each name that this driver drew, which is never
// greater than the counter, unless the server has lost that.
type fences struct {
	mu   sync.Mutex
	last map[string]uint64
}

// foresee returns the fence that is the next of name if only this driver draws; 0 if it
// does not know.
func (f *fences) foresee(name string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.last[name]; last > 0 {
		return last + 1
	}
	return 0
}

func (f *fences) drawn(name string, fence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil || len(f.last) >= maxFences {
		f.last = make(map[string]uint64)
	}
	f.last[name] = max(f.last[name], fence)
}

// draw returns the next fence of name, and whether it is sure that nobody else has drawn
// one since it was foreseen.
func (d *driver) draw(c *memcache.Client, counter, name string, foreseen uint64) (fence uint64, sure bool, err error) {
	fence, err = c.Increment(counter, 1)
	sure = fence == foreseen
	if errors.Is(err, memcache.ErrCacheMiss) {
		sure = false
		fence, err = seed(c, counter, foreseen)
	}
	if err == nil && fence < foreseen { // seeded again, by a clock that is behind
		fence, err = c.Increment(counter, foreseen-fence)
	}
	if err != nil {
		return 0, false, err
	}
	d.fences.drawn(name, fence)
	return fence, sure, nil
}

// seed begins a counter with the time, which is greater than all that a lost one
// can have reached, unless clocks differ by more than the time since it was seeded.
func seed(c *memcache.Client, counter string, least uint64) (uint64, error) {
	now := time.Now().UnixMicro() - backend.FenceEpoch
	fence := max(uint64(max(now, 1)), least)
	err := c.Add(&memcache.Item{
		Key: counter, Value: strconv.AppendUint(nil, fence, 10), Expiration: counterLife,
	})
	if errors.Is(err, memcache.ErrNotStored) { // another was faster
		return c.Increment(counter, 1)
	}
	return fence, err
}
