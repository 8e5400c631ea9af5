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
	// DefaultRoot is the default of Options.Root.
	DefaultRoot = "/dlock"
	// DefaultTimeout is the default of Options.Timeout.
	DefaultTimeout = 3 * time.Second
)

const defaultPort = "2379"

// Options are the settings of a driver. The connection has no settings here, because the caller of
// New has made the client. nil and the zero value mean the defaults.
type Options struct {
	// Root is the beginning of all keys, up to a slash. Only its first part may be "lock". The
	// default is DefaultRoot.
	Root string
	// Timeout limits every request. A request for a lock is also limited to a quarter of its TTL,
	// but never to less than 1 s. So the core can repeat a request with another member if one
	// member does not answer. Timeout is also the time after the end of its context for which a
	// request may still be executed (Capabilities.Late). The default is DefaultTimeout.
	Timeout time.Duration
}

// withDefaults returns a copy of o, or of the zero value if o is nil, with all fields set.
func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	opts.Root = cmp.Or(strings.TrimRight(opts.Root, "/"), DefaultRoot)
	opts.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	return opts
}

// check refuses a root inside the keys of another root. The keys of the root /r/lock/x would be
// among the keys of the lock "x" under the root /r.
func (o Options) check() error {
	parts := strings.Split(strings.Trim(o.Root, "/"), "/")
	if i := slices.Index(parts[1:], "lock"); i >= 0 {
		return fmt.Errorf("dlock: invalid root %q: it lies among the locks of the root %q; "+
			"\"lock\" may only be its first part", o.Root, "/"+strings.Join(parts[:i+1], "/"))
	}
	return nil
}

// target is the content of a URL.
type target struct {
	Options
	endpoints      []string // with http:// or https://, which selects TLS in the client
	user, password string
	tls            *tlsfile.Files
}

// parseTarget checks u and takes its parameters. It reads no file and makes no connection.
func parseTarget(u *backend.URL) (*target, error) {
	t := &target{Options: Options{Root: u.Path}, user: u.User, password: u.Password}
	if err := u.TakeDuration("timeout", &t.Timeout); err != nil {
		return nil, err
	}
	t.Options = t.withDefaults()
	if err := t.check(); err != nil {
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
