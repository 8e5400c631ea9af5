package filebackend

import (
	"encoding/binary"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher is one inotify descriptor for all that a driver watches: the lock files that
// its entries wait for, and the directory, for files that are taken away. Its
// goroutine waits in Go's poller, so no thread waits.
type watcher struct {
	dir      string
	replaced func(name string)
	file     *os.File
	reader   sync.WaitGroup

	mu      sync.Mutex
	fd      int // file's, noWatch when closed
	dirWD   int
	waiting map[int]map[*entry]struct{} // by watch
}

const (
	// fileEvents are closes by those who may have held: who only looks cannot write.
	fileEvents = unix.IN_CLOSE_WRITE
	dirGone    = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT | unix.IN_IGNORED
	dirEvents  = unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
)

// newWatcher returns nil if the system gives no inotify descriptor. replaced is called
// from the watcher's goroutine.
func newWatcher(dir string, replaced func(name string)) *watcher {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	w := &watcher{
		dir: dir, replaced: replaced, file: os.NewFile(uintptr(fd), "inotify"),
		fd: fd, dirWD: noWatch, waiting: map[int]map[*entry]struct{}{},
	}
	w.watchDir()
	w.reader.Go(w.read)
	return w
}

// close ends the watcher and its goroutine.
func (w *watcher) close() {
	w.mu.Lock()
	w.fd = noWatch
	w.mu.Unlock()
	_ = w.file.Close()
	w.reader.Wait()
}

// add makes every close of e's file signal e. noWatch: it cannot be watched.
func (w *watcher) add(e *entry) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd == noWatch {
		return noWatch
	}
	wd, err := unix.InotifyAddWatch(w.fd, e.path, fileEvents)
	if err != nil {
		return noWatch
	}
	if w.waiting[wd] == nil {
		w.waiting[wd] = map[*entry]struct{}{}
	}
	w.waiting[wd][e] = struct{}{}
	return wd
}

// remove ends what add began.
func (w *watcher) remove(wd int, e *entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	entries, ok := w.waiting[wd]
	delete(entries, e)
	if !ok || len(entries) > 0 || w.fd == noWatch {
		return
	}
	delete(w.waiting, wd)
	_, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) // fails only if the file is gone
}

// watchDir watches the directory, if that is not done.
func (w *watcher) watchDir() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dirWD != noWatch || w.fd == noWatch {
		return
	}
	if wd, err := unix.InotifyAddWatch(w.fd, w.dir, dirEvents); err == nil {
		w.dirWD = wd
	}
}

// read dispatches events until the file is closed.
func (w *watcher) read() {
	buf := make([]byte, 16<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			wd := int(int32(binary.NativeEndian.Uint32(b)))
			mask := binary.NativeEndian.Uint32(b[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			w.dispatch(wd, mask, strings.TrimRight(string(b[unix.SizeofInotifyEvent:end]), "\x00"))
			b = b[end:]
		}
	}
}

func (w *watcher) dispatch(wd int, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 || w.dirEvent(wd, mask) {
		w.replaced(name)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for e := range w.waiting[wd] {
		e.signal()
	}
	if mask&unix.IN_IGNORED != 0 {
		delete(w.waiting, wd)
	}
}

// dirEvent tells whether an event is the directory's. One that was removed or moved
// is not watched any more.
func (w *watcher) dirEvent(wd int, mask uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wd != w.dirWD {
		return false
	}
	if mask&dirGone != 0 && w.fd != noWatch {
		_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
		w.dirWD = noWatch
	}
	return true
}
