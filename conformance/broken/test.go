package broken

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/lag"
)

// HarnessMaker makes a Harness with wrapped drivers: its method Driver returns wrap(driver). It is
// called as often as a [conformance.HarnessMaker].
type HarnessMaker func(
	t conformance.TB, wrap func(backend.Driver) backend.Driver,
) conformance.Harness

// atATime is the maximum number of rows that run in parallel. They mostly wait.
const atATime = 96

// Test runs the rows of [Table], in parallel if their cases allow it, and reports each row as a
// subtest. It fails for a row if the case passes although the driver is broken. It skips a row if
// the case does not apply to the driver. A void observation shows nothing.
//
// A slow machine can hide a bug: a lock that Break leaves held is also free after its holder's
// process has stood still. So Test repeats the rows that have detected nothing, one at a time.
//
// Before the rows and after them, Test runs a case whose driver has no bug. It fails if that case
// fails, because then a failure in a row does not show that a bug was detected.
//
// Test first runs the rows with cases that count the resources of the process, and then calls
// t.Parallel. The caller must not call it.
func Test(t *testing.T, mk HarnessMaker) {
	t.Helper()
	alone := map[string]bool{}
	for _, c := range conformance.Cases() {
		alone[c.Name] = c.Alone && !c.Faults // it counts the resources of the process
	}
	meter := lag.Start() // one for all rows
	defer meter.Stop()
	control(t, meter, mk)
	rows := Table()
	results := make([]*recorder, len(rows))
	var running sync.WaitGroup
	slots := make(chan struct{}, atATime)
	runRow := func(i int) {
		results[i] = runOnce(t.Context(), meter, t.Name()+"/"+rows[i].Bug.Name, rows[i].Case,
			rows[i].Bug.over(mk))
	}
	for i, row := range rows {
		if alone[row.Case] {
			runRow(i)
		}
	}
	t.Parallel()
	for i, row := range rows {
		if !alone[row.Case] {
			running.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				runRow(i)
			})
		}
	}
	running.Wait()
	for i, row := range rows {
		if !results[i].isConclusive() {
			results[i] = run(t.Context(), meter, t.Name()+"/"+row.Bug.Name, row.Case,
				row.Bug.over(mk))
		}
	}
	control(t, meter, mk)
	for i, row := range rows {
		t.Run(row.Case+"/"+row.Bug.Name, func(t *testing.T) {
			results[i].report(t, row.Case)
			if t.Failed() {
				t.Logf("the bug: %s", row.Bug.Does)
			}
		})
	}
}

// control runs a case without a bug, which must pass.
func control(t *testing.T, meter *lag.Meter, mk HarnessMaker) {
	t.Helper()
	sound := func(d backend.Driver) backend.Driver { return d }
	r := runOnce(t.Context(), meter, t.Name()+"/control", "ReleaseWakesAWaiter",
		func(t conformance.TB) conformance.Harness { return mk(t, sound) })
	if r.Failed() {
		t.Fatalf("a case without a bug fails:\n%s", r.text())
	}
}

// over returns a maker of Harnesses whose drivers have the bug b. Each Harness has a new state of
// the bug, because a void observation may have used the state up.
func (b Bug) over(mk HarnessMaker) conformance.HarnessMaker {
	return func(t conformance.TB) conformance.Harness { return mk(t, b.Wrapper()) }
}

// MustNotice runs the case with the given name over a broken Harness. It fails t if the case
// passes, and skips t if the case does not apply.
func MustNotice(t *testing.T, name string, mk conformance.HarnessMaker) {
	t.Helper()
	run(t.Context(), nil, t.Name(), name, mk).report(t, name)
}

// report fails t if the case has detected nothing.
func (r *recorder) report(t *testing.T, name string) {
	t.Helper()
	switch {
	case r.missing:
		t.Fatalf("there is no case %s", name)
	case r.skipped != "":
		t.Skipf("%s", r.skipped)
	case !r.Failed():
		t.Errorf("case %s passes over a broken Harness", name)
	case !r.noticed:
		t.Errorf("case %s has only void observations:\n%s", name, r.text())
	default:
		t.Logf("%.300s", r.text())
	}
}

// Row is a case and a bug that the case must detect.
type Row struct {
	Case string
	Bug  Bug
}

// Table returns all rows, sorted by their cases.
func Table() []Row {
	var rows []Row
	for _, bug := range Bugs() {
		for _, name := range noticedBy[bug.Name] {
			rows = append(rows, Row{name, bug})
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return strings.Compare(a.Case, b.Case) })
	return rows
}

// Unbroken returns the names of the cases that no broken driver can fail, with the reason.
func Unbroken() map[string]string { return maps.Clone(unbroken) }

// attempts is the maximum number of runs until a valid observation detects a bug.
const attempts = 3

// run runs a case for the given test until it detects something, and returns the recorder of the
// last run. A nil meter is a new one for each run.
func run(
	ctx context.Context, meter *lag.Meter, test, name string, mk conformance.HarnessMaker,
) *recorder {
	for n := 1; ; n++ {
		r := runOnce(ctx, meter, test, name, mk)
		if r.isConclusive() || n == attempts {
			return r
		}
	}
}

// isConclusive reports whether another run would show nothing else.
func (r *recorder) isConclusive() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.noticed || r.missing || r.skipped != ""
}

func runOnce(
	ctx context.Context, meter *lag.Meter, test, name string, mk conformance.HarnessMaker,
) *recorder {
	r := &recorder{name: test, meter: meter}
	r.ctx, r.end = context.WithCancel(ctx)
	defer r.end()
	cases := conformance.Cases()
	i := slices.IndexFunc(cases, func(c conformance.Case) bool { return c.Name == name })
	if i < 0 {
		r.missing = true
		return r
	}
	defer r.removeTemp()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.cleanup()
		cases[i].Run(r, mk)
	}()
	<-done
	return r
}

// recorder is a conformance.TB that records the failures of a case.
type recorder struct {
	ctx   context.Context
	end   context.CancelFunc
	name  string
	meter *lag.Meter

	missing bool // the case does not exist

	mu       sync.Mutex
	noticed  bool // by a valid observation
	errors   []string
	skipped  string
	cleanups []func()
	temp     []string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Name() string             { return r.name }
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Logf(string, ...any)      {}

// Meter returns the meter that the cases of all rows use.
func (r *recorder) Meter() *lag.Meter { return r.meter }

// Noticed ends the case at its first failure in a valid observation.
func (r *recorder) Noticed() {
	r.mu.Lock()
	r.noticed = true
	r.mu.Unlock()
	r.end()
}

// Void ignores a void observation.
func (r *recorder) Void(string) {}

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
	r.mu.Lock()
	r.skipped = fmt.Sprintf(format, args...)
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.errors) > 0
}

// text returns the failures.
func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.errors, "\n")
}

func (r *recorder) Cleanup(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, fn)
}

// cleanup calls the functions given to Cleanup, last first.
func (r *recorder) cleanup() {
	r.mu.Lock()
	fns := r.cleanups
	r.cleanups = nil
	r.mu.Unlock()
	for _, fn := range fns {
		defer fn()
	}
}

func (r *recorder) TempDir() string {
	dir, err := os.MkdirTemp("", "dlock-broken-")
	if err != nil {
		r.Fatalf("TempDir: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.temp = append(r.temp, dir)
	return dir
}

func (r *recorder) removeTemp() {
	for _, dir := range r.temp {
		_ = os.RemoveAll(dir)
	}
}
