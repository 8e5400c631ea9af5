package engine

import (
	"context"
	"log/slog"
	"time"
)

// maxWatchPause limits the pause between two calls of a driver's Watch. A Watch that has lasted for
// longer has worked, so the next pause is the shortest again.
const maxWatchPause = time.Second

// watch is one loop over the changes of a lock. Its goroutine calls the driver's Watch, which
// blocks, again and again. Only this goroutine uses failed and ends.
type watch struct {
	engine  *Engine
	lock    *Lock
	changed chan struct{} // of one element
	done    chan struct{} // closed when the goroutine has ended
	failed  bool          // a Watch did not return, which is logged once
	ends    int           // short calls of Watch in a row
}

// Watch starts to watch the lock l, until stop is called. It sends to changed when the lock may
// have changed: several changes may come as one, and a signal may come for none. If the driver
// cannot report changes, changed is nil.
//
// The driver signals when it has begun to watch, so a change between the first Inspect and that
// moment leads to another Inspect. An error of the driver is followed by a pause and another Watch:
// the signal in between stands for the changes that both have missed.
//
// stop waits until the driver's call has returned, but only for joinTimeout. Of l only Name and Key
// are used.
func (e *Engine) Watch(ctx context.Context, l *Lock) (changed <-chan struct{}, stop func()) {
	if e.watcher == nil {
		return nil, func() {}
	}
	w := &watch{engine: e, lock: l, changed: make(chan struct{}, 1), done: make(chan struct{})}
	ctx, cancel := e.WhileOpen(ctx)
	w.start(ctx)
	return w.changed, func() {
		cancel()
		if !waitFor(w.done, joinTimeout) {
			e.log(l, slog.LevelError, "dlock: the driver's Watch outlives its context", nil)
		}
	}
}

// start starts the goroutine of w.
func (w *watch) start(ctx context.Context) {
	w.engine.mu.Lock()
	defer w.engine.unlock()
	w.engine.start(func() { w.run(ctx) })
}

// run calls the driver until ctx ends. If the driver ends the goroutine, another one continues.
func (w *watch) run(ctx context.Context) {
	returned := false
	defer func() {
		if returned {
			close(w.done)
		} else {
			w.start(ctx)
		}
	}()
	for w.pause(ctx); ctx.Err() == nil; w.pause(ctx) {
		w.call(ctx)
	}
	returned = true
}

// pause backs off if the last Watch was short.
func (w *watch) pause(ctx context.Context) {
	if w.ends > 0 {
		w.engine.Pause(ctx, w.ends-1, maxWatchPause)
	}
}

// call is one call of the driver. Its error is not needed, because another call follows.
func (w *watch) call(ctx context.Context) {
	began, failure := time.Now(), errGoexit
	defer func() {
		if value := recover(); value != nil {
			failure = panicError(value)
		}
		w.ended(time.Since(began), failure)
	}()
	_ = w.engine.watcher.Watch(ctx, w.lock.Key, w.signal)
	failure = nil
}

// ended follows the end of a call that took so long. Changes may be missed from then on. failure is
// not nil if the driver did not return.
func (w *watch) ended(took time.Duration, failure error) {
	if w.ends++; took > maxWatchPause {
		w.ends = 1
	}
	if failure != nil && !w.failed {
		w.failed = true
		w.engine.log(w.lock, slog.LevelError, "dlock: the driver's Watch did not return", failure)
	}
	w.signal()
}

// signal sends to changed, unless an element waits there already. It does not block.
func (w *watch) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
