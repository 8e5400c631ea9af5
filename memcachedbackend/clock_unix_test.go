//go:build unix

package memcachedbackend

import (
	"time"

	"golang.org/x/sys/unix"
)

// fraction is that of the second of the clock that memcached counts by.
func fraction() float64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // never fails where there is memcached
	return float64(now.Nsec) / float64(time.Second)
}
