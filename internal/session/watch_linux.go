package session

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// watch notices the end of a socket, and reads nothing. It is an epoll instance that has this
// socket only. What the other side sends does not wake it, so it costs a request nothing.
type watch struct{ epoll *os.File }

// newWatch returns an error if conn is no socket, for example because it has a layer over TCP.
func newWatch(conn net.Conn) (*watch, error) {
	var socket syscall.Conn
	switch conn := conn.(type) {
	case *net.TCPConn:
		socket = conn
	case *net.UnixConn:
		socket = conn
	default:
		return nil, errors.ErrUnsupported
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	// The runtime waits only for files that do not block.
	failed := syscall.SetNonblock(epoll, true)
	w := &watch{os.NewFile(uintptr(epoll), "epoll")}
	if failed == nil {
		err = raw.Control(func(fd uintptr) {
			// Errors and a reset are always reported.
			event := syscall.EpollEvent{Events: syscall.EPOLLRDHUP, Fd: int32(fd)}
			failed = syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, int(fd), &event)
		})
	}
	// SetReadDeadline fails if the runtime cannot wait for the file.
	if err := errors.Join(err, failed, w.epoll.SetReadDeadline(time.Time{})); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// wait returns when the socket has ended, or after close.
func (w *watch) wait() {
	raw, err := w.epoll.SyscallConn()
	if err != nil {
		return // closed
	}
	events := make([]syscall.EpollEvent, 1)
	_ = raw.Read(func(fd uintptr) bool {
		n, err := syscall.EpollWait(int(fd), events, 0)
		for errors.Is(err, syscall.EINTR) {
			n, err = syscall.EpollWait(int(fd), events, 0)
		}
		return n > 0 || err != nil
	})
}

// close ends wait.
func (w *watch) close() { _ = w.epoll.Close() }
