package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/announce"
	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/membackend"
)

// mem is a Harness without Faults.
type mem struct{}

func (mem) Driver(context.Context) (backend.Driver, error) {
	return membackend.New(&membackend.Options{Space: "conformance"}), nil
}
func (mem) Close() {}

// diskless is a Harness of a backend that has no server.
type diskless struct{ mem }

func (diskless) NoServer() string { return "nothing to cut" }

// recorder is a TB that keeps failures and skips to itself, so that they do not fail or skip its T.
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

// record runs c with h and returns the recorder with its messages.
func record(t *testing.T, c Case, h Harness) *recorder {
	t.Helper()
	return recordWith(t, c, func(TB) Harness { return h })
}

func recordWith(t *testing.T, c Case, mk HarnessMaker) *recorder {
	t.Helper()
	return recordRun(t, func(r *recorder) { c.Run(r, mk) })
}

// recordRun calls run on another goroutine, which a failure may end. It returns the recorder with
// the messages of run.
func recordRun(t *testing.T, run func(r *recorder)) *recorder {
	t.Helper()
	r := &recorder{T: t}
	<-async(func() {
		defer func() {
			for _, fn := range r.cleanups {
				defer fn()
			}
		}()
		run(r)
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
			t.Errorf("case %q: the name is invalid or not unique, or run is nil", c.Name)
		}
		if !strings.HasSuffix(c.Promise, ".") || len(c.Promise) < 30 {
			t.Errorf("case %s: the promise %q is not a sentence", c.Name, c.Promise)
		}
		if c.Alone && shared {
			t.Errorf("case %s runs alone, but comes after cases that do not", c.Name)
		}
		shared = shared || !c.Alone
		seen[c.Name] = true
	}
	if len(seen) < 60 {
		t.Errorf("%d cases, want at least 60", len(seen))
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

// TestInapplicable checks that Run fails for an unlisted case that does not apply, and for a listed
// case that applies.
func TestInapplicable(t *testing.T) {
	t.Parallel()
	skips := Case{Name: "x", Promise: "x.", run: func(f *fixture) { ability[Keeper](f) }}
	runs := Case{Name: "x", Promise: "x.", run: func(*fixture) {}}
	exact, listed := &settings{exact: true}, &settings{}
	Inapplicable("x")(listed)
	tests := []struct {
		what     string
		settings *settings
		c        Case
		want     string // "" if it does not fail
	}{
		{"without a list", &settings{}, skips, ""},
		{
			"a case that drops out", exact, skips,
			"is not in the list of Inapplicable, and it does not apply: the Harness is no",
		},
		{"a case that applies", exact, runs, ""},
		{"a listed case", listed, skips, ""},
		{"a listed case that applies", listed, runs, "the case applies"},
	}
	meter := lag.Start()
	defer meter.Stop()
	for _, tt := range tests {
		r := recordRun(t, func(r *recorder) {
			tt.c.runAs(tt.settings.scope(tt.c), gauges{meter: meter}, r,
				func(TB) Harness { return mem{} })
		})
		if r.Failed() != (tt.want != "") || !r.said(tt.want) {
			t.Errorf("%s: errors %q, want %q", tt.what, r.errors, tt.want)
		}
	}
}

// closing counts the closed Harnesses.
type closing struct {
	mem
	closed *atomic.Int64
}

func (c closing) Close() { c.closed.Add(1) }

// TestProbeIsShared checks that cases use one probe, that a case that runs alone has its own, and
// that all of them are closed.
func TestProbeIsShared(t *testing.T) {
	t.Parallel()
	var made, closed atomic.Int64
	mk := func(tb TB) Harness {
		if _, ok := tb.(*probe); ok {
			made.Add(1)
			return closing{closed: &closed}
		}
		return mem{}
	}
	meter := lag.Start()
	defer meter.Stop()
	shared := gauges{meter, startProbe(t, mk, meter)}
	probed := func(f *fixture) {
		f.noteTerm(bound)
		if !f.eventually(bound, func() bool {
			f.pulseMu.Lock()
			defer f.pulseMu.Unlock()
			return f.answers.Worst(f.begun) > 0
		}) {
			f.violation("the probe has no answer")
		}
	}
	for i, tt := range []struct {
		alone        bool
		made, closed int64
	}{{false, 1, 0}, {false, 1, 0}, {true, 2, 1}, {false, 2, 1}} {
		c := Case{Name: "x", Promise: "x.", Alone: tt.alone, run: probed}
		r := recordRun(t, func(r *recorder) { c.runAs(unknown, shared, r, mk) })
		if r.Failed() || made.Load() != tt.made || closed.Load() != tt.closed {
			t.Errorf("after case %d: %d probes, %d closed, want %d and %d; errors %q",
				i, made.Load(), closed.Load(), tt.made, tt.closed, r.errors)
		}
	}
	shared.probe.stop()
	if closed.Load() != made.Load() {
		t.Errorf("%d of %d probes are closed", closed.Load(), made.Load())
	}
}

// TestProbeMeasuresForEach checks that an unanswered request of a shared probe counts for an
// observation from its beginning, or its own later beginning, until it ends.
func TestProbeMeasuresForEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		meter := lag.Start()
		defer meter.Stop()
		s := &slow{takes: time.Minute}
		s.slow.Store(true)
		p := startProbe(t, func(TB) Harness { return s }, meter)
		var first, second pulse
		first.begin(gauges{meter, p})
		first.noteTerm(time.Second)
		time.Sleep(10 * time.Second)
		second.begin(gauges{meter, p})
		second.noteTerm(time.Second)
		time.Sleep(5 * time.Second)
		first.end()
		second.end()
		time.Sleep(time.Hour)
		for o, want := range map[*pulse]time.Duration{
			&first: 15 * time.Second, &second: 5 * time.Second,
		} {
			if stood, _ := o.measured(); stood != want {
				t.Errorf("the server stood still for %v, want %v", stood, want)
			}
		}
		p.stop()
	})
}

