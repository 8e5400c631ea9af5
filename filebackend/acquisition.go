//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
)

// state is the state of an acquisition in this process. The table has the events, and a dot for
// those that cannot happen.
//
//	        open    grant  close   forget
//	absent  queued  .      .       gone
//	queued  .       held   absent  gone
//	held    .       .      .       gone
//	gone    .       .      .       .
//
// The events are:
//
//   - open: an attempt opens the lock file (openFile)
//   - grant: it has locked the file and has written its record (grant)
//   - close: the open file is not the one in place any more (closeFile)
//   - forget: the acquisition was released, lost or never granted, or the driver closes (forget)
type state uint8

const (
	absent state = iota // it has no open file
	queued              // its file is open and not locked: during an attempt, and between two
	held                // its file is open and locked, and the file's record names its owner
	gone                // it is not in the registry any more; this is final
)

// id names an acquisition.
type id struct{ key, owner string }

// acquisition is what the driver keeps of one (Key, Owner), from its first attempt until its
// release. A waiter keeps its file open between two attempts: closing the file would be an event
// for all other waiters, and they would wake each other for ever.
type acquisition struct {
	id
	path  string        // of its lock file
	wake  chan struct{} // has an element if Wait is to return; see signal
	woken atomic.Bool   // Wait has emptied wake since the last attempt
	// releases has the Release that is under way: one at a time, because it may hang on the disk.
	releases slots
	// recheckPending is independent of the state, and no mutex guards it: the watcher must not wait
	// for mu.
	recheckPending atomic.Bool

	mu    sync.Mutex // held while the disk works, perhaps for minutes
	state state
	file  *lockFile // nil if the state is absent or gone
	// member is its file among the members of the key, or nil if it is none of them. The state is
	// queued or held then.
	member *lockFile
	place  member      // the name of member
	fence  uint64      // of its grant, if the state is held
	lost   func(error) // Request.Lost of the newest attempt
	watch  int         // the watch on the file, or noWatch; only a waiter has one
	// blocked is the file for which a thread waits in flock, or nil. It is independent of the
	// state: the thread cannot be stopped, so it may outlive the file.
	blocked *lockFile
	polls   bool // flock has failed in a thread, so the waiter gets no other one

	holderFence uint64        // the fence that the last attempt found
	pause       time.Duration // the newest pause that follows no event
	retry       time.Duration // the pause of the newest retry after an event; 0: it was no retry
}

// admit returns the acquisition of req, and registers it if it is new. This comes before the first
// system call, so that a Release after an abandoned attempt finds it.
func (d *driver) admit(req *backend.Request) (*acquisition, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, backend.ErrClosed
	}
	name := id{req.Key, req.Owner}
	a, ok := d.registry[name]
	if !ok {
		a = &acquisition{
			id: name, path: d.path(req.Key), wake: make(chan struct{}, 1), watch: noWatch,
			releases: make(slots, 1),
		}
		d.registry[name] = a
	}
	return a, nil
}

// find returns the acquisition of req, or nil.
func (d *driver) find(req *backend.Request) *acquisition {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.registry[id{req.Key, req.Owner}]
}

// all returns the acquisitions with a lock file of this name, or all acquisitions if name is empty.
func (d *driver) all(name string) []*acquisition {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*acquisition
	for _, a := range d.registry {
		if name == "" || filepath.Base(a.path) == name {
			all = append(all, a)
		}
	}
	return all
}

// forget removes a from the registry and closes its file, which frees the lock. It has no effect if
// a is gone. It does not call Request.Lost. A call that still has a pointer to a finds it gone, and
// an attempt of a then returns errReleased, so no late attempt locks a released file. a.mu must be
// held.
func (d *driver) forget(a *acquisition) {
	if a.state == gone {
		return
	}
	d.mu.Lock()
	delete(d.registry, a.id)
	d.mu.Unlock()
	d.closeFile(a)
	a.state, a.lost = gone, nil // lost has memory of the core, and a thread in flock may keep a
}

// closeFile closes a's file, if it is open, and frees the lock. a.mu must be held.
func (d *driver) closeFile(a *acquisition) {
	d.removeWatch(a)
	if a.file == nil {
		return
	}
	a.leave() // first: the close of the file wakes the waiters
	wasHeld := a.state == held
	a.file.unlock() // an attempt that failed may have locked it, too
	if a.isBlocked() {
		d.leftThreads.Add(1)
	}
	a.file.close()
	a.file, a.state = nil, absent
	if wasHeld && d.opts.Inherit {
		wakeWaiters(a.path)
	}
}

// wakeWaiters opens and closes a lock file that a child process may still have open. Its waiters
// wait for the event of a close, and the kernel reports the close of the last descriptor only.
func wakeWaiters(path string) {
	if f, err := openLock(path, unix.O_WRONLY); err == nil {
		f.close()
	}
}

// isBlocked reports whether a thread waits in flock for the present file of a. a.mu must be held.
func (a *acquisition) isBlocked() bool { return a.file != nil && a.blocked == a.file }
