//go:build !darwin && !dragonfly && !freebsd && !linux

package filebackend

import (
	"fmt"
	"runtime"

	"github.com/dlock-go/dlock/backend"
)

func prepare(string, *Options) error {
	return fmt.Errorf("%w: file: locks need flock(2), which dlock does not know on %s", backend.ErrUnsupported, runtime.GOOS)
}

// start is never reached, since prepare fails.
func start(string, *Options) backend.Driver { return nil }