// TestRounds checks that all rounds run if some of them are fast, and a few in any case.
func TestRounds(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		first, slow time.Duration
		want        int
	}{
		{0, roundsTime / 4, 10},
		{roundsTime / 4, roundsTime / 4, 5},
		{2 * roundsTime, roundsTime / 4, minRounds},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, n := &fixture{observation: &observation{test: t}}, 0
			for i := range f.rounds(10) {
				if n++; i == 0 {
					time.Sleep(row.first)
				} else {
					time.Sleep(row.slow)
				}
			}
			if n != row.want {
				t.Errorf("%+v: %d of 10 rounds", row, n)
			}
		})
	}
}

// threaded is a Harness that starts a goroutine for each Harness of Apart and for each restart.
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

// TestHarnessMayHaveGoroutines checks that a case passes if its Harness starts goroutines that
// outlive the case.
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

// TestConnectionsEndWithTheCase checks that a case which ends early leaves no connection open.
func TestConnectionsEndWithTheCase(t *testing.T) {
	t.Parallel()
	var d backend.Driver
	c := Case{Name: "x", Promise: "x.", run: func(f *fixture) {
		d, _ = f.open()
		f.Fatalf("it ends here")
	}}
	record(t, c, mem{})
	req := &backend.Request{Key: t.Name(), Owner: "owner", TTL: time.Minute}
	if _, err := d.Acquire(t.Context(), req); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("Acquire of a connection that should be closed: %v", err)
	}
}

