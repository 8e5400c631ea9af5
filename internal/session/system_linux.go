package session

import (
	"net"
	"syscall"
	"time"
)

// userTimeout is TCP_USER_TIMEOUT, which package syscall does not have.
const userTimeout = 18

// outlast makes the kernel wait for the acknowledgement of what was sent, for the time of silence.
// By default it repeats 15 times, for about 15 minutes, and a system can have fewer (tcp_retries2).
func outlast(conn *net.TCPConn, silence time.Duration) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout,
			int(silence.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return failed
}
