//go:build !darwin && !dragonfly && !freebsd && !linux

package filebackend

import (
	"fmt"
	"runtime"

	"github.com/dlock-go/dlock/backend"
)

// connect fails on systems without flock(2).
func connect(string, *Options) error {
	return fmt.Errorf("%w: file: locks need flock(2), which dlock cannot use on %s",
		backend.ErrUnsupported, runtime.GOOS)
}

// newDriver is never called, because connect fails.
func newDriver(string, Options) backend.Driver { return nil }