// TestCommonChecksFail checks that the common checks of the cases can fail.
func TestCommonChecksFail(t *testing.T) {
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
		{"overlapping visits", "before the end of the previous visit", func(f *fixture) {
			s, now := newSection(f), time.Now()
			s.intervals = []interval{
				{from: now, to: now.Add(2), fence: 1},
				{from: now.Add(1), to: now.Add(3), fence: 2},
			}
			s.check(2)
		}},
		{"a fence that repeats", "has the fence 7, the previous visit 7", func(f *fixture) {
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

// slow is a Harness with a server that grants and releases slowly in the first observations of
// a case.
type slow struct {
	mem
	takes        time.Duration
	observations int

	slow     atomic.Bool // the server is slow
	renewals atomic.Bool // the renewals of the driver are slow
	hangs    atomic.Bool // the next request gets no answer
}

type slowDriver struct {
	backend.Driver
	*slow
}

func (s *slow) make(t TB) Harness {
	if _, ok := t.(*probe); !ok {
		s.observations--
		s.slow.Store(s.observations >= 0)
	}
	return s
}

func (s *slow) Driver(ctx context.Context) (backend.Driver, error) {
	d, err := s.mem.Driver(ctx)
	return slowDriver{d, s}, err
}

func (s *slow) answer(ctx context.Context) {
	if s.hangs.Swap(false) {
		<-ctx.Done()
	} else if s.slow.Load() {
		time.Sleep(s.takes)
	}
}

func (d slowDriver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	d.answer(ctx)
	return d.Driver.Acquire(ctx, req)
}

func (d slowDriver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	if d.renewals.Load() {
		time.Sleep(d.takes)
	}
	return d.Driver.Renew(ctx, g)
}

func (d slowDriver) Release(ctx context.Context, g *backend.Grant) error {
	d.answer(ctx)
	return d.Driver.Release(ctx, g)
}

func (d slowDriver) Close() error { return d.Driver.Close() }

func (d slowDriver) Capabilities() backend.Capabilities {
	caps := d.Driver.Capabilities()
	return backend.Capabilities{Modes: caps.Modes, MinTTL: caps.MinTTL}
}

// TestVoid checks which failures make an observation void. The cases fail if the server is slow.
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
		want        string // "" if it passes
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
		{"a second holder of a driver", 1, 0, func(f *fixture) {
			if acquire(f, f.short()) {
				d, req := f.driver(), f.try(f.long())
				f.grant(d, req)
				_ = f.busy(d, req) // the driver grants it a second time
			}
		}, "a second holder"},
		{"a second holder of a client", 1, 0, func(f *fixture) {
			if acquire(f, f.short()) {
				lease := f.lock(f.client(dlock.WithTTL(f.long())), f.name)
				f.held(f.clientOver(membackend.New(&membackend.Options{Space: "another"})), lease)
			}
		}, "a second holder"},
		{"a fence that falls", 1, 0, func(f *fixture) {
			if acquire(f, f.short()) {
				f.caps.Fencing = backend.FenceDurable
				f.fenceGrew(2, 1)
			}
		}, "fence 1 after 2"},
		{"a broken promise on a fast server", 0, 0, func(f *fixture) {
			acquire(f, f.ttl(20*time.Second))
			f.Errorf("broken")
		}, "broken"},
		{"something early", 1, 0, func(f *fixture) {
			if acquire(f, f.short()) {
				f.notBefore("the lock is granted", time.Now().Add(time.Second), time.Now())
			}
		}, "early"},
		{"a panic", 1, 0, func(f *fixture) {
			if acquire(f, f.short()) {
				panic("on purpose")
			}
		}, "panic: on purpose"},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			s := &slow{takes: 200 * time.Millisecond, observations: tt.slow}
			r := recordWith(t, Case{Name: "x", Promise: "x.", run: tt.run}, s.make)
			if r.Failed() != (tt.want != "") || !r.said(tt.want) && r.Failed() ||
				len(r.voids) != tt.voids {
				t.Errorf("errors %q, want %q; %d observations were void, want %d: %q",
					r.errors, tt.want, len(r.voids), tt.voids, r.voids)
			}
			named := slices.ContainsFunc(append(r.voids, r.errors...), func(text string) bool {
				return strings.Contains(text, "the server stood still for ")
			})
			// A single message can name this machine instead, if it stood still for longer than
			// the server.
			if tt.slow == observations && !named {
				t.Errorf("no message reports that the server stood still: errors %q, void %q",
					r.errors, r.voids)
			}
			noLine := !r.said("conformance_test.go:") && tt.voids == 0
			if r.Failed() && !strings.Contains(tt.want, "panic") &&
				(noLine || !r.said("connection 1  acquire")) {
				t.Errorf("the errors do not name a line and a request: %q", r.errors)
			}
		})
	}
}

