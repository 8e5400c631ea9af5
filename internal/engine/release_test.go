package engine

import (
	"context"
	"runtime"
	"strings"
	"sync"
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
		before := runtime.NumGoroutine()
		unlock("a")
		unlock("b", "c")
		unlock("d")
		if d.ids[0] != d.ids[1] && d.ids[0] != d.ids[2] || d.ids[1] == d.ids[2] {
			t.Errorf("the goroutines of the releases are %v", d.ids)
		}
		if !e.isSpare.Load() {
			t.Error("no goroutine waits for the next release")
		}
		if n := runtime.NumGoroutine() - before; n > 1 {
			t.Errorf("%d goroutines stay", n)
		}
	})
}
