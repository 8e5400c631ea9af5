//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
)

const (
	// maxReplaced is how often one attempt may find that its file was replaced.
	maxReplaced = 16
	// closeTimeout is how long Close waits for a disk. The client waits longer for Close.
	closeTimeout = 4 * time.Second
	// endless is the term of a lock with Options.Endless.
	endless = 100 * 365 * 24 * time.Hour
)

// driver is a directory, and the acquisitions that this process has in it. Nothing but an open file
// belongs to a held lock: no goroutine, no timer and no watch.
//
// A goroutine that has locked an acquisition's mu may lock driver.mu or watcher.mu in addition, and
// never the other way round. driver.mu is never held while the disk works.
type driver struct {
	dir     string
	opts    Options
	network bool           // the directory may be on a network file system
	memory  bool           // it is on a file system that a restart of the machine empties
	boot    string         // see bootID; if it is empty, the driver syncs every grant
	watcher *watcher       // nil if the system cannot watch
	checks  sync.WaitGroup // of checkPeriodically
	stop    chan struct{}  // closed by Close to end the periodic checks; nil before they begin
	sooner  chan struct{}  // has an element if the next check has to follow within checkInterval

	requests, upkeep slots // limit the calls of the disk

	leftThreads atomic.Int32 // the threads in flock of waiters that have left: see maxLeftThreads

	mu       sync.Mutex // guards stop and the fields below
	registry map[id]*acquisition
	closed   bool // admit refuses new acquisitions
}

var (
	_ backend.Driver     = (*driver)(nil)
	_ backend.Waiter     = (*driver)(nil)
	_ backend.Inspector  = (*driver)(nil)
	_ backend.Downgrader = (*driver)(nil)
)

// newDriver returns the driver of a directory that connect has checked. It cannot fail: without a
// watcher the driver polls.
//
// The watcher is opened here only to detect whether the system provides one (Capabilities.Notify).
// With Options.Endless it opens with the first waiter, so that a short-lived process does not wait
// for the kernel to close it. With Options.Block it is never used.
func newDriver(dir string, opts Options) backend.Driver {
	network, err := networkFS(dir)
	d := &driver{
		dir: dir, opts: opts, network: err != nil || network != "",
		requests: make(slots, maxRequests), upkeep: make(slots, maxUpkeep),
		sooner: make(chan struct{}, 1), registry: map[id]*acquisition{},
	}
	if !d.network {
		d.boot = bootID() // on a network the pages of a file are in several caches
	}
	d.memory = inMemory(dir)
	d.watcher = newWatcher(dir, d.onReplaced)
	if !opts.Endless && !opts.Block && d.watcher != nil && !d.watcher.open() {
		d.watcher = nil
	}
	return d
}

// Acquire implements backend.Driver. It tries the flock once. The work may outlast ctx if the disk
// hangs; a Release finds its result in the registry. If many requests hang, the next ones do not
// begin: they return ErrUnavailable when ctx ends.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	switch {
	case req.Fair:
		return nil, errFair
	case d.network && req.Mode != backend.Exclusive:
		return nil, errNetwork
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	if err := d.requests.take(ctx); err != nil {
		return nil, err
	}
	a, err := d.admit(req)
	if err != nil {
		<-d.requests
		return nil, err
	}
	return callAndFree(ctx, d.requests, func() (*backend.Grant, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		sent, waited := time.Now(), a.state == queued && req.Queue
		if err := d.attempt(a, req); err != nil {
			keeps := a.state == held || isQueued(err) || waited && errors.Is(err, errGate)
			if !keeps {
				d.forget(a)
			}
			return nil, err
		}
		return &backend.Grant{Request: *req, Term: d.term(sent, req.TTL), Fence: a.fence}, nil
	})
}

// attempt tries to get the lock for a, or checks that a still has it. a.mu must be held.
//
// An uncontended attempt of a mutex makes eight system calls: open and fstat of the file, flock,
// lstat twice, pread of the last record, pwrite of the next one, and fcntl (mark). lstat reports
// whether the file is still in place, and whether there are members.
func (d *driver) attempt(a *acquisition, req *backend.Request) error {
	if a.state == gone {
		return errReleased
	}
	a.lost = req.Lost
	if a.state == held {
		return d.check(a)
	}
	locked, err := d.lock(a, req)
	if err != nil {
		return err
	}
	among := req.Mode != backend.Exclusive || a.member != nil
	if !among && !d.network {
		if among, err = a.hasMembers(); err != nil {
			return err
		}
	}
	switch {
	case among:
		a.file.yield() // first, because enter may wait for another process
		return d.enter(a, req)
	case !locked:
		return d.busy(a, req.Queue)
	}
	d.removeWatch(a)
	return d.grant(a, req.Meta)
}

