//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
)

var (
	_ backend.Driver       = (*driver)(nil)
	_ backend.Waiter       = (*driver)(nil)
	_ backend.BatchRenewer = (*driver)(nil)
	_ backend.Inspector    = (*driver)(nil)
)

const (
	// suffix ends the names of lock files.
	suffix = ".lock"
	// maxFile is the longest name of a file: eCryptfs takes 143 bytes, others 255.
	maxFile = 143
	// maxReplaced is how often in a row an attempt finds its file replaced.
	maxReplaced = 16
	// closeTimeout is how long Close waits for a disk. It is less than the client waits for Close.
	closeTimeout = 4 * time.Second
	// endless is the term of a lock that lasts as long as its process.
	endless = 100 * 365 * 24 * time.Hour
)

// driver is one connection: a directory, and what this process has in it.
type driver struct {
	dir     string
	opts    *Options
	boot    string
	watcher *watcher // nil where the system cannot watch

	mu      sync.Mutex // taken last
	entries map[id]*entry
	closed  bool
}

// id names an acquisition.
type id struct{ key, owner string }

// entry is one acquisition that holds, or waits, or is being tried. A waiter keeps
// its file open from try to try: closing it is an event for all other waiters,
// and they would wake each other for ever.
type entry struct {
	id
	path  string
	wake  chan struct{} // filled by the watcher
	woken atomic.Bool   // Wait has emptied wake since the last try
	doubt atomic.Bool   // its file may be gone: a goroutine is about to check

	mu     sync.Mutex
	left   bool      // not in driver.entries any more
	file   *lockFile // nil if not open
	watch  int       // the watch on the file, noWatch if none
	fence  uint64    // 0 if not held
	lost   func(error)
	holder uint64 // fence of the holder at the last try
}

// start returns the driver of a directory that was prepared.
func start(dir string, opts *Options) backend.Driver {
	d := &driver{dir: dir, opts: opts, entries: map[id]*entry{}}
	if network, err := networkFS(dir); err == nil && network == "" {
		d.boot = bootID() // on others the pages of a file are not one cache
	}
	d.watcher = newWatcher(dir, d.replaced)
	return d
}

// Capabilities are the same in every directory. A lock has no TTL here.
func (d *driver) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Modes: backend.Exclusive, Fencing: backend.FenceDurable, Session: true,
		Inspect: true, List: true, Notify: d.watcher != nil,
	}
}

// Acquire tries the flock once. The entry is known before the first system call, so
// that a Release after an attempt that was given up finds it.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	switch {
	case req.Mode != backend.Exclusive:
		return nil, errMode
	case req.Fair:
		return nil, errFair
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	e, err := d.enter(req)
	if err != nil {
		return nil, err
	}
	return backend.Call(ctx, func(context.Context) (*backend.Grant, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		sent := time.Now()
		if err := d.attempt(e, req); err != nil {
			if e.fence == 0 && !queued(err) {
				d.leave(e)
			}
			return nil, err
		}
		return &backend.Grant{Request: *req, Fence: e.fence, Term: backend.Term{Sent: sent, TTL: d.term(req.TTL)}}, nil
	})
}

// Renew answers at once: the lock is held as long as the process and its file are.
func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	return backend.Call(ctx, func(context.Context) (backend.Term, error) {
		e := d.entry(g)
		if e == nil {
			return backend.Term{}, errUnknown
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		sent := time.Now()
		err := d.check(e)
		return backend.Term{Sent: sent, TTL: d.term(g.TTL)}, err
	})
}

// term returns how long a lock of that TTL is good. Without a watcher its renewals are needed: they
// look whether its file is in its place.
func (d *driver) term(ttl time.Duration) time.Duration {
	if d.opts.Endless && d.watcher != nil {
		return endless
	}
	return ttl
}

// RenewAll is Renew for each.
func (d *driver) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	renewals := make([]backend.Renewal, len(gs))
	for i, g := range gs {
		renewals[i].Term, renewals[i].Err = d.Renew(ctx, g)
	}
	return renewals
}

// Release frees the lock, or ends the waiting.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	_, err := backend.Call(ctx, func(context.Context) (struct{}, error) {
		e := d.entry(g)
		if e == nil {
			return struct{}{}, backend.ErrNotHeld
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		return struct{}{}, d.end(e)
	})
	return err
}

// Close frees everything. What the disk holds up is freed when that answers.
func (d *driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	var ends sync.WaitGroup
	if d.watcher != nil {
		ends.Go(d.watcher.close)
	}
	for _, e := range d.all("") {
		ends.Go(func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			d.leave(e)
		})
	}
	freed := make(chan struct{})
	go func() {
		defer close(freed)
		ends.Wait()
	}()
	select {
	case <-freed:
		return nil
	case <-time.After(closeTimeout):
		return errHangs
	}
}

// attempt makes e the holder of its key, or looks whether it still is. e.mu is held.
func (d *driver) attempt(e *entry, req *backend.Request) error {
	if e.left {
		return errReleased
	}
	e.lost = req.Lost
	if e.fence != 0 {
		return d.check(e)
	}
	locked, err := d.lock(e, req.Queue)
	if err != nil {
		return err
	}
	if !locked {
		return d.busy(e, req.Queue)
	}
	d.unwatch(e)
	e.fence, err = e.file.grant(e.id, req.Meta, d.boot)
	if err == nil && d.opts.Inherit {
		err = e.file.inherit()
	}
	return err
}

