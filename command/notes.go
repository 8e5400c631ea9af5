package command

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// notes writes messages from its own goroutine: an unread standard error must not delay a command
// that has to end. It is safe for concurrent use.
type notes struct {
	lines   chan []byte // nil is the end: all earlier lines are written
	written chan struct{}
}

// maxNotes is how many messages can wait to be written. Further messages are dropped.
const maxNotes = 256

// takeNotes lets all messages of a go through notes until end is called, which waits until they are
// written.
func (a *app) takeNotes() (end func()) {
	messages := startNotes(a.stderr)
	a.messages = messages
	return func() { messages.close(); a.messages = a.stderr }
}

func startNotes(w io.Writer) *notes {
	if !signal.Ignored(syscall.SIGPIPE) { // SIGPIPE would end dlock if w is closed
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
	n := &notes{lines: make(chan []byte, maxNotes), written: make(chan struct{})}
	go func() { // until close, or until the process ends if w blocks
		defer close(n.written)
		for line := range n.lines {
			if line == nil {
				return
			}
			_, _ = w.Write(line)
		}
	}()
	return n
}

// Write does not block and does not fail.
func (n *notes) Write(line []byte) (int, error) {
	select {
	case n.lines <- bytes.Clone(line):
	default:
	}
	return len(line), nil
}

// close returns when all messages are written, or after partingWait.
func (n *notes) close() {
	enough := time.After(partingWait)
	select {
	case n.lines <- nil:
	case <-enough:
		return
	}
	select {
	case <-n.written:
	case <-enough:
	}
}