// tryLock tries the flock of a's file for a mutex. Members lock it when it is their turn. A waiter
// whose thread is in the kernel's queue does not try, because it could overtake the threads in
// front of it: its thread gets the lock. a.mu must be held.
func (a *acquisition) tryLock(mode backend.Mode) (locked bool, err error) {
	if mode != backend.Exclusive || a.member != nil || a.isBlocked() {
		return false, nil
	}
	return a.file.tryLockFor(mode)
}

// lock tries the flock of the file that is in place now. If the caller will wait, lock adds a watch
// and then tries again, so that no release between the two is missed. a.mu must be held.
//
// The path is checked after the flock. If it were checked before, the file could be removed in
// between. This process would then hold a file that no other process opens any more.
func (d *driver) lock(a *acquisition, req *backend.Request) (bool, error) {
	for range maxReplaced {
		if err := d.openFile(a); err != nil {
			return false, err
		}
		locked, err := a.tryLock(req.Mode)
		if err != nil {
			return false, err
		}
		current, err := a.file.inPlace()
		switch {
		case err != nil:
			return false, fmt.Errorf("%w: file: %w", backend.ErrUnavailable, err)
		case !current:
			d.closeFile(a)
		case locked || !req.Queue || !d.addWatch(a):
			return locked, nil
		}
	}
	return false, fmt.Errorf("%w: file: %s is replaced again and again",
		backend.ErrUnavailable, a.path)
}

// openFile opens a's file unless it is open. If the directory is missing, it makes the directory
// again. a.mu must be held.
func (d *driver) openFile(a *acquisition) error {
	if a.state != absent {
		return nil
	}
	const flags = unix.O_RDWR | unix.O_CREAT
	file, err := openLock(a.path, flags)
	if errors.Is(err, fs.ErrNotExist) {
		if err := connect(d.dir, &d.opts); err != nil {
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
		}
		file, err = openLock(a.path, flags)
	}
	if d.watcher != nil {
		d.watcher.watchDir() // it may be a new directory
	}
	if err != nil {
		return err
	}
	a.file, a.state = file, queued
	return nil
}

// grant makes a the holder of its key, after it has locked the file: it writes the record with the
// next fence. a.mu must be held.
func (d *driver) grant(a *acquisition, meta string) error {
	fence, err := a.file.grant(a.id, meta, d.boot)
	if err == nil && d.opts.Inherit {
		err = a.file.inherit()
	}
	if err != nil {
		return err
	}
	d.hold(a, fence)
	return nil
}

// hold records that a has the lock. a.mu must be held.
func (d *driver) hold(a *acquisition, fence uint64) {
	a.fence, a.state = fence, held
	if d.opts.Endless || d.opts.Block { // without renewals, or without a watcher
		d.startPeriodicChecks()
	}
}

// busy returns the answer to an attempt that found the file locked. Its State is the pause of the
// next Wait, not a position: the queue of flock cannot be read. a.mu must be held.
func (d *driver) busy(a *acquisition, queue bool) error {
	holder, err := a.file.holder(a.key)
	if err != nil {
		return err
	}
	busy := a.busy(holder, queue)
	busy.Reliable = a.isBlocked() && !d.network
	if holder != nil {
		busy.Fence = holder.fence
	}
	return busy
}

// busy returns the answer to an attempt that holder excludes, or nil if it is unknown. a.mu must be
// held.
func (a *acquisition) busy(holder *record, queue bool) *backend.Busy {
	busy := &backend.Busy{Queued: queue}
	busy.State = a.nextPause(holder)
	if holder != nil {
		busy.Holder = holder.owner
	}
	return busy
}

// isQueued reports whether err is a *Busy of an acquisition that keeps its file open.
func isQueued(err error) bool {
	busy, ok := errors.AsType[*backend.Busy](err)
	return ok && busy.Queued
}

