//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package memcachedbackend

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// peek reports whether the peer has closed an idle connection, or else whether bytes have arrived
// on it. It does not block and costs one system call. If the deadline of c has passed, nothing is
// read, and peek reports neither: a call that comes too late must not end the connections of
// others.
func peek(c net.Conn) (closed, readable bool) {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false, false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true, false
	}
	var n int
	var peeked error
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, peeked = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		return true
	})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false, false
	case err != nil:
		return true, false
	case peeked == nil:
		return n == 0, n > 0
	}
	return peeked != syscall.EAGAIN, false //nolint:errorlint // an Errno is never wrapped here
}
