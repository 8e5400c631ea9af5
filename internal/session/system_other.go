//go:build !linux

package session

import (
	"errors"
	"net"
	"time"
)

// outlast does nothing: the time for which a request is repeated is the system's.
func outlast(*net.TCPConn, time.Duration) error { return nil }

// watch exists on Linux only. Elsewhere a goroutine reads ahead.
type watch struct{}

func newWatch(net.Conn) (*watch, error) { return nil, errors.ErrUnsupported }

func (*watch) wait()  {}
func (*watch) close() {}
