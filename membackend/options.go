package membackend

import (
	"errors"

	"github.com/dlock-go/dlock/backend"
)

// Options are the settings of New. The zero value and nil are the defaults.
type Options struct {
	// Space names the set of locks. "" is the space of the URL "mem:".
	Space string
}

// withDefaults returns a copy of o. The zero value of each field is its default, so it fills
// nothing.
func (o *Options) withDefaults() Options {
	if o == nil {
		return Options{}
	}
	return *o
}

// target is the content of a URL.
type target struct{ Options }

func parseTarget(u *backend.URL) (*target, error) {
	if len(u.Hosts) > 0 || u.User != "" || u.Password != "" {
		return nil, errors.New(
			"dlock: mem: has no host and no user: it is written mem: or mem:NAME",
		)
	}
	return &target{Options{Space: u.Path}}, nil
}
