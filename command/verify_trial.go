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
	// trialLimit is when a case counts as hanging. An observation ends itself after five minutes, and
	// only void ones are repeated.
	trialLimit = 15 * time.Minute
	// leaveLimit is how long an interrupted case has to free its locks.
	leaveLimit = 20 * time.Second
)

// trial is one case that runs: the conformance.TB of it.
type trial struct {
	name string
	ctx  context.Context
	done chan struct{} // closed when the case and its clean-up have ended

	mu       sync.Mutex
	seen     []string // what was wrong
	void     []string // why observations were void
	skipped  string   // why it ended itself
	cleanups []func()
}

var _ conformance.TB = (*trial)(nil)

// try runs a case on a goroutine of its own, until it has ended or hangs; an end of ctx ends it soon.
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

// recover makes a panic a failure of its case. Those of other goroutines it cannot catch.
func (t *trial) recover() {
	if r := recover(); r != nil {
		t.Errorf("panic: %v\n%s", r, debug.Stack())
	}
}

// clean calls what was given to Cleanup, the last first, also if one of them
// panics or ends the goroutine.
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

// outcome is what the trial has come to; seen says why.
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

// Void counts an observation that the case repeats, because the machine or the server stood still.
func (t *trial) Void(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.void = append(t.void, reason)
}

// voids returns why observations were void.
func (t *trial) voids() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.void...)
}

// Logf drops what is no finding.
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
