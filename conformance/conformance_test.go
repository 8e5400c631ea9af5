package conformance

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/membackend"
)

// mem is a harness without faults.
type mem struct{}

func (mem) Driver(context.Context) (backend.Driver, error) {
	return membackend.New(&membackend.Options{Space: "conformance"}), nil
}
func (mem) Close() {}

// diskless is a harness of a backend that has no server.
type diskless struct{ mem }

func (diskless) NoServer() string { return "nothing to cut" }

// recorder is a TB that survives what it is told.
type recorder struct {
	*testing.T
	mu       sync.Mutex
	errors   []string
	skipped  string
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Logf(string, ...any) {}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.errors) > 0
}

func (r *recorder) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }

// record runs c and returns what it said.
func record(t *testing.T, c Case, h Harness) *recorder {
	t.Helper()
	r := &recorder{T: t}
	<-async(func() {
		defer func() {
			for _, fn := range r.cleanups {
				defer fn()
			}
		}()
		c.Run(r, func(TB) Harness { return h })
	})
	return r
}

func (r *recorder) said(text string) bool {
	return strings.Contains(strings.Join(r.errors, "\n"), text)
}

func TestCasesAreWellFormed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	shared := false
	for _, c := range Cases() {
		if c.Name == "" || strings.ContainsAny(c.Name, "/ ") || seen[c.Name] || c.run == nil {
			t.Errorf("case %q: a name that is missing or not its own, or nothing to run", c.Name)
		}
		if !strings.HasSuffix(c.Promise, ".") || len(c.Promise) < 30 {
			t.Errorf("case %s promises %q, which is no sentence", c.Name, c.Promise)
		}
		if c.Alone && shared {
			t.Errorf("case %s runs alone, after others that do not", c.Name)
		}
		if c.Alone && !c.Faults {
			t.Errorf("case %s stops the server without Faults", c.Name)
		}
		shared = shared || !c.Alone
		seen[c.Name] = true
	}
	if len(seen) < 60 {
		t.Errorf("%d cases", len(seen))
	}
}

func TestFaultCaseNeedsFaults(t *testing.T) {
	t.Parallel()
	c := Case{Name: "x", Promise: "x.", Faults: true, run: func(f *fixture) { f.Errorf("it ran") }}
	if r := record(t, c, mem{}); !r.said("no Faults") || r.said("it ran") {
		t.Errorf("without Faults: errors %q, skipped %q", r.errors, r.skipped)
	}
	if r := record(t, c, diskless{}); r.Failed() || !strings.Contains(r.skipped, "nothing to cut") {
		t.Errorf("without a server: errors %q, skipped %q", r.errors, r.skipped)
	}
}

// TestOraclesSpeak checks that what the cases rely on can fail.
func TestOraclesSpeak(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	tests := []struct {
		what, want string
		run        func(f *fixture)
	}{
		{"a goroutine that outlives its case", "goroutines are left behind", func(f *fixture) {
			go func() { <-stop }()
		}},
		{"a lock that is left", "left behind on the server", func(f *fixture) {
			d, _ := f.open()
			f.grant(d, f.try(time.Hour))
		}},
		{"two holders", "2 holders are in the critical section", func(f *fixture) {
			s, lease := newSection(f), new(dlock.Lease)
			s.visit(lease, func() { s.visit(lease, func() {}) })
		}},
		{"overlapping visits", "before the one before it had ended", func(f *fixture) {
			s, now := newSection(f), time.Now()
			s.intervals = []interval{{from: now, to: now.Add(2), fence: 1}, {from: now.Add(1), to: now.Add(3), fence: 2}}
			s.check(2)
		}},
		{"a fence that repeats", "has the fence 7, the one before it 7", func(f *fixture) {
			s, now := newSection(f), time.Now()
			s.intervals = []interval{{from: now, to: now, fence: 7}, {from: now, to: now, fence: 7}}
			s.check(2)
		}},
		{"a second holder of a driver", "want *Busy", func(f *fixture) {
			d := f.driver()
			f.refused(d, f.try(f.long()))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			r := record(t, Case{Name: "x", Promise: "x.", run: tt.run}, mem{})
			if !r.said(tt.want) {
				t.Errorf("errors %q, want %q", r.errors, tt.want)
			}
		})
	}
}

// TestTapForwards is the case of a wrapped driver: through the tap a driver can
// do what it could without, and claims no less.
func TestTapForwards(t *testing.T) {
	t.Parallel()
	r := record(t, Case{Name: "x", Promise: "x.", run: func(f *fixture) {
		c, tap := f.tapped(dlock.WithTTL(f.long()))
		if tap.Capabilities() != f.caps {
			f.Errorf("capabilities %+v, want %+v", tap.Capabilities(), f.caps)
		}
		lease := f.lock(c, f.name)
		info, err := c.Inspect(f.ctx, f.name)
		if err != nil || len(info.Holders) != 1 || len(f.listed(tap, f.name)) != 1 {
			f.Errorf("Inspect: %+v, %v", info, err)
		}
		if err := c.Break(f.ctx, f.name, lease.Owner()); err != nil {
			f.Errorf("Break: %v", err)
		}
	}}, mem{})
	if r.Failed() {
		t.Errorf("errors %q", r.errors)
	}
}
