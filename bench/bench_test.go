package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
	"github.com/dlock-go/dlock/membackend"

	_ "github.com/dlock-go/dlock/filebackend"
)

// childURL names the variable that makes the test binary a child of a run.
const childURL = "DLOCK_BENCH_TEST_URL"

func TestMain(m *testing.M) {
	url := os.Getenv(childURL)
	if url == "" {
		goleak.VerifyTestMain(m)
		return
	}
	s, err := bench.URL(url)
	if err == nil {
		err = bench.Serve(context.Background(), os.Stdin, os.Stdout, s.Open)
	}
	if err != nil {
		os.Exit(1)
	}
}

// tiny is the shortest possible run.
var tiny = bench.Config{
	Duration: 20 * time.Millisecond, Contenders: []int{3}, Waiters: 20, Locks: 50,
}

// subject returns a Subject whose processes are connections of this process.
func subject(t *testing.T, url string) bench.Subject {
	t.Helper()
	s, err := bench.URL(url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// separate returns a Subject whose processes are operating-system processes.
func separate(t *testing.T, url string) bench.Subject {
	t.Helper()
	s := subject(t, url)
	s.Command = func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childURL+"="+url)
		return cmd
	}
	return s
}

func find(t *testing.T, id string) bench.Workload {
	t.Helper()
	w, ok := bench.Find(id)
	if !ok {
		t.Fatalf("there is no workload %s", id)
	}
	return w
}

// TestWorkloads checks that every workload has plausible rows for every subject. It runs alone in
// the process, because it measures the memory of the process.
func TestWorkloads(t *testing.T) {
	var last bench.Progress
	config := tiny
	config.Waiters = 200
	config.Progress = func(p bench.Progress) {
		if p.Done < last.Done || p.Done > 1 {
			t.Errorf("progress went from %v to %v", last.Done, p.Done)
		}
		last = p
	}
	mem, file := subject(t, "mem:workloads"), separate(t, "file:"+t.TempDir())
	rows := make(map[string]int)
	for _, r := range bench.Run(t.Context(), config, bench.Workloads(), mem, file) {
		rows[r.Workload+" "+r.Subject]++
		check(t, r)
		if r.Workload == "W5" && *r.Bytes < 100 {
			t.Errorf("%s of %s: %v bytes", r.Workload, r.Subject, *r.Bytes)
		}
		crossed := r.Processes > 1 && r.Workload != "W5"
		if r.Separate != (crossed && r.Subject == file.Name) {
			t.Errorf("%s of %s: separate is %v", r.Workload, r.Subject, r.Separate)
		}
	}
	want := map[string]int{"recovery " + file.Name: 1}
	for _, w := range []string{"W1", "W2", "W5", "W6", "W7", "W8", "W9", "W10"} {
		want[w+" "+mem.Name], want[w+" "+file.Name] = 1, 1
	}
	for _, w := range []string{"W3", "W4"} { // without and with hand-off
		want[w+" "+mem.Name], want[w+" "+file.Name] = 2, 2
	}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
	if last.Done != 1 {
		t.Errorf("the progress ends at %v", last.Done)
	}
}

// check reports figures that are impossible in a run without failures.
func check(t *testing.T, r bench.Result) {
	t.Helper()
	wrong := func(what string) { t.Errorf("%s of %s: %s: %+v", r.Workload, r.Subject, what, r) }
	if r.Error != "" || r.Operations <= 0 || r.Elapsed <= 0 {
		wrong("nothing was measured")
	}
	if l := r.Latency; l != nil {
		byValue := func(a, b bench.Quantile) int { return int(a.Value - b.Value) }
		rising := slices.IsSortedFunc(l.Quantiles, byValue)
		if !rising || l.Count <= 0 || l.P50 <= 0 || l.P99 != 0 && l.P50 > l.P99 || l.P99 > l.Max {
			wrong("latencies")
		}
	}
	switch r.Workload {
	case "W1":
		if r.Latency == nil || r.Allocs == nil || *r.Allocs <= 0 || *r.PerSecond <= 0 {
			wrong("pairs")
		}
	case "W2":
		if r.Latency == nil || *r.PerSecond <= 0 {
			wrong("pairs")
		}
	case "W3", "W4":
		if *r.Changes <= 0 || *r.Changes > *r.PerSecond || *r.Jain <= 0 || *r.Jain > 1.000001 {
			wrong("contention")
		}
	case "W5":
		if r.Drain <= 0 || r.Bytes == nil || r.Goroutines == nil {
			wrong("waiting")
		}
	case "W6":
		if *r.Lost != 0 || r.Bytes == nil || r.Goroutines == nil {
			wrong("holding")
		}
	case "W7":
		if *r.PerSecond <= 0 || r.Mutex.PerSecond <= 0 || r.Mutex.Ratio <= 0 || r.Writer.P50 <= 0 {
			wrong("readers")
		}
	case "W8":
		if *r.Changes <= 0 || *r.Mutex.Changes <= 0 || r.Mutex.Ratio <= 0 || *r.Jain <= 0 {
			wrong("permits")
		}
	case "W9":
		if r.Latency == nil || r.Mutex.Latency == nil || r.Mutex.Ratio <= 0 || *r.Allocs <= 0 {
			wrong("several locks")
		}
	case "W10", "recovery":
		if r.Latency == nil {
			wrong("recovery")
		}
	}
}

