package engine

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// goroutines is a driver that notes the goroutine of each Release, which takes a second.
type goroutines struct {
	backend.Driver
	mu  sync.Mutex
	ids []string
}

func (d *goroutines) Release(ctx context.Context, g *backend.Grant) error {
	header := make([]byte, 64) // "goroutine 12 [running]:"
	header = header[:runtime.Stack(header, false)]
	id := strings.Fields(string(header))[1]
	d.mu.Lock()
	d.ids = append(d.ids, id)
	d.mu.Unlock()
	time.Sleep(time.Second)
	return d.Driver.Release(ctx, g)
}

// TestReleasesShareAGoroutine checks that a release whose context can end runs on the goroutine of
// an earlier one, that releases at the same time have one each, and that one of these stays.
func TestReleasesShareAGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		d := &goroutines{Driver: e.driver}
		e.driver, e.pipeliner = d, nil
		unlock := func(names ...string) {
			for _, name := range names {
				l := take(t, e, name, Settings{TTL: time.Minute})
				go func() {
					if err := l.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}()
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		unlock("a")
		unlock("b", "c")
		unlock("d")
		if d.ids[0] != d.ids[1] && d.ids[0] != d.ids[2] || d.ids[1] == d.ids[2] {
			t.Errorf("the goroutines of the releases are %v", d.ids)
		}
		if !e.isSpare.Load() {
			t.Error("no goroutine waits for the next release")
		}
		// The runtime has goroutines of its own, so their number proves nothing.
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if n := strings.Count(string(stacks), ".startRelease.func1("); n != 1 {
			t.Errorf("%d goroutines stay, want 1", n)
		}
	})
}

// refusing is a driver that counts the releases, and refuses them while its server is down.
type refusing struct {
	backend.Driver
	isDown atomic.Bool
	count  atomic.Int64
}

func (d *refusing) Release(ctx context.Context, g *backend.Grant) error {
	d.count.Add(1)
	if d.isDown.Load() {
		return backend.ErrUnavailable
	}
	return d.Driver.Release(ctx, g)
}

// TestReleasesSpareAServerThatIsDown leaves thousands of locks on a server that refuses every
// request. Their releases are repeated without a storm. When the server is back, it gets all of
// them within seconds.
func TestReleasesSpareAServerThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locks = 5000
		e := newEngine(t)
		d := &refusing{Driver: e.driver}
		e.driver, e.pipeliner = d, nil
		d.isDown.Store(true)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range locks {
			l := take(t, e, strconv.Itoa(i), Settings{TTL: time.Hour, NoRenewal: true})
			if err := l.Unlock(ended); !errors.Is(err, backend.ErrUncertain) {
				t.Fatalf("Unlock: %v", err)
			}
		}
		time.Sleep(time.Minute)
		const seconds = 60
		before := d.count.Load()
		time.Sleep(seconds * time.Second)
		if n := d.count.Load() - before; n < locks || n > seconds*1100 {
			t.Errorf("%d releases in %d s, want 1000 a second at most, and all locks", n, seconds)
		}
		d.isDown.Store(false)
		time.Sleep(2*time.Second + locks*slotTime)
		e.mu.Lock()
		left := e.open - e.freed
		e.mu.Unlock()
		if left != 0 {
			t.Errorf("%d locks are left", left)
		}
	})
}
