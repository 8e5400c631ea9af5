package guard

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Package syscall forks with vfork: the thread of the parent waits until the child executes its
// program. A stop of the child before that, as by Ctrl-Z, stops the thread as well. No program that
// is stopped has begun then, and no wait reports the stop.

// forkTime is how long the guard waits for a fork before it reads the state of the child. A fork
// takes less time, so that the guard hardly ever reads it.
const forkTime = 2 * time.Millisecond

// forkWatch continues a child that is stopped before it executes its program.
type forkWatch struct {
	thread int // the thread that forks
	timer  *time.Timer

	mu           sync.Mutex
	isOver       bool
	hasContinued bool
}

// watchFork calls fork, which forks once, and continues the child if it is stopped. wasStopped is
// true if the child was stopped. The caller must have locked its thread. The thread keeps its
// processor of the Go scheduler meanwhile, and the watch needs another one: see guardEnv.
func watchFork(fork func() error) (wasStopped bool, err error) {
	w := &forkWatch{thread: unix.Gettid()}
	w.timer = time.AfterFunc(endless, w.look)
	w.timer.Reset(forkTime)
	err = fork()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isOver = true
	w.timer.Stop()
	return w.hasContinued, err
}

// look continues a stopped child. It repeats this until the fork is over, because a key can stop
// the child again.
func (w *forkWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isOver {
		return
	}
	for _, child := range childrenOfThread(os.Getpid(), w.thread) {
		// While the thread waits in the fork, its last child has not executed its program.
		if isStopped(child) && isInState(w.thread, "D") {
			_ = syscall.Kill(child, syscall.SIGCONT)
			w.hasContinued = true
		}
	}
	w.timer.Reset(LookInterval)
}

// stopSignals are the signals of a terminal that stop a process.
var stopSignals = [...]syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}

// blockStops blocks the signals of the terminal that stop a process, in this thread and in the
// children that it forks. It returns the signals that were not blocked before, as a set of bits for
// unblock. The caller must have locked its thread.
func blockStops() (blocked int64) {
	var stops, before unix.Sigset_t
	for _, sig := range stopSignals {
		stops.Val[0] |= 1 << (sig - 1)
	}
	if unix.PthreadSigmask(unix.SIG_BLOCK, &stops, &before) != nil {
		return 0
	}
	return int64(stops.Val[0] &^ before.Val[0])
}

// unblock unblocks the signals that blockStops has blocked, in this thread.
func unblock(blocked int64) {
	var stops unix.Sigset_t
	for _, sig := range stopSignals {
		if bit := int64(1) << (sig - 1); blocked&bit != 0 {
			stops.Val[0] |= 1 << (sig - 1)
		}
	}
	_ = unix.PthreadSigmask(unix.SIG_UNBLOCK, &stops, nil)
}