// TestNotVoid checks that a failure is excused only if the server stood still before it.
func TestNotVoid(t *testing.T) {
	t.Parallel()
	// The term is so long that a busy machine delays the probe by less than the allowed part of it.
	const (
		term     = 20 * time.Second
		slowness = 3 * time.Second
	)
	probed := func() { time.Sleep(slowness) } // the probe sends requests meanwhile
	broken := func(f *fixture) { f.Errorf("broken") }
	tests := []struct {
		what string
		run  func(f *fixture, s *slow)
	}{
		{"a driver whose renewals are slow", func(f *fixture, s *slow) {
			s.renewals.Store(true)
			d := f.driver()
			g := f.grant(d, f.try(f.long()))
			_, _ = f.renew(d, g)
			f.release(d, g)
			broken(f)
		}},
		{"a driver that loses an answer to the probe", func(f *fixture, s *slow) {
			s.hangs.Store(true)
			f.eventually(prompt, func() bool { return !s.hangs.Load() })
			probed()
			broken(f)
		}},
		{"a server that the case has stopped", func(f *fixture, s *slow) {
			heal := f.fault()
			s.slow.Store(true)
			probed()
			broken(f)
			s.slow.Store(false)
			heal()
		}},
		{"a server that the case had stopped", func(f *fixture, s *slow) {
			heal := f.fault()
			s.slow.Store(true)
			time.Sleep(slowness * 3 / 4) // the probe waits for an answer
			s.slow.Store(false)
			heal()
			probed()
			broken(f)
		}},
		{"a server that stands still later", func(f *fixture, s *slow) {
			broken(f)
			s.slow.Store(true)
			probed()
			probed()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			s := &slow{takes: slowness}
			r := recordWith(t, Case{Name: "x", Promise: "x.", run: func(f *fixture) {
				f.ttl(term)
				probed()
				tt.run(f, s)
			}}, s.make)
			if !r.said("broken") {
				t.Errorf("errors %q, void %q", r.errors, r.voids)
			}
			for _, text := range append(r.voids, r.errors...) {
				if strings.Contains(text, "the server stood still") {
					t.Errorf("void because %q", text)
				}
			}
		})
	}
}

// TestInTime checks that inTime excuses only standstills within the measured time.
func TestInTime(t *testing.T) {
	t.Parallel()
	meter := lag.Start()
	defer meter.Stop()
	for _, tt := range []struct {
		what            string
		began, answered time.Duration // times since the probe's longest request; 0 if unanswered
		late            time.Duration
		fails           bool
	}{
		{"nothing stood still", 0, 0, 3500 * time.Millisecond, true},
		{
			"the server stood still meanwhile",
			3 * time.Second, time.Second, 4500 * time.Millisecond, false,
		},
		{"the server stands still", 3 * time.Second, 0, 4500 * time.Millisecond, false},
		{
			"the server stood still for a moment of the time",
			time.Hour, 4 * time.Second, 4500 * time.Millisecond, true,
		},
		{"the server stood still before", time.Hour, time.Minute, 4500 * time.Millisecond, true},
		{"not for long enough", 2 * time.Second, time.Second, 6 * time.Second, true},
	} {
		o := &observation{test: &recorder{T: t}, helpers: map[string]bool{}}
		o.begin(gauges{meter: meter})
		now := time.Now()
		switch {
		case tt.answered > 0:
			o.answers.Add(now.Add(-tt.answered), tt.began-tt.answered)
		case tt.began > 0:
			o.sent = now.Add(-tt.began)
		}
		f := &fixture{observation: o}
		f.inTime("it happens", now.Add(-tt.late), now)
		isPunctual := meter.Worst(now.Add(-tt.late)) < 400*time.Millisecond
		if fails := len(o.failures) > 0; fails != tt.fails && isPunctual {
			t.Errorf("%s: failures %q", tt.what, o.failures)
		}
	}
}

