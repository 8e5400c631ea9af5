//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package memcachedbackend

import (
	"net"
	"syscall"
)

// dead tells whether the peer has closed an idle connection, or has said something that
// nobody asked for, which in TLS may be a session's ticket. It costs one system call.
func dead(c net.Conn, secure bool) bool {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	var n int
	var peeked error
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, peeked = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		return true
	})
	switch {
	case err != nil:
		return true
	case peeked == nil:
		return n == 0 || !secure
	}
	return peeked != syscall.EAGAIN //nolint:errorlint // an Errno is never wrapped here
}
