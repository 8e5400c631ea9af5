package etcdbackend

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
)

const (
	// DefaultRoot is the root of all keys unless Options.Root says otherwise.
	DefaultRoot = "/dlock"
	// DefaultTimeout is the bound of one request unless Options.Timeout says otherwise.
	DefaultTimeout = 3 * time.Second
)

const defaultPort = "2379"

// Options are the parameters of a URL that concern the driver. Those that concern
// the connection have no field: who calls New has made it already. The
// zero value and nil stand for the defaults.
type Options struct {
	// Root is what all keys begin with, up to a slash. "" is DefaultRoot. No part of it but the
	// first may be "lock".
	Root string
	// Timeout bounds every request, and so does a quarter of the TTL, or 1 s if that is more: one
	// that went to a member that does not answer is repeated, by the core, with another. Timeout
	// is also how long after its context has ended a request may still be executed
	// (Capabilities.Late). 0 is DefaultTimeout.
	Timeout time.Duration
}

func (o *Options) withDefaults() Options {
	if o == nil {
		o = &Options{}
	}
	return Options{
		Root:    cmp.Or(strings.TrimRight(o.Root, "/"), DefaultRoot),
		Timeout: cmp.Or(o.Timeout, DefaultTimeout),
	}
}

// checkRoot refuses a root inside the keys of another one: those of /r/lock/x would lie among the
// keys of the lock "x" under the root /r.
func (o Options) checkRoot() error {
	parts := strings.Split(strings.Trim(o.Root, "/"), "/")
	if i := slices.Index(parts[1:], "lock"); i >= 0 {
		return fmt.Errorf("dlock: invalid root %q: it lies among the locks of the root %q; \"lock\" may only be its first part",
			o.Root, "/"+strings.Join(parts[:i+1], "/"))
	}
	return nil
}

// target is what a URL says.
type target struct {
	Options
	endpoints      []string
	user, password string
	tls            *tlsfile.Files
}

func parseTarget(u *backend.URL) (*target, error) {
	t := &target{Options: Options{Root: u.Path}, user: u.User, password: u.Password}
	if err := u.TakeDuration("timeout", &t.Timeout); err != nil {
		return nil, err
	}
	t.Options = t.withDefaults()
	if err := t.checkRoot(); err != nil {
		return nil, err
	}
	scheme := "http://"
	if u.Scheme == "etcds" {
		scheme = "https://"
	}
	for _, host := range u.HostsWithPort(defaultPort) {
		t.endpoints = append(t.endpoints, scheme+host)
	}
	switch {
	case len(t.endpoints) == 0:
		return nil, errors.New("dlock: invalid URL: no host, as in etcd://localhost:2379")
	case (t.user == "") != (t.password == ""):
		return nil, errors.New("dlock: invalid URL: user and password go together")
	}
	var err error
	t.tls, err = tlsfile.Take(u, "etcds")
	return t, err
}