// TestLongRestartIsVoid checks that a long restart makes an observation void, because a client
// gives up when the server was unavailable for a term.
func TestLongRestartIsVoid(t *testing.T) {
	t.Parallel()
	for away, voids := range map[time.Duration]int{
		4 * time.Second: 0,
		6 * time.Second: observations - 1,
	} {
		r := record(t, Case{Name: "x", Promise: "x.", run: func(f *fixture) {
			f.noteTerm(10 * time.Second)
			f.noteRestart(time.Now().Add(-away))
			f.Errorf("the server was not reached")
		}}, mem{})
		if !r.said("the server was not reached") || len(r.voids) != voids {
			t.Errorf("away for %v: errors %q, void %q, want %d void",
				away, r.errors, r.voids, voids)
		}
		for _, text := range r.voids {
			if !strings.Contains(text, "the server's restart took 6") {
				t.Errorf("void because %q", text)
			}
		}
	}
}

// slowPause is a Harness whose server takes a while until it stops, and until it goes on.
type slowPause struct {
	threaded
	begin, end time.Duration
}

func (h slowPause) Apart(TB) Harness { return h }
func (h slowPause) Pause(TB) (resume func()) {
	time.Sleep(h.begin)
	return func() { time.Sleep(h.end) }
}

// TestSlowPauseIsVoid checks that a pause makes an observation void if it lasts longer than the
// case wants, because a client that waits has less of its term left. A stall of the machine makes
// no pause longer, because the clock is synctest's.
func TestSlowPauseIsVoid(t *testing.T) {
	t.Parallel()
	const most = 10 * time.Second / allowance
	tests := []struct {
		begin, end time.Duration
		voids      int
	}{
		{0, 0, 0},
		{most / 2, most / 2, 0},
		{most/2 + 1, most / 2, observations - 1},
		{0, most + 1, observations - 1},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			c := Case{Name: "x", Promise: "x.", Faults: true, run: func(f *fixture) {
				f.noteTerm(10 * time.Second)
				f.faults.Pause(f)()
				f.Errorf("the lease is lost")
			}}
			r := record(t, c, slowPause{begin: tt.begin, end: tt.end})
			if !r.said("the lease is lost") || len(r.voids) != tt.voids {
				t.Errorf("%v and %v: errors %q, void %q, want %d void",
					tt.begin, tt.end, r.errors, r.voids, tt.voids)
			}
			for _, text := range r.voids {
				if !strings.Contains(text, "the server stood still for 1s ") {
					t.Errorf("%v and %v: void because %q", tt.begin, tt.end, text)
				}
			}
		})
	}
}

// slowEntry is an EntryLocker that needs a while.
type slowEntry struct {
	mem
	takes time.Duration
}

func (h slowEntry) LockEntry(TB, string) (unlock func()) {
	time.Sleep(h.takes)
	return func() {}
}

// TestSlowEntryLockIsVoid checks that an observation is void if the server takes long to lock an
// entry on a new connection.
func TestSlowEntryLockIsVoid(t *testing.T) {
	t.Parallel()
	const most = 10 * time.Second / allowance
	for takes, voids := range map[time.Duration]int{most: 0, most + 1: observations - 1} {
		synctest.Test(t, func(t *testing.T) {
			r := record(t, Case{Name: "x", Promise: "x.", run: func(f *fixture) {
				f.noteTerm(10 * time.Second)
				f.lockEntry(ability[EntryLocker](f), f.name)()
				f.Errorf("the lease is lost")
			}}, slowEntry{takes: takes})
			if !r.said("the lease is lost") || len(r.voids) != voids {
				t.Errorf("%v: errors %q, void %q, want %d void", takes, r.errors, r.voids, voids)
			}
		})
	}
}

