package testenv

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/announce"
	"github.com/dlock-go/dlock/internal/lag"
)

const (
	// tries is the maximum number of tries of InTime.
	tries = 5
	// allowance is the part of a limit, one in ten, for which the machine or the server may stand
	// still, as in package conformance.
	allowance = 10
	// probeInterval is the time between two probes of a server.
	probeInterval = 50 * time.Millisecond
)

// InTime checks that something takes no longer than limit, less the lag of this process. A try
// returns when that began, and how long it took. probe sends one request to the server, on a
// connection that the try does not use; it is nil if the promise needs no server.
//
// A try that is late is void if this process or the server stood still for more than a tenth of the
// limit since the try began. It is then repeated, at most four times. Otherwise InTime fails tb at
// once: nothing but a defect explains the delay.
func InTime(
	tb TB, limit time.Duration, probe func(context.Context) error,
	try func() (begun time.Time, took time.Duration),
) {
	tb.Helper()
	for n := 1; ; n++ {
		w := startWatch(probe)
		begun, took := try()
		late, silent := w.stop(begun)
		if took-late <= limit {
			return
		}
		text := fmt.Sprintf("it took %v, want %v at most; this process was late by up to %v, and "+
			"the server took up to %v for an answer", took, limit, late, silent)
		if max(late, silent) <= limit/allowance || n == tries {
			tb.Errorf("%s", text)
			return
		}
		tb.Logf("%s", announce.Void(text))
	}
}

// Probe returns a probe for InTime: the driver for url, which is closed with the test, inspects a
// free lock.
func Probe(tb TB, url string) func(context.Context) error {
	tb.Helper()
	d, err := Open(tb.Context(), url)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() { _ = d.Close() })
	inspector, ok := d.(backend.Inspector)
	if !ok {
		tb.Fatalf("the driver cannot inspect")
	}
	return func(ctx context.Context) error {
		_, err := inspector.Inspect(ctx, tb.Name()+"/probe")
		return err
	}
}

// watch measures how long this process and a server stand still.
type watch struct {
	meter  *lag.Meter
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	sent    time.Time  // of the probe under way
	answers lag.Record // how long the answers took
}

func startWatch(probe func(context.Context) error) *watch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{meter: lag.Start(), cancel: cancel}
	if probe != nil {
		w.done.Go(func() { w.run(ctx, probe) })
	}
	return w
}

// run sends probes until ctx ends. An error is an answer, too.
func (w *watch) run(ctx context.Context, probe func(context.Context) error) {
	for ctx.Err() == nil {
		w.mu.Lock()
		w.sent = time.Now()
		w.mu.Unlock()
		_ = probe(ctx)
		w.mu.Lock()
		w.answered()
		w.mu.Unlock()
		select {
		case <-time.After(probeInterval):
		case <-ctx.Done():
		}
	}
}

// answered records the probe under way, if there is one. w.mu must be held.
func (w *watch) answered() {
	if !w.sent.IsZero() {
		now := time.Now()
		w.answers.Add(now, now.Sub(w.sent))
		w.sent = time.Time{}
	}
}

// stop ends the watch. It returns the longest delay of this process since begun, and the longest
// time since then that the server took for an answer.
func (w *watch) stop(begun time.Time) (late, silent time.Duration) {
	late = w.meter.Worst(begun)
	w.mu.Lock()
	w.answered() // a probe without an answer counts until now
	silent = w.answers.Worst(begun)
	w.mu.Unlock()
	w.cancel()
	w.done.Wait()
	w.meter.Stop()
	return late, silent
}
