package conformance

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/announce"
	"github.com/dlock-go/dlock/internal/lag"
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
	voids    []string
	cleanups []func()
}

// Void counts a void observation.
func (r *recorder) Void(reason string) { r.voids = append(r.voids, reason) }

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
	return recordWith(t, c, func(TB) Harness { return h })
}

func recordWith(t *testing.T, c Case, mk HarnessMaker) *recorder {
	t.Helper()
	r := &recorder{T: t}
	<-async(func() {
		defer func() {
			for _, fn := range r.cleanups {
				defer fn()
			}
		}()
		c.Run(r, mk)
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

// threaded is a Harness with a goroutine for each Harness of Apart and for each server.
type threaded struct {
	mem
	stop context.Context
}

func (h threaded) start()                   { go func() { <-h.stop.Done() }() }
func (h threaded) Apart(TB) Harness         { h.start(); return h }
func (h threaded) Restart(TB)               { h.start() }
func (h threaded) Cut(TB) (heal func())     { return func() {} }
func (h threaded) Pause(TB) (resume func()) { return func() {} }
func (h threaded) DropReply(t TB, _ int)    { t.Fatalf("not used") }

// TestHarnessMayHaveGoroutines runs a case whose Harness starts goroutines that outlive it.
func TestHarnessMayHaveGoroutines(t *testing.T) {
	t.Parallel()
	c := Case{Name: "x", Promise: "x.", Faults: true, run: func(f *fixture) {
		f.apart()
		f.restart()
	}}
	if r := record(t, c, threaded{stop: t.Context()}); r.Failed() {
		t.Errorf("errors %q", r.errors)
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

// slow is a harness whose server takes 200 ms to grant, in the first observations of a case.
type slow struct {
	mem
	observations int
}

type slowDriver struct {
	backend.Driver
	slow bool
}

func (s *slow) make(TB) Harness {
	s.observations--
	return s
}

func (s *slow) Driver(ctx context.Context) (backend.Driver, error) {
	d, err := s.mem.Driver(ctx)
	return slowDriver{Driver: d, slow: s.observations >= 0}, err
}

func (d slowDriver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if d.slow {
		time.Sleep(200 * time.Millisecond)
	}
	return d.Driver.Acquire(ctx, req)
}

func (d slowDriver) Capabilities() backend.Capabilities {
	caps := d.Driver.Capabilities()
	return backend.Capabilities{Modes: caps.Modes, MinTTL: caps.MinTTL}
}

// TestVoid checks which failures are repeated. The cases fail where the server is slow.
func TestVoid(t *testing.T) {
	t.Parallel()
	acquire := func(f *fixture, ttl time.Duration) bool {
		d, begun := f.driver(), time.Now()
		f.release(d, f.grant(d, f.try(ttl)))
		return time.Since(begun) > 150*time.Millisecond
	}
	tests := []struct {
		what        string
		slow, voids int
		run         func(f *fixture)
		want        string // "": it passes
	}{
		{"a slow server and a short term", 1, 1, func(f *fixture) {
			if acquire(f, f.short()) {
				f.Errorf("the term is over")
			}
		}, ""},
		{"a server that remains slow", observations, observations - 1, func(f *fixture) {
			f.noteTerm(time.Second)
			if acquire(f, f.long()) {
				f.Errorf("the term is over")
			}
		}, "in the last of 5 observations"},
		{"no short term", 1, 0, func(f *fixture) {
			if acquire(f, f.long()) {
				f.Errorf("the term is over")
			}
		}, "the term is over"},
		{"a violation", 1, 0, func(f *fixture) {
			if acquire(f, f.short()) {
				f.violation("a second holder")
			}
		}, "a second holder"},
		{"a broken promise on a fast server", 0, 0, func(f *fixture) {
			acquire(f, f.ttl(20*time.Second))
			f.Errorf("broken")
		}, "broken"},
		{"a panic", 1, 0, func(f *fixture) {
			if acquire(f, f.short()) {
				panic("on purpose")
			}
		}, "panic: on purpose"},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			s := &slow{observations: tt.slow}
			r := recordWith(t, Case{Name: "x", Promise: "x.", run: tt.run}, s.make)
			if r.Failed() != (tt.want != "") || !r.said(tt.want) && r.Failed() || len(r.voids) != tt.voids {
				t.Errorf("errors %q, want %q; %d observations were void, want %d: %q", r.errors, tt.want, len(r.voids), tt.voids, r.voids)
			}
			named := slices.ContainsFunc(append(r.voids, r.errors...), func(text string) bool {
				return strings.Contains(text, "the server stood still for ")
			})
			if tt.slow == observations && !named { // of this machine, where that stood still for longer, not each time
				t.Errorf("nothing says that the server stood still: errors %q, void %q", r.errors, r.voids)
			}
			if r.Failed() && !strings.Contains(tt.want, "panic") && (!r.said("conformance_test.go:") && tt.voids == 0 || !r.said("connection 1  acquire")) {
				t.Errorf("the errors name no line or no request: %q", r.errors)
			}
		})
	}
}

// TestLongRestartIsVoid: a client gives up when a server has been away for a term.
func TestLongRestartIsVoid(t *testing.T) {
	t.Parallel()
	for away, voids := range map[time.Duration]int{4 * time.Second: 0, 6 * time.Second: observations - 1} {
		r := record(t, Case{Name: "x", Promise: "x.", run: func(f *fixture) {
			f.noteTerm(10 * time.Second)
			f.noteRestart(time.Now().Add(-away))
			f.Errorf("the server was not reached")
		}}, mem{})
		if !r.said("the server was not reached") || len(r.voids) != voids {
			t.Errorf("away for %v: errors %q, void %q, want %d void", away, r.errors, r.voids, voids)
		}
		for _, text := range r.voids {
			if !strings.Contains(text, "the server's restart took 6") {
				t.Errorf("void because %q", text)
			}
		}
	}
}

// TestSlowOpeningIsVoid: a closed port refuses at once; a slow server keeps its client waiting.
func TestSlowOpeningIsVoid(t *testing.T) {
	t.Parallel()
	tests := []struct {
		what  string
		took  time.Duration
		fault bool
		voids int
	}{
		{"slow", 2 * time.Second, false, observations - 1},
		{"refused", 0, false, 0},
		{"a fault of the case", 2 * time.Second, true, 0},
	}
	for _, tt := range tests {
		r := record(t, Case{Name: "x", Promise: "x.", run: func(f *fixture) {
			if tt.fault {
				defer f.fault()()
			}
			f.noteOpening(time.Now().Add(-tt.took))
			f.Errorf("not connected")
		}}, mem{})
		if !r.said("not connected") || len(r.voids) != tt.voids {
			t.Errorf("%s: errors %q, void %q, want %d void", tt.what, r.errors, r.voids, tt.voids)
		}
		for _, text := range r.voids {
			if !strings.Contains(text, "the server let no client in for 2") {
				t.Errorf("%s: void because %q", tt.what, text)
			}
		}
	}
}

// TestVoidIsLogged is for a test without a method Void.
func TestVoidIsLogged(t *testing.T) {
	t.Parallel()
	r := &logger{recorder: &recorder{T: t}}
	o := &observation{test: r, scale: 1}
	meter := lag.Start()
	defer meter.Stop()
	o.begin(meter)
	o.noteTerm(time.Second)
	o.reportVoid(struct{ TB }{r})
	if !announce.IsVoid(r.log) || !strings.Contains(r.log, "in a term of 1s") {
		t.Errorf("the log is %q", r.log)
	}
}

type logger struct {
	*recorder
	log string
}

func (l *logger) Logf(format string, args ...any) { l.log += fmt.Sprintf(format, args...) }

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