// term returns a term from sent on. The kernel keeps the lock longer than any TTL.
func (d *driver) term(sent time.Time, ttl time.Duration) backend.Term {
	if d.opts.Endless {
		ttl = endless
	}
	return backend.Term{Sent: sent, TTL: ttl}
}

// Renew implements backend.Driver. A process has its lock for as long as it has the file open, so
// the file in its place is the proof, and Renew writes nothing. A network file system needs another
// proof: see prove.
//
// The driver is no BatchRenewer, because there is nothing to combine. The core renews several locks
// at the same time, so a renewal that hangs on the disk does not delay the renewals after it.
func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	return backend.Call(ctx, func(context.Context) (backend.Term, error) {
		a := d.find(&g.Request)
		if a == nil {
			return backend.Term{}, errUnknown
		}
		d.beginUpkeep(a)
		defer d.endUpkeep(a)
		sent := time.Now()
		err := d.check(a)
		return d.term(sent, g.TTL), err
	})
}

// Release implements backend.Driver. It frees the lock, or closes the file of a waiter. It waits
// for an abandoned attempt of the same owner that still hangs on the disk, and removes its result.
// If ctx ends first, the release goes on in the background. While one does so, further releases of
// the same owner leave nothing: they return ErrUnavailable when their contexts end.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	a := d.find(&g.Request)
	if a == nil {
		return backend.ErrNotHeld
	}
	_, err := callInSlot(ctx, a.releases, func() (struct{}, error) {
		d.beginUpkeep(a)
		defer d.endUpkeep(a)
		return struct{}{}, d.remove(a)
	})
	return err
}

// remove makes the four system calls of a release: lstat (was the lock lost?), fcntl (unmark),
// flock and close. It forgets a, and returns ErrNotHeld if there was nothing to remove: a had no
// open file, or its lock was lost with a file that is not in its place any more. a.mu must be held.
func (d *driver) remove(a *acquisition) error {
	existed := a.state == queued || a.state == held
	if a.state == held {
		if current, err := a.inPlace(); err == nil {
			existed = current
		}
	}
	d.forget(a)
	if !existed {
		return backend.ErrNotHeld
	}
	return nil
}

// Capabilities implements backend.Driver. Session is true, because a lock has no TTL here. Late is
// 0 although an attempt may be executed late: the registry makes its Release find it.
//
// On a network file system there are mutexes only: the members of a key rely on the lock of a
// directory, and NFS locks directories for each host alone.
func (d *driver) Capabilities() backend.Capabilities {
	modes, fencing := backend.Exclusive, backend.FenceDurable
	if !d.network {
		modes |= backend.Shared | backend.Permit
	}
	if d.memory { // after a restart of the machine, the counters begin again with the clock
		fencing = backend.FenceVolatile
	}
	return backend.Capabilities{
		Modes:   modes,
		Fencing: fencing,
		Session: true,
		Inspect: true,
		List:    true,
		Notify:  d.notifies(),
	}
}

// notifies reports whether the system can wake a waiter. If not, the core polls without Wait.
func (d *driver) notifies() bool { return d.watcher != nil || d.opts.Block }

// Close implements backend.Driver. It frees all locks. If the disk hangs, Close returns an error
// after closeTimeout, and the rest is freed in the background when the disk answers. On a very busy
// machine the kernel can take as long to close the watcher's descriptor: that is no error.
func (d *driver) Close() error {
	d.mu.Lock()
	if !d.closed && d.stop != nil {
		close(d.stop)
	}
	d.closed = true
	d.mu.Unlock()
	freed, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		d.freeAll(freed)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(closeTimeout):
	}
	select {
	case <-freed:
		return nil
	default:
		return errHangs
	}
}

// freeAll ends all goroutines and forgets all acquisitions. It closes freed when it has freed all
// locks. It blocks for as long as the disk takes, but no acquisition waits for another one.
func (d *driver) freeAll(freed chan<- struct{}) {
	var locks, ends sync.WaitGroup
	locks.Go(d.checks.Wait)
	if d.watcher != nil {
		ends.Go(d.watcher.close)
	}
	for _, a := range d.all("") {
		locks.Go(func() {
			d.beginUpkeep(a)
			defer d.endUpkeep(a)
			d.forget(a)
		})
	}
	locks.Wait()
	close(freed)
	ends.Wait()
}
