package zkbackend

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	// minHandshake is the minimum length of the answer to a connect request: the version of the
	// protocol, the session timeout in ms, the session and the length of its password. They have
	// four, four, eight and four bytes.
	minHandshake = 20

	// maxHandshake limits that length, and the length of the answer to the credentials. The client
	// library would allocate whatever number a server of another kind happens to send.
	maxHandshake = 1 << 10
)

// shake takes a part of the answer to the connect request. With the last part it authenticates the
// connection, before the library can send anything on it, and ends the handshake.
func (w *wire) shake(part []byte) error {
	w.head = append(w.head, part...)
	if len(w.head) < sizeField {
		return nil
	}
	size := int(binary.BigEndian.Uint32(w.head)) // of the answer, without this number
	if size < minHandshake || size > maxHandshake {
		return w.notZooKeeper()
	}
	if len(w.head) < sizeField+size {
		return nil
	}
	timeout, ok := granted(w.head[sizeField:])
	if !ok {
		return w.notZooKeeper()
	}
	if timeout > 0 && timeout < w.session.proof.granted() {
		w.session.end(errShortened) // its leases were proven for longer
		return fmt.Errorf("%s: %w", w.RemoteAddr(), errShortened)
	}
	w.session.proof.negotiated(timeout)
	if timeout > 0 && w.session.settings.User != "" { // an expired session has no timeout
		if err := w.authenticate(); err != nil {
			return err
		}
	}
	w.setState(settling)
	return nil
}

// granted returns the session timeout in a complete answer to a connect request. It is 0 for an
// expired session. ok is false for an answer that the client library cannot handle: without a
// timeout its ticker would crash the process, and it would allocate a password that is not there.
func granted(answer []byte) (timeout time.Duration, ok bool) {
	ms := int32(binary.BigEndian.Uint32(answer[4:]))
	session := binary.BigEndian.Uint64(answer[8:])
	password := int(binary.BigEndian.Uint32(answer[16:]))
	ok = ms >= 0 && (ms > 0 || session == 0) && password <= len(answer)-minHandshake
	return time.Duration(ms) * time.Millisecond, ok
}

// notZooKeeper is the error of an answer in another format.
func (w *wire) notZooKeeper() error {
	return fmt.Errorf("%s is not a ZooKeeper server", w.RemoteAddr())
}

// authenticate sends the credentials and reads the answer, which is the first on the connection. If
// the server refuses them, the session is over.
func (w *wire) authenticate() error {
	if _, err := w.Write(w.session.settings.credentials()); err != nil {
		return fmt.Errorf("credentials to %s: %w", w.RemoteAddr(), err)
	}
	var size [sizeField]byte
	_, err := io.ReadFull(w.Conn, size[:])
	n := binary.BigEndian.Uint32(size[:])
	if err == nil && (n < answerHead || n > maxHandshake) {
		return w.notZooKeeper()
	}
	answer := make([]byte, n)
	if err == nil {
		_, err = io.ReadFull(w.Conn, answer)
	}
	if err != nil {
		return fmt.Errorf("no answer to the credentials from %s: %w", w.RemoteAddr(), err)
	}
	if code := int32(binary.BigEndian.Uint32(answer[answerHead-4:])); code != 0 {
		w.session.end(zk.ErrAuthFailed)
		return fmt.Errorf("%s: %w", w.RemoteAddr(), zk.ErrAuthFailed)
	}
	return nil
}
