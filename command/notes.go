package command

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// notes writes messages from a goroutine of its own: an unread standard error must not
// hold up a command that has to end. Safe for concurrent use.
type notes struct {
	lines   chan []byte // nil: all that came before is written
	written chan struct{}
}

// maxNotes is how many messages wait for their writer; further ones are dropped.
const maxNotes = 256

func startNotes(w io.Writer) *notes {
	if !signal.Ignored(syscall.SIGPIPE) { // it would end dlock if w is closed
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
	n := &notes{lines: make(chan []byte, maxNotes), written: make(chan struct{})}
	go func() { // until close, or until the process ends where w blocks
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

// close returns when all is written, or after partingWait.
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
