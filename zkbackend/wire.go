package zkbackend

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/abort"
)

const (
	// On a later connection of a session, nothing is read for settleSteps of settleStep each,
	// unless the library requests its watches earlier. If the process is stopped, one step takes
	// longer, and the library runs during the next ones.
	settleSteps = 20
	settleStep  = time.Millisecond
)

// wireState is the state of a connection.
//
//	state        what is read                   event                                   next
//	handshaking  the answer to the connect      the answer is complete, and the server  settling
//	             request, and nothing else      has accepted the credentials
//	settling     nothing                        the library has requested its watches,  settled
//	                                            or it has had time to, or has none
//	settled      answers and events
type wireState int32

const (
	handshaking wireState = iota
	settling
	settled
)

// wire is one connection. It adds to net.Conn what the client library lacks:
//
//   - It reads the session timeout that the server has granted, and the answers to pings.
//   - It limits the time of the handshake. The library would wait for almost seven session
//     timeouts, and try no other server in the meantime.
//   - It sends the credentials as a part of the handshake. The library would send them later, in
//     the time in which nothing may be read because of settle.
//   - It checks answers before the library reads them.
//   - It detects when a request is sent; see session.onSent.
type wire struct {
	net.Conn
	session  *session
	deadline time.Time     // of the handshake
	rewatch  chan struct{} // receives a value when watches are requested again; nil: there are none
	dialled  time.Time

	state   atomic.Int32 // a wireState; only the goroutine that reads changes it
	head    []byte       // of the answer to the connect request; only that goroutine uses it
	heard   atomic.Int64 // when something was read last, in ns after dialled
	touches touches
	answers answers
}

// setState changes the state. Only the goroutine that reads may call it.
func (w *wire) setState(s wireState) { w.state.Store(int32(s)) }

// isReady reports whether the handshake is over. Any goroutine may call it.
func (w *wire) isReady() bool { return wireState(w.state.Load()) != handshaking }

// Read implements net.Conn for the library, which reads in one goroutine.
func (w *wire) Read(p []byte) (int, error) {
	switch wireState(w.state.Load()) {
	case handshaking:
		return w.readHandshake(p)
	case settling:
		w.settle()
	}
	return w.readAnswers(p)
}

// readHandshake reads a part of the answer to the connect request.
func (w *wire) readHandshake(p []byte) (int, error) {
	n, err := w.read(p)
	if err != nil {
		failed := w.session.failed
		if errors.Is(err, io.EOF) {
			failed = w.session.failedUnanswered
		}
		err = fmt.Errorf("no answer from %s: %w", w.RemoteAddr(), err)
		failed(err)
		return 0, err // not n: a caller that has enough bytes may ignore err
	}
	if err := w.shake(p[:n]); err != nil {
		w.session.failed(err)
		return 0, err
	}
	return n, nil
}

// readAnswers reads answers and events, and checks them.
func (w *wire) readAnswers(p []byte) (int, error) {
	n, err := w.read(p)
	pings, malformed := w.answers.take(p[:n])
	w.touches.heard(pings, time.Now(), w.session.settings.report())
	if malformed != nil {
		// Not n: a caller that has enough bytes may ignore the error.
		return 0, fmt.Errorf("%s: %w", w.RemoteAddr(), malformed)
	}
	return n, err
}

// read reads and notes the time.
func (w *wire) read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.heard.Store(int64(time.Since(w.dialled)))
	}
	return n, err
}

// settle waits for the library's request for watches: its sendSetWatches reads the number of the
// last transaction, which its receiving goroutine writes with the first answer.
func (w *wire) settle() {
	w.setState(settled)
	if w.rewatch == nil {
		return
	}
	for range settleSteps {
		select {
		case <-w.rewatch:
			return
		case <-time.After(settleStep):
		}
	}
}

// Write implements net.Conn for the library, which writes each request by one call. It reports that
// a request was sent: the library reports nothing before the answer, but the server executes all
// later requests after it.
//
// After the end of the session it hides an error, so that the library learns of it from Read alone.
// The library reports a write that failed to the caller twice, and three times if it is closed
// meanwhile. The caller's channel has room for two, so a goroutine would block for ever. No request
// may follow one that was written in part, so Write closes the connection.
func (w *wire) Write(p []byte) (int, error) {
	if isFirst := w.touches.send(time.Now(), operation(p) == opPing); isFirst {
		return w.writeConnect(p)
	}
	w.answers.expect(p)
	n, err := w.write(p)
	if operation(p[:n]) == opSetWatches {
		select {
		case w.rewatch <- struct{}{}:
		default:
		}
	}
	if a, ok := actionOf(p[:n]); ok {
		if sent := w.session.takeSent(a); sent != nil {
			sent()
		}
	}
	if err != nil && w.session.ctx.Err() != nil {
		_ = w.Close()
		return len(p), nil //nolint:nilerr // Read reports it
	}
	return n, err
}

// writeConnect writes the connect request. In the place of a kind it has a part of another number.
func (w *wire) writeConnect(p []byte) (int, error) {
	if w.session.isOutlived(time.Now()) {
		p = withoutHistory(p)
	}
	return w.write(p)
}

// write writes, and keeps the reason if that fails during the handshake.
func (w *wire) write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if err != nil && !w.isReady() {
		w.session.failed(fmt.Errorf("request to %s: %w", w.RemoteAddr(), err))
	}
	return n, err
}

// Close implements net.Conn. It does not block: over TLS a farewell could wait for a server that
// does not read.
func (w *wire) Close() error { return abort.Close(w.Conn) }

// ping sends a request that only shows the server that the session lives. It ignores an error,
// because the library, which also reads and writes, detects it.
func (w *wire) ping() { _, _ = w.Write(pingRequest()) }

// lastHeard returns when something was read last, or when the connection was made.
func (w *wire) lastHeard() time.Time { return w.dialled.Add(time.Duration(w.heard.Load())) }

// SetReadDeadline implements net.Conn. During the handshake it keeps the deadline of the handshake.
func (w *wire) SetReadDeadline(t time.Time) error {
	if !w.isReady() {
		t = w.deadline
	}
	return w.Conn.SetReadDeadline(t)
}