// fake wraps the locks of a subject.
type fake struct {
	bench.Process
	lock func(context.Context, bench.Mutex) (bench.Lease, error)
}

type fakeMutex struct {
	bench.Mutex
	fake *fake
}

func (f *fake) Mutex(name string) (bench.Mutex, error) {
	m, err := f.Process.Mutex(name)
	return fakeMutex{m, f}, err
}

func (f *fake) Reader(name string) (bench.Mutex, error) {
	m, err := f.Process.(bench.Kinds).Reader(name)
	return fakeMutex{m, f}, err
}

func (f *fake) Permit(name string, permits int) (bench.Mutex, error) {
	m, err := f.Process.(bench.Kinds).Permit(name, permits)
	return fakeMutex{m, f}, err
}

func (f *fake) All(names []string) (bench.Mutex, error) {
	m, err := f.Process.(bench.Kinds).All(names)
	return fakeMutex{m, f}, err
}

func (f *fake) Leader(name string) (bench.Mutex, error) {
	m, err := f.Process.(bench.Kinds).Leader(name)
	return fakeMutex{m, f}, err
}

func (m fakeMutex) Lock(ctx context.Context) (bench.Lease, error) {
	return m.fake.lock(ctx, m.Mutex)
}

func wrap(
	s bench.Subject, name string, lock func(context.Context, bench.Mutex) (bench.Lease, error),
) bench.Subject {
	open := s.Open
	s.Name = name
	s.Open = func(ctx context.Context, settings bench.Settings) (bench.Process, error) {
		p, err := open(ctx, settings)
		return &fake{Process: p, lock: lock}, err
	}
	return s
}

var errBroken = errors.New("it is broken")

// TestFailure checks that a subject that fails has a row with the error, and that the other
// subjects are measured.
func TestFailure(t *testing.T) {
	t.Parallel()
	good := subject(t, "mem:failure")
	bad := wrap(good, "bad", func(context.Context, bench.Mutex) (bench.Lease, error) {
		return nil, errBroken
	})
	closed := good
	closed.Name = "closed"
	closed.Open = func(context.Context, bench.Settings) (bench.Process, error) {
		return nil, errBroken
	}
	for _, id := range []string{"W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "W9", "W10"} {
		var failed []string
		results := bench.Run(t.Context(), tiny, []bench.Workload{find(t, id)}, bad, good, closed)
		for _, r := range results {
			switch {
			case r.Subject == good.Name:
				check(t, r)
			case r.Error != errBroken.Error():
				t.Errorf("%s: the row of %s has the error %q", id, r.Subject, r.Error)
			case !slices.Contains(failed, r.Subject):
				failed = append(failed, r.Subject)
			}
		}
		if len(failed) != 2 {
			t.Errorf("%s: only %v failed", id, failed)
		}
	}
}

// TestUnsupported checks that a row without figures reports that a subject lacks a kind of lock,
// and that this is no failure.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	plain := subject(t, "mem:unsupported")
	open := plain.Open
	plain.Open = func(ctx context.Context, s bench.Settings) (bench.Process, error) {
		p, err := open(ctx, s)
		return struct{ bench.Process }{p}, err
	}
	for _, id := range []string{"W7", "W8", "W9", "W10"} {
		results := bench.Run(t.Context(), tiny, []bench.Workload{find(t, id)}, plain)
		if len(results) != 1 {
			t.Fatalf("%s: %+v", id, results)
		}
		r := results[0]
		if !r.Unsupported || r.Error != "" || r.Operations != 0 || r.Mutex != nil {
			t.Errorf("%s: %+v", id, r)
		}
		var table strings.Builder
		if err := bench.WriteTable(&table, results); err != nil ||
			!strings.Contains(table.String(), plain.Name+"  not supported") {
			t.Errorf("%v\n%s", err, table.String())
		}
	}
}

// exclusiveDriver is a driver in memory without readers and semaphores.
type exclusiveDriver struct{ backend.Driver }

func (d exclusiveDriver) Capabilities() backend.Capabilities {
	c := d.Driver.Capabilities()
	c.Modes = backend.Exclusive
	return c
}

// TestUnsupportedByBackend checks that the capabilities of a driver decide.
func TestUnsupportedByBackend(t *testing.T) {
	t.Parallel()
	s := bench.Driver("driver", func(context.Context) (backend.Driver, error) {
		return exclusiveDriver{membackend.New(nil)}, nil
	})
	workloads := []bench.Workload{find(t, "W7"), find(t, "W8"), find(t, "W9")}
	for _, r := range bench.Run(t.Context(), tiny, workloads, s) {
		if r.Unsupported != (r.Workload != "W9") || r.Error != "" {
			t.Errorf("%+v", r)
		}
	}
}

