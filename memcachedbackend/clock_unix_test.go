//go:build unix

package memcachedbackend

import (
	"time"

	"golang.org/x/sys/unix"
)

// fraction returns the elapsed fraction of the current second, on the clock that memcached uses.
func fraction() float64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // never fails on systems with memcached
	return float64(now.Nsec) / float64(time.Second)
}
