package memcachedbackend

import (
	"cmp"
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
)

const (
	// DefaultTimeout is the limit of one request if Options.Timeout is 0.
	DefaultTimeout = time.Second
	// DefaultConns is the number of connections if Options.Conns is 0.
	DefaultConns = 16
)

const defaultPort = "11211"

// Options are the parameters of a URL. The zero value and nil stand for the
// defaults.
type Options struct {
	// Timeout limits connecting and every single request. An acquisition has two to five requests.
	// 0 is DefaultTimeout.
	Timeout time.Duration
	// Conns is the maximum number of connections to each server for acquiring and inspecting. If
	// all are in use, a call waits for one. Renewals and releases have eight more, and renewals
	// another four. 0 is DefaultConns. The server has its own limit for all processes together
	// (-c, 1024).
	Conns int
	// User and Password are sent on each new connection, to servers with an auth file (-Y). A
	// server without one would store them, so it is refused. If both are empty, none is sent.
	User, Password string
	// TLS is for servers that were started with -Z. Without a ServerName, the certificate of each
	// server must carry its host. nil is plaintext.
	TLS *tls.Config
}

// withDefaults returns a copy with defaults in place of zeros. o may be nil.
func (o *Options) withDefaults() Options {
	if o == nil {
		o = &Options{}
	}
	opts := *o
	opts.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	opts.Conns = cmp.Or(opts.Conns, DefaultConns)
	return opts
}

// check returns an error if a value makes no sense.
func (o *Options) check() error {
	if o.Timeout < 0 || o.Conns < 0 {
		return errors.New("dlock: memcachedbackend: a negative Timeout or Conns")
	}
	return nil
}

// target has the settings from a URL, or from the arguments of New.
type target struct {
	Options
	servers []string // as the user wrote them: see normalise
}

// parseTarget takes all parameters of u and reads the TLS files. It connects to no server.
func parseTarget(u *backend.URL) (*target, error) {
	opts := Options{User: u.User, Password: u.Password}
	err := errors.Join(u.TakeDuration("timeout", &opts.Timeout), u.TakeInt("conns", &opts.Conns))
	if err != nil {
		return nil, err
	}
	files, err := tlsfile.Take(u, "")
	if err != nil {
		return nil, err
	}
	if opts.TLS, err = files.Config(""); err != nil {
		return nil, err
	}
	servers, err := takeServers(u)
	if err != nil {
		return nil, err
	}
	return &target{Options: opts.withDefaults(), servers: servers}, nil
}

// takeServers returns the hosts of u with their ports, or its socket.
func takeServers(u *backend.URL) ([]string, error) {
	if u.Path != "" && u.Path != "/" {
		return nil, errors.New("dlock: invalid URL: memcached has no path; " +
			"several hosts are separated by commas")
	}
	servers := u.HostsWithPort(defaultPort)
	socket, isSet := u.Take("socket")
	switch {
	case !isSet:
		return servers, nil
	case len(servers) > 0 || !isSocket(socket):
		return nil, errors.New("dlock: invalid URL: " +
			"socket=/path takes an absolute path and no host")
	}
	return []string{socket}, nil
}

// isSocket reports whether a server is the path of a unix socket.
func isSocket(server string) bool { return strings.HasPrefix(server, "/") }
