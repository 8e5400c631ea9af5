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
	// counterLife is the life of a counter in seconds: it expires a day after it was seeded, and
	// the next seed is greater by that day. Without an expiry, the counters of names that are never
	// used again would push locks out of the server's memory.
	counterLife = 24 * 60 * 60
	// maxFences limits how many names a driver remembers.
	maxFences = 16384
	// maxSeedAge is the maximum age of a seed in microseconds when it is added. After the driver
	// foresaw the seed, other clients may have drawn fences from a counter that the server has lost
	// since. Those fences must not exceed the seed by more. No lock expires within that time.
	maxSeedAge = 100_000
)

// fences remembers the last fence of each name that this driver drew. Such a fence is never greater
// than the counter, unless the server has lost the counter. If there are many names, those with the
// oldest fences are forgotten.
type fences struct {
	mu sync.Mutex
	// before is the previous last: a full map moves there, and a new one begins. So half of the
	// names are forgotten at a time.
	last, before map[string]uint64
}

// forecast is the fence that the driver draws next if no other client draws one in between.
type forecast struct {
	fence uint64
	// next means that fence follows the last fence of this driver. Otherwise fence is a seed: it
	// comes true if there is no counter.
	next bool
}

// isFence reports whether a number can be a fence. Any other number in a counter is of another
// program, or of a wrong clock.
func isFence(n uint64) bool { return n > 0 && n < backend.MaxFence }

// foresee returns the forecast for name.
func (f *fences) foresee(name string) forecast {
	f.mu.Lock()
	defer f.mu.Unlock()
	// After the last possible fence only a new counter helps.
	if last := max(f.last[name], f.before[name]); last > 0 && isFence(last+1) {
		return forecast{last + 1, true}
	}
	return forecast{fence: seedNow()}
}

// remember stores a fence that was drawn for name. A lower one than the last has no effect.
func (f *fences) remember(name string, fence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil || len(f.last) >= maxFences/2 {
		f.last, f.before = make(map[string]uint64), f.last
	}
	f.last[name] = max(f.last[name], f.before[name], fence)
}

// draw returns the next fence of name. asForeseen means that it is the foreseen fence, and that no
// other client can have drawn one since the forecast.
func (d *driver) draw(
	c *memcache.Client, counter, name string, foreseen forecast,
) (fence uint64, asForeseen bool, err error) {
	fence, err = c.Increment(counter, 1)
	asForeseen = foreseen.next && fence == foreseen.fence
	if errors.Is(err, memcache.ErrCacheMiss) {
		fence, asForeseen, err = seed(c, counter, foreseen)
	}
	if err == nil && foreseen.next && fence < foreseen.fence {
		// The counter was lost, and seeded again from a clock that is behind.
		fence, err = c.Increment(counter, foreseen.fence-fence)
	}
	if err == nil && !isFence(fence) {
		err = errNoFence // not remembered, so the name works again once the counter is deleted
	}
	if err != nil {
		return 0, false, err
	}
	d.fences.remember(name, fence)
	return fence, asForeseen, nil
}

// seed begins a counter that does not exist, and returns its first fence. It uses a foreseen seed
// that is not too old. If this driver has drawn from the counter before, the server has lost it,
// and the present time is the new seed.
func seed(
	c *memcache.Client, counter string, foreseen forecast,
) (fence uint64, asForeseen bool, err error) {
	fence, asForeseen = foreseen.fence, true
	if now := seedNow(); foreseen.next || now > fence+maxSeedAge {
		fence, asForeseen = max(now, fence), false
	}
	err = c.Add(&memcache.Item{
		Key: counter, Value: strconv.AppendUint(nil, fence, 10), Expiration: counterLife,
	})
	if errors.Is(err, memcache.ErrNotStored) { // another client has seeded it
		fence, err = c.Increment(counter, 1)
		asForeseen = false
	}
	return fence, asForeseen, err
}

// seedNow returns the time in microseconds since backend.FenceEpoch. It is greater than any fence
// of a lost counter, because fences grow more slowly than time. There are two exceptions: clocks
// differ by more than the time since the counter was seeded, or the request to add it was under way
// for longer than that time.
func seedNow() uint64 { return uint64(max(time.Now().UnixMicro()-backend.FenceEpoch, 1)) }
