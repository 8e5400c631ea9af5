//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
)

// A lock is lost if its file is removed or replaced from outside: another process would lock the
// new file. The server of a network file system can also drop it. Three sources lead to a check:
// renewals, events of the watcher, and a timer. The timer is for endless locks, which have no
// renewals, and for Options.Block, which uses no watcher. With Options.Block the timer also finds
// the readers that a waiter has to join.

// checkInterval is the time between two checks by the timer. While this driver only waits, it
// doubles up to maxPauseBlocked: nothing is lost then, and many processes may wait for hours. So a
// check comes late by no more than the process has waited already.
const checkInterval = time.Second

// check returns ErrLost and forgets a if its file is not in its place any more, or if a network
// file system has dropped its lock. Any other error leaves the outcome unknown. a.mu must be held.
func (d *driver) check(a *acquisition) error {
	if a.state != held {
		return errUnknown
	}
	current, err := a.inPlace()
	if err != nil {
		return fmt.Errorf("file: %w", err)
	}
	if !current {
		d.forget(a)
		return errRemoved(a.path)
	}
	if d.network {
		return d.prove(a)
	}
	return nil
}

// prove checks that the server of a network file system still has the lock of a. It writes through
// the descriptor of the lock, and syncs, so that the server has to answer. The server of NFS drops
// the locks of a client that was cut off for longer than its lease, and the client then refuses
// each write with EIO (fcntl(2), "Lost locks"). The byte is the first one of every lock file, so
// the write changes no record of a holder. a.mu must be held.
func (d *driver) prove(a *acquisition) error {
	err := ignoreInterrupts(func() error {
		_, err := unix.Pwrite(a.file.fd, []byte(magic[:1]), 0)
		return err
	})
	if err == nil {
		err = ignoreInterrupts(func() error { return flush(a.file.fd) })
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EIO) || errors.Is(err, unix.EBADF) || errors.Is(err, unix.ESTALE):
		d.forget(a)
		return errDropped(a.path, err)
	}
	return fmt.Errorf("file: %w", &fs.PathError{Op: "write", Path: a.path, Err: err})
}

// onReplaced is called by the watcher if the lock file with this name was removed or replaced. An
// empty name means any file. onReplaced does not block: a.mu may be held for as long as the disk
// takes.
func (d *driver) onReplaced(name string) {
	for _, a := range d.all(name) {
		a.signal() // in case it waits
		d.recheckInBackground(a)
	}
}

// recheckInBackground starts a recheck, unless one is about to begin. Each has its own goroutine,
// so that one file on a disk that hangs delays no other. Close does not wait for these goroutines:
// one that begins later finds its acquisition gone, and reports nothing.
func (d *driver) recheckInBackground(a *acquisition) {
	if !a.recheckPending.Swap(true) {
		go d.recheck(a)
	}
}

// recheck checks the file of a, and reports a loss through Request.Lost. Lost is code of the core,
// so a.mu must not be held during the call. It reports no loss for a waiter, or if the path cannot
// be read: the next check decides.
func (d *driver) recheck(a *acquisition) {
	d.beginUpkeep(a)
	a.recheckPending.Store(false)
	wasHeld, lose := a.state == held, a.lost
	err := d.check(a)
	d.wakeBlocked(a)
	d.endUpkeep(a)
	if wasHeld && lose != nil && errors.Is(err, backend.ErrLost) {
		lose(err)
	}
}

// wakeBlocked signals a waiter with a thread in flock(2) in the two cases in which the kernel does
// not wake the thread:
//
//   - The lock file was replaced, and a process keeps the old one locked: one that is stopped, or
//     one outside this package. The others notice that they have lost the lock.
//   - There are members. A holder that becomes a reader keeps the thread blocked, and readers that
//     come later would overtake the waiter. It gets its place among the members now.
//
// a.mu must be held.
func (d *driver) wakeBlocked(a *acquisition) {
	if a.state != queued || !a.isBlocked() {
		return
	}
	if current, err := a.inPlace(); err == nil && !current {
		a.signal()
		return
	}
	if d.network || a.member != nil {
		return
	}
	if among, err := a.hasMembers(); err == nil && among {
		a.signal()
	}
}

// startPeriodicChecks makes checkPeriodically check within checkInterval. It starts its goroutine
// if there is none.
func (d *driver) startPeriodicChecks() {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
	case d.stop == nil:
		d.stop = make(chan struct{})
		d.checks.Go(d.checkPeriodically)
	default:
		select {
		case d.sooner <- struct{}{}:
		default: // there is a signal already
		}
	}
}

// checkPeriodically rechecks all acquisitions until Close.
func (d *driver) checkPeriodically() {
	interval := checkInterval
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			all := d.all("")
			interval = nextInterval(interval, all)
			for _, a := range all {
				d.recheckInBackground(a)
			}
		case <-d.sooner:
			if interval == checkInterval {
				continue // signals must not put the check off
			}
			interval = checkInterval
		case <-d.stop:
			return
		}
		timer.Reset(interval)
	}
}

// nextInterval returns the time between a check of all acquisitions and the next check. last is the
// time before it.
func nextInterval(last time.Duration, all []*acquisition) time.Duration {
	for _, a := range all {
		if !a.onlyWaits() {
			return checkInterval
		}
	}
	return min(2*last, maxPauseBlocked)
}

// onlyWaits reports whether a waits, and has nothing to lose. It does not block: a is not said to
// wait while the disk works for it.
func (a *acquisition) onlyWaits() bool {
	if !a.mu.TryLock() {
		return false
	}
	defer a.mu.Unlock()
	return a.state == queued
}