// lock tries the flock of the file that is in place now. Whoever will wait watches
// first and then tries, so that no release goes by in between.
func (d *driver) lock(e *entry, wait bool) (bool, error) {
	for range maxReplaced {
		if err := d.open(e); err != nil {
			return false, err
		}
		locked, err := e.file.tryLock()
		if err != nil {
			return false, err
		}
		current, err := e.file.inPlace()
		switch {
		case err != nil:
			return false, fmt.Errorf("%w: file: %w", backend.ErrUnavailable, err)
		case !current:
			d.shut(e)
		case locked || !wait || !d.watch(e):
			return locked, nil
		}
	}
	return false, fmt.Errorf("%w: file: %s is replaced again and again", backend.ErrUnavailable, e.path)
}

// open opens e's file if it is not open yet, and makes the directory at need.
func (d *driver) open(e *entry) (err error) {
	if e.file != nil {
		return nil
	}
	const flags = unix.O_RDWR | unix.O_CREAT
	if e.file, err = openLock(e.path, flags); errors.Is(err, fs.ErrNotExist) {
		if err := prepare(d.dir, d.opts); err != nil {
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
		}
		e.file, err = openLock(e.path, flags)
	}
	if d.watcher != nil {
		d.watcher.watchDir() // it may be a new one
	}
	return err
}

// busy is the answer to e's attempt.
func (d *driver) busy(e *entry, queue bool) error {
	pause := pauseUnwatched
	if e.watch != noWatch {
		pause = pauseWatched
	}
	holder, err := e.file.holder(e.key)
	if err != nil {
		return err
	}
	busy := &backend.Busy{Queued: queue}
	if holder != nil {
		if e.woken.Load() && holder.fence == e.holder {
			pause = pauseWoken
		}
		busy.Holder, e.holder = holder.owner, holder.fence
	}
	e.woken.Store(false)
	busy.State = pause
	return busy
}

// check returns ErrLost, and ends e, if its file is not in its place any more.
// e.mu is held.
func (d *driver) check(e *entry) error {
	if e.left || e.fence == 0 {
		return errUnknown
	}
	current, err := e.file.inPlace()
	if err != nil {
		return fmt.Errorf("file: %w", err)
	}
	if !current {
		d.leave(e)
		return errRemoved(e.path)
	}
	return nil
}

// end is Release. e.mu is held.
func (d *driver) end(e *entry) error {
	had := !e.left && e.file != nil
	if had && e.fence != 0 {
		if current, err := e.file.inPlace(); err == nil {
			had = current
		}
	}
	d.leave(e)
	if !had {
		return backend.ErrNotHeld
	}
	return nil
}

// replaced is called by the watcher when the lock file of that name was removed or
// replaced; an empty name stands for all. It does not wait: an entry's mutex is held
// for as long as the disk takes.
func (d *driver) replaced(name string) {
	for _, e := range d.all(name) {
		e.signal() // in case it waits
		if !e.doubt.Swap(true) {
			go d.recheck(e)
		}
	}
}

// recheck reports the loss of e if its file is not in its place any more.
func (d *driver) recheck(e *entry) {
	e.mu.Lock()
	e.doubt.Store(false)
	held, lost := e.fence != 0, e.lost
	err := d.check(e)
	e.mu.Unlock()
	if held && lost != nil && errors.Is(err, backend.ErrLost) {
		lost(err)
	}
}

// enter returns the entry of req, and makes it if req is new.
func (d *driver) enter(req *backend.Request) (*entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, backend.ErrClosed
	}
	name := id{req.Key, req.Owner}
	e, ok := d.entries[name]
	if !ok {
		e = &entry{id: name, path: d.path(req.Key), wake: make(chan struct{}, 1), watch: noWatch}
		d.entries[name] = e
	}
	return e, nil
}

// entry returns the entry of g, or nil.
func (d *driver) entry(g *backend.Grant) *entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.entries[id{g.Key, g.Owner}]
}

// all returns the entries of a lock file, or those of all where name is empty.
func (d *driver) all(name string) []*entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	var entries []*entry
	for _, e := range d.entries {
		if name == "" || filepath.Base(e.path) == name {
			entries = append(entries, e)
		}
	}
	return entries
}

// leave ends e. e.mu is held.
func (d *driver) leave(e *entry) {
	if e.left {
		return
	}
	e.left = true
	d.mu.Lock()
	delete(d.entries, e.id)
	d.mu.Unlock()
	d.shut(e)
}

// shut closes e's file, which frees the lock. e.mu is held.
func (d *driver) shut(e *entry) {
	d.unwatch(e)
	if e.file == nil {
		return
	}
	if e.fence != 0 {
		e.file.unlock()
	}
	e.file.close()
	e.file, e.fence = nil, 0
}

// queued tells whether err is a Busy that left an entry.
func queued(err error) bool {
	busy, ok := errors.AsType[*backend.Busy](err)
	return ok && busy.Queued
}

// path returns the lock file of a key.
func (d *driver) path(name string) string {
	return d.dir + "/" + key.EncodeFile(name, maxFile-len(suffix)) + suffix
}
