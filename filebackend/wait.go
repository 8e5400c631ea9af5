//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
)

// noWatch is the number of a watch that does not exist.
const noWatch = -1

// These are the pauses of Wait without an event, with a jitter of one half. A pause doubles while
// the holder stays the same, so that many processes can wait for hours at no cost. Linux gives a
// user 128 watchers (inotify(7), max_user_instances); the other processes poll.
const (
	// pauseWatched is the first pause of a watched waiter, in case no event reports a release.
	pauseWatched    = 2 * time.Second
	maxPauseWatched = 16 * time.Second
	// maxPauseBlocked is the longest pause of a waiter with a thread in flock(2), and of the checks
	// of a process that only waits. They are for the rare cases of wakeBlocked. A thousand such
	// processes use half a percent of a processor.
	maxPauseBlocked = 4 * time.Minute
	// pauseUnwatched is the first interval of polling, if watching is impossible.
	pauseUnwatched    = 50 * time.Millisecond
	maxPauseUnwatched = 2 * time.Second
	// pauseMember is the longest pause of a member, whose attempts keep its place: see waiterTerm.
	pauseMember = 2 * time.Second / 3
	// maxLeftThreads limits the threads in flock(2) of waiters that have left. Nothing ends such a
	// thread before the lock is free, and Go ends a process with 10,000 threads.
	maxLeftThreads = 32
	// pauseWoken is the first pause after an event that leaves the file locked, by the same holder
	// or without a holder's mark. When a process dies, the kernel reports the close just before it
	// drops the mark and then the lock. On a busy machine that can take some milliseconds, so some
	// retries with growing pauses follow. They do not count for the pauses without an event.
	pauseWoken = 2 * time.Millisecond
)

// Wait implements backend.Waiter. It returns when a descriptor of the lock file was closed, or the
// file removed, since the last Acquire, and in any case after a pause. It never returns a grant:
// the kernel hands the lock to the next process that tries.
func (d *driver) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
	pause, ok := b.State.(time.Duration)
	if !ok {
		pause = pauseUnwatched
	}
	var wake <-chan struct{}
	a := d.find(req)
	if a != nil {
		wake = a.wake
		if req.Mode == backend.Exclusive { // a permit may wait without being a member
			d.block(a)
		}
	}
	timer := time.NewTimer(pause/2 + rand.N(pause))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-wake:
		a.woken.Store(true)
	case <-timer.C:
	}
	return nil, nil
}

// nextPause returns the pause of the next Wait, which ends without an event. holder is what the
// last attempt found, or nil. After an event the pauses are short at first. a.mu must be held.
func (a *acquisition) nextPause(holder *record) time.Duration {
	var fence uint64 // 0 if the holder is unknown
	if holder != nil {
		fence = holder.fence
	}
	changed := fence != a.holderFence
	a.holderFence = fence
	first, longest := a.pauses(holder)
	last, woken := a.retry, a.woken.Swap(false)
	a.retry = 0
	switch {
	case changed && holder != nil: // its close will be another event
	case woken:
		a.retry = pauseWoken
	case last > 0 && 4*last < min(longest, pauseWatched):
		a.retry = 4 * last
	case last == 0: // a.pause has passed
		a.pause *= 2
	}
	if changed {
		a.pause = first
	}
	a.pause = min(max(a.pause, first), longest)
	return cmp.Or(a.retry, a.pause)
}

// pauses returns the first and the longest pause while the holder stays the same. A member that
// finds an unknown holder retries soon: usually a mutex is about to give way. a.mu must be held.
func (a *acquisition) pauses(holder *record) (first, longest time.Duration) {
	switch {
	case a.member != nil && holder == nil:
		return pauseWoken, pauseMember
	case a.member != nil && a.watch == noWatch:
		return pauseUnwatched, pauseMember
	case a.member != nil:
		return pauseMember, pauseMember
	case a.isBlocked():
		return pauseWatched, maxPauseBlocked
	case a.watch != noWatch:
		return pauseWatched, maxPauseWatched
	}
	return pauseUnwatched, maxPauseUnwatched
}

// signal makes one Wait return: the present one, or the next one if there is none. It does not
// block.
func (a *acquisition) signal() {
	select {
	case a.wake <- struct{}{}:
	default: // there is a signal already
	}
}

// addWatch makes every close of a's file signal a. It reports whether the watch is new: then a
// release before it was not seen, and another attempt is necessary. a.mu must be held.
func (d *driver) addWatch(a *acquisition) bool {
	if a.watch != noWatch || d.watcher == nil || d.opts.Block {
		return false
	}
	a.watch = d.watcher.add(a)
	return a.watch != noWatch
}

// removeWatch is the inverse of addWatch. a.mu must be held.
func (d *driver) removeWatch(a *acquisition) {
	if a.watch != noWatch {
		d.watcher.remove(a.watch, a)
		a.watch = noWatch
	}
}

// block starts a thread that waits in flock(2) for the lock of a waiter, with Options.Block. The
// thread has a duplicate of the waiter's descriptor. A lock belongs to both of them, so the
// waiter's next attempt succeeds. Without a thread the waiter polls, and calls block again.
//
// block never waits for a.mu, which an attempt on a disk that hangs may hold.
func (d *driver) block(a *acquisition) {
	if !d.opts.Block || !a.mu.TryLock() {
		return
	}
	defer a.mu.Unlock()
	if a.isBlocked() || a.polls || a.state != queued || a.member != nil {
		return
	}
	if d.leftThreads.Load() >= maxLeftThreads {
		return
	}
	fd, err := unix.FcntlInt(uintptr(a.file.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return // the waiter's timer is left
	}
	a.blocked = a.file
	d.startPeriodicChecks()
	go d.blockOn(a, a.file, fd)
}

// blockOn waits in flock until it has locked fd, a duplicate of file's descriptor, or flock fails,
// and then signals the waiter. It ends only when the lock is free, because nothing else ends flock.
func (d *driver) blockOn(a *acquisition, file *lockFile, fd int) {
	err := withoutSignals(func() error {
		return ignoreInterrupts(func() error { return unix.Flock(fd, unix.LOCK_EX) })
	})
	a.mu.Lock()
	if a.blocked == file {
		a.blocked = nil
	}
	waits := a.file == file
	a.polls = a.polls || err != nil
	a.mu.Unlock()
	if waits {
		a.signal() // also if flock has failed: the pause of the waiter may be long
	} else {
		d.leftThreads.Add(-1)
		_ = unix.Flock(fd, unix.LOCK_UN) // a child that is being started may have the descriptor
	}
	_ = unix.Close(fd)
}
