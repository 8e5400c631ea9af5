package command

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/dlock-go/dlock/conformance"
)

const (
	// trialLimit is how long a case may take before it counts as hanging. An observation ends after
	// five minutes, and only void observations are repeated.
	trialLimit = 15 * time.Minute
	// leaveLimit is how long an interrupted case has to free its locks.
	leaveLimit = 20 * time.Second
)

// trial is a case that runs. It is the conformance.TB of the case.
type trial struct {
	name string
	ctx  context.Context
	done chan struct{} // closed when the case and its clean-up have ended

	mu       sync.Mutex
	seen     []string // failures
	void     []string // reasons of void observations
	skipped  string   // reason why the case skipped itself
	cleanups []func()
}

var _ conformance.TB = (*trial)(nil)

// try runs a case in a new goroutine, and returns when the case has ended or hangs. An
// end of ctx ends the case soon.
func try(ctx context.Context, c conformance.Case, mk conformance.HarnessMaker) *trial {
	t := &trial{name: c.Name, ctx: ctx, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		defer t.clean()
		defer t.recover()
		c.Run(t, mk)
	}()
	timeout := time.NewTimer(trialLimit)
	defer timeout.Stop()
	defer context.AfterFunc(ctx, func() { timeout.Reset(leaveLimit) })()
	select {
	case <-t.done:
	case <-timeout.C:
		t.Errorf("the case has not ended after %v", trialLimit)
	}
	return t
}

// recover turns a panic into a failure of its case. It cannot catch the panics of other goroutines.
func (t *trial) recover() {
	if r := recover(); r != nil {
		t.Errorf("panic: %v\n%s", r, debug.Stack())
	}
}

// clean calls the functions that were given to Cleanup, the last one first. It calls all of them,
// even if one panics or ends the goroutine.
func (t *trial) clean() {
	t.mu.Lock()
	last := len(t.cleanups) - 1
	if last < 0 {
		t.mu.Unlock()
		return
	}
	fn := t.cleanups[last]
	t.cleanups = t.cleanups[:last]
	t.mu.Unlock()
	defer t.clean()
	defer t.recover()
	fn()
}

// outcome returns the outcome of the case and its reasons.
func (t *trial) outcome() (outcome outcome, seen []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(t.seen) > 0:
		return failed, append(seen, t.seen...)
	case t.skipped != "":
		return skipped, []string{t.skipped}
	}
	return passed, []string{}
}

func (t *trial) Name() string             { return t.name }
func (t *trial) Context() context.Context { return t.ctx }
func (t *trial) Helper()                  {}

// Void records an observation that the case repeats, because the machine or the server stood still.
func (t *trial) Void(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.void = append(t.void, reason)
}

// voids returns the reasons of void observations.
func (t *trial) voids() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.void...)
}

// Logf drops its message, which is no finding.
func (t *trial) Logf(string, ...any) {}

func (t *trial) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen = append(t.seen, fmt.Sprintf(format, args...))
}

func (t *trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *trial) Skipf(format string, args ...any) {
	t.mu.Lock()
	t.skipped = fmt.Sprintf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}

func (t *trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.seen) > 0
}

func (t *trial) Cleanup(fn func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, fn)
}

func (t *trial) TempDir() string {
	dir, err := os.MkdirTemp("", "dlock-verify-")
	if err != nil {
		t.Fatalf("TempDir: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
