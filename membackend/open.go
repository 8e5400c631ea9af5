package membackend

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/backend"
)

// Scheme is the URL scheme that this package registers.
const Scheme = "mem"

func init() { backend.Register(Scheme, open) }

func open(_ context.Context, u *backend.URL) (backend.Driver, error) {
	if len(u.Hosts) > 0 || u.User != "" || u.Password != "" {
		return nil, errors.New("dlock: mem: has no host and no user: it is written mem: or mem:NAME")
	}
	return New(&Options{Space: u.Path}), nil
}
