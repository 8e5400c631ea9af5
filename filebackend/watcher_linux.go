package filebackend

import (
	"encoding/binary"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// watcherState is the state of a watcher. The table has the events, and a dot for those without an
// effect.
//
//	        open  failure  close
//	idle    open  closed   closed
//	open    .     .        closed
//	closed  .     .        .
//
// The events are: open, the system gives a descriptor; failure, it gives none, and polling replaces
// the watcher for good; close, the driver is closed.
type watcherState int

const (
	watcherIdle   watcherState = iota // new: nothing had to be watched yet
	watcherOpen                       // it has a descriptor and a goroutine
	watcherClosed                     // it has no descriptor and will get none
)

// watcher is one inotify descriptor for everything that a driver watches: the lock files with
// waiters, and the directory, for lock files that are removed or replaced. Its goroutine waits in
// Go's poller, so no thread waits.
type watcher struct {
	dir        string
	onReplaced func(name string)
	reader     sync.WaitGroup

	mu      sync.Mutex // onReplaced is called without it
	state   watcherState
	file    *os.File                          // the descriptor; nil unless the state is open
	fd      int                               // of file
	dirWD   int                               // the watch on the directory, or noWatch
	waiting map[int]map[*acquisition]struct{} // the waiters of each watch on a file
}

const (
	// fileEvents are the closes of descriptors that can write, as each driver's can. Each Inspect
	// closes one that only reads, and must not wake all waiters. So a waiter behind flock(1), which
	// locks such a descriptor, has only its timer.
	fileEvents = unix.IN_CLOSE_WRITE
	// dirGone are the events after which the watch on the directory is useless.
	dirGone = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT | unix.IN_IGNORED
	// dirEvents are the events of the directory that can cost a holder its lock.
	dirEvents = unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
)

// newWatcher returns an idle watcher. It opens its descriptor only when there is something to
// watch, because the kernel takes up to 20 ms to close one. The watcher's goroutine calls
// onReplaced, which must not block.
func newWatcher(dir string, onReplaced func(name string)) *watcher {
	return &watcher{
		dir: dir, onReplaced: onReplaced, dirWD: noWatch,
		waiting: map[int]map[*acquisition]struct{}{},
	}
}

// open opens the descriptor of an idle watcher, and reports whether the watcher is open.
func (w *watcher) open() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ensureOpen()
}

// ensureOpen is open. w.mu must be held.
func (w *watcher) ensureOpen() bool {
	if w.state != watcherIdle {
		return w.state == watcherOpen
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		w.state = watcherClosed
		return false
	}
	file := os.NewFile(uintptr(fd), "inotify")
	w.state, w.fd, w.file = watcherOpen, fd, file
	w.addDir()
	w.reader.Go(func() { w.read(file) })
	return true
}

// close closes the descriptor, and blocks until the watcher's goroutine has ended.
func (w *watcher) close() {
	w.mu.Lock()
	file := w.file
	w.state, w.file = watcherClosed, nil
	w.mu.Unlock()
	if file != nil {
		_ = file.Close()
	}
	w.reader.Wait()
}

// add makes every close of a's file signal a. It returns the watch, or noWatch if the file cannot
// be watched. The watch belongs to the file that has the path now, which lock checks afterwards.
// All waiters of a file share its watch: the kernel returns the same number for the same file.
func (w *watcher) add(a *acquisition) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ensureOpen() {
		return noWatch
	}
	wd, err := unix.InotifyAddWatch(w.fd, a.path, fileEvents)
	if err != nil {
		return noWatch
	}
	if w.waiting[wd] == nil {
		w.waiting[wd] = map[*acquisition]struct{}{}
	}
	w.waiting[wd][a] = struct{}{}
	return wd
}

// remove is the inverse of add. The last waiter of a file removes the watch.
func (w *watcher) remove(wd int, a *acquisition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiters, ok := w.waiting[wd]
	delete(waiters, a)
	if !ok || len(waiters) > 0 || w.state != watcherOpen {
		return
	}
	delete(w.waiting, wd)
	_, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) // fails only if the file is gone
}

// watchDir watches the directory, unless it is watched already. It has no effect on a watcher that
// is not open.
func (w *watcher) watchDir() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addDir()
}

// addDir is watchDir. w.mu must be held.
func (w *watcher) addDir() {
	if w.dirWD != noWatch || w.state != watcherOpen {
		return
	}
	if wd, err := unix.InotifyAddWatch(w.fd, w.dir, dirEvents); err == nil {
		w.dirWD = wd
	}
}

// read is the watcher's goroutine. It dispatches events until file is closed. An event has a header
// (watch, mask, cookie, length of the name: 32 bits each) and a name that is padded with zeros.
func (w *watcher) read(file *os.File) {
	buf := make([]byte, 16<<10)
	for {
		n, err := file.Read(buf)
		if err != nil {
			return
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			wd := int(int32(binary.NativeEndian.Uint32(b)))
			mask := binary.NativeEndian.Uint32(b[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:end]), "\x00")
			w.dispatch(wd, mask, name)
			b = b[end:]
		}
	}
}

// dispatch handles one event. After an overflow of the kernel's queue, which has no name, any file
// may have been replaced. The directories of members come and go with each group of readers, and
// are not lock files: their events cost nothing.
func (w *watcher) dispatch(wd int, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW == 0 && !w.isOfDir(wd) {
		w.signalWaiters(wd, mask)
		return
	}
	if name != "" && !strings.HasSuffix(name, suffix) {
		return
	}
	w.renewDir(mask)
	w.onReplaced(name)
}

// isOfDir reports whether wd is the watch on the directory.
func (w *watcher) isOfDir(wd int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return wd == w.dirWD
}

// renewDir drops the watch on the directory if the directory was removed or moved, and watches the
// directory that has the name now.
func (w *watcher) renewDir(mask uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if mask&dirGone != 0 && w.state == watcherOpen {
		_, _ = unix.InotifyRmWatch(w.fd, uint32(w.dirWD))
		w.dirWD = noWatch
	}
	w.addDir()
}

// signalWaiters signals the waiters of a file.
func (w *watcher) signalWaiters(wd int, mask uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for a := range w.waiting[wd] {
		a.signal()
	}
	if mask&unix.IN_IGNORED != 0 { // the kernel has removed the watch
		delete(w.waiting, wd)
	}
}