// TestComparison checks that the ratio follows from the figures of both.
func TestComparison(t *testing.T) {
	t.Parallel()
	workloads := []bench.Workload{find(t, "W7"), find(t, "W8"), find(t, "W9")}
	results := bench.Run(t.Context(), tiny, workloads, subject(t, "mem:comparison"))
	if len(results) != 3 {
		t.Fatalf("%+v", results)
	}
	w7, w8, w9 := results[0], results[1], results[2]
	for i, want := range []float64{
		w7.Mutex.PerSecond / *w7.PerSecond, *w8.Mutex.Changes / *w8.Changes,
		float64(w9.Latency.P50) / float64(w9.Mutex.Latency.P50),
	} {
		if r := results[i]; r.Mutex.Ratio != want {
			t.Errorf("%s: ratio %v, want %v", r.Workload, r.Mutex.Ratio, want)
		}
	}
}

// TestLost checks that a lock that was lost while it was held is counted.
func TestLost(t *testing.T) {
	t.Parallel()
	good := subject(t, "mem:lost")
	s := wrap(good, "loser", func(ctx context.Context, m bench.Mutex) (bench.Lease, error) {
		lease, err := m.Lock(ctx)
		if err == nil {
			err = lease.Unlock(ctx) // so that there is nothing to unlock at the end
		}
		return lease, err
	})
	results := bench.Run(t.Context(), tiny, []bench.Workload{find(t, "W6")}, s)
	if len(results) != 1 || results[0].Lost == nil || *results[0].Lost != int64(tiny.Locks) {
		t.Errorf("%+v", results)
	}
}

// TestFloor checks that the floor has its turns, and that the ratio follows from the two figures.
func TestFloor(t *testing.T) {
	t.Parallel()
	s := subject(t, "mem:floor")
	s.Server = newCountingServer
	workloads := []bench.Workload{find(t, "W1"), find(t, "W2"), find(t, "W5")}
	results := bench.Run(t.Context(), tiny, workloads, s)
	if len(results) != 3 {
		t.Fatalf("%d rows", len(results))
	}
	w1, w2, w5 := results[0], results[1], results[2]
	for _, r := range []bench.Result{w1, w2} {
		if check(t, r); r.Floor == nil || r.Floor.Latency == nil {
			t.Fatalf("no floor: %+v", r)
		}
	}
	if want := float64(w1.Latency.P50) / float64(w1.Floor.Latency.P50); w1.Floor.Ratio != want {
		t.Errorf("ratio %v, want %v", w1.Floor.Ratio, want)
	}
	if want := w2.Floor.PerSecond / *w2.PerSecond; w2.Floor.Ratio != want {
		t.Errorf("ratio %v, want %v", w2.Floor.Ratio, want)
	}
	// The third reading is before the waiters, and the sixth one finds all their connections.
	if w5.Commands == nil || *w5.Commands != 0 || *w5.Connections != 3 {
		t.Errorf("%+v", w5)
	}
}

// TestInterrupted checks that a run whose context ends returns soon, and that no
// lock is held afterwards.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	const url = "mem:interrupted"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	config := tiny
	config.Prefix = "p/"
	config.Duration = time.Hour // nothing but the end of ctx ends this run
	config.Waiters = 3
	s := subject(t, url)
	first := wrap(s, "first", func(ctx context.Context, m bench.Mutex) (bench.Lease, error) {
		cancel()
		return m.Lock(ctx)
	})
	for _, w := range bench.Workloads() {
		bench.Run(ctx, config, []bench.Workload{w}, first)
	}
	c, err := dlock.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for info, err := range c.List(t.Context(), "") {
		t.Errorf("still there: %v, %v", info, err)
	}
}

// TestChildFails checks that a child that cannot be started, or cannot connect, fails its row.
func TestChildFails(t *testing.T) {
	t.Parallel()
	noProgram, noServer := subject(t, "file:"+t.TempDir()), separate(t, "file:relative")
	noProgram.Command = func() *exec.Cmd { return exec.Command("/nonexistent") }
	workloads := []bench.Workload{find(t, "W4"), find(t, "W7"), find(t, "W10"), find(t, "recovery")}
	for _, s := range []bench.Subject{noProgram, noServer} {
		for _, r := range bench.Run(t.Context(), tiny, workloads, s) {
			if r.Error == "" || r.Operations != 0 {
				t.Errorf("%+v", r)
			}
		}
	}
}

// TestJSON checks that results survive JSON, and that unknown figures are left out.
func TestJSON(t *testing.T) {
	t.Parallel()
	workloads := []bench.Workload{find(t, "W1"), find(t, "W3"), find(t, "W7")}
	for _, r := range bench.Run(t.Context(), tiny, workloads, subject(t, "mem:json")) {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var back bench.Result
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(r, back) {
			t.Errorf("%s is not %+v: %v", text, r, err)
		}
		if strings.Contains(string(text), `"bytes"`) {
			t.Errorf("%s has a figure that %s does not measure", text, r.Workload)
		}
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	if s := subject(t, "mem:?token=secret"); strings.Contains(s.Name, "secret") {
		t.Errorf("the name is %s", s.Name)
	}
	if _, err := bench.URL("no scheme"); err == nil {
		t.Error("no error")
	}
}
