//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// noWatch stands for no watch.
const noWatch = -1

// How long Wait waits without an event, give or take a half.
const (
	// pauseWatched is the timer beneath: for a lock that was freed without an event.
	pauseWatched = 2 * time.Second
	// pauseUnwatched is the interval of polling, where watching is impossible.
	pauseUnwatched = 50 * time.Millisecond
	// pauseWoken follows an event after which the same holder is still there: when a
	// process dies the kernel tells of the close just before it drops the lock.
	pauseWoken = 2 * time.Millisecond
)

// Wait returns when some descriptor of the lock file was closed, or the file removed,
// since the last Acquire.
func (d *driver) Wait(ctx context.Context, req *backend.Request, b *backend.Busy) (*backend.Grant, error) {
	pause, ok := b.State.(time.Duration)
	if !ok {
		pause = pauseUnwatched
	}
	var wake <-chan struct{}
	e := d.entry(&backend.Grant{Request: *req})
	if e != nil {
		wake = e.wake
	}
	timer := time.NewTimer(pause/2 + rand.N(pause))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-wake:
		e.woken.Store(true)
	case <-timer.C:
	}
	return nil, nil
}

// signal makes a Wait return, now or when it comes.
func (e *entry) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// watch makes every close of e's file wake e. It reports whether that is new: then
// what happened before went unseen. e.mu is held.
func (d *driver) watch(e *entry) bool {
	if e.watch != noWatch || d.watcher == nil {
		return false
	}
	e.watch = d.watcher.add(e)
	return e.watch != noWatch
}

// unwatch is the inverse of watch.
func (d *driver) unwatch(e *entry) {
	if e.watch != noWatch {
		d.watcher.remove(e.watch, e)
		e.watch = noWatch
	}
}