// TestSlowAnswersAreVoid checks that an event of many answers makes an observation void if each of
// them was slow, but none was so slow that it alone makes the observation void.
func TestSlowAnswersAreVoid(t *testing.T) {
	t.Parallel()
	const bound, answers = 20 * time.Second, 8
	for answer, voids := range map[time.Duration]int{
		10 * time.Millisecond: 0, bound / allowance / 3: observations - 1,
	} {
		r := record(t, Case{Name: "x", Promise: "x.", run: func(f *fixture) {
			f.answers.Add(time.Now(), answer)
			f.inTimeOf(bound, answers, "the event", time.Now().Add(-time.Minute), time.Now())
		}}, mem{})
		if !r.said("the event") || len(r.voids) != voids {
			t.Errorf("answers of %v: errors %q, void %q, want %d void",
				answer, r.errors, r.voids, voids)
		}
	}
}

// TestRequestsOfABatch checks that the list of requests contains the error of a batch.
func TestRequestsOfABatch(t *testing.T) {
	t.Parallel()
	r := record(t, Case{Name: "x", Promise: "x.", run: func(f *fixture) {
		_, tap := f.tapped()
		free := &backend.Grant{Request: *f.try(f.long())}
		tap.RenewAll(f.ctx, []*backend.Grant{free, free})
		f.Errorf("over")
	}}, mem{})
	if !r.said(backend.ErrLost.Error()) {
		t.Errorf("errors %q", r.errors)
	}
}

// TestSlowOpeningIsVoid checks that a slow opening makes an observation void. A closed port refuses
// at once, but a slow server lets its client wait.
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
			f.noteUnanswered(time.Now().Add(-tt.took))
			f.Errorf("not connected")
		}}, mem{})
		if !r.said("not connected") || len(r.voids) != tt.voids {
			t.Errorf("%s: errors %q, void %q, want %d void", tt.what, r.errors, r.voids, tt.voids)
		}
		for _, text := range r.voids {
			if !strings.Contains(text, "the server answered nothing for 2") {
				t.Errorf("%s: void because %q", tt.what, text)
			}
		}
	}
}

// TestUnansweredRequestIsVoid checks that a request without an answer makes an observation void.
// A late answer or a context that has ended does not.
func TestUnansweredRequestIsVoid(t *testing.T) {
	t.Parallel()
	noAnswer := errors.New("no answer in time")
	tests := []struct {
		errs  []error // of a batch
		voids int
	}{
		{[]error{backend.ErrLost, noAnswer}, observations - 1},
		{[]error{backend.ErrLost, nil}, 0},
		{[]error{context.Canceled}, 0},
		{[]error{fmt.Errorf("%w", context.DeadlineExceeded)}, 0},
	}
	for _, tt := range tests {
		r := record(t, Case{Name: "x", Promise: "x.", run: func(f *fixture) {
			answered := f.send(1, renew, "owner")
			f.requests.last[0].at = time.Now().Add(-2 * time.Second)
			answered(ofBatch(tt.errs))
			f.Errorf("not renewed")
		}}, mem{})
		if !r.said("not renewed") || len(r.voids) != tt.voids {
			t.Errorf("%v: errors %q, void %q, want %d void", tt.errs, r.errors, r.voids, tt.voids)
		}
	}
}

// TestVoidIsLogged checks the log of a void observation in a test without a method Void.
func TestVoidIsLogged(t *testing.T) {
	t.Parallel()
	r := &logger{recorder: &recorder{T: t}}
	o := &observation{test: r, scale: 1}
	meter := lag.Start()
	defer meter.Stop()
	o.begin(gauges{meter: meter})
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

// TestTapForwards checks that a driver behind a tap has the same abilities and the
// same capabilities.
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
