package membackend

import (
	"context"

	"github.com/dlock-go/dlock/backend"
)

// Scheme is the URL scheme that this package registers.
const Scheme = "mem"

func init() { backend.Register(Scheme, open) }

// New returns a driver of the space in opts, which may be nil. Drivers of one space contend for
// the same locks, as processes do. Closing a driver does not end its grants. New never fails and
// never blocks. Of the driver's methods only Wait and Watch block. Each driver needs its own Close,
// but a driver without a Close costs no more than its memory.
func New(opts *Options) backend.Driver { return newDriver(opts.withDefaults()) }

// open is the Opener of "mem:". There is no server to connect to or to probe.
func open(_ context.Context, u *backend.URL) (backend.Driver, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	return newDriver(t.Options), nil
}
