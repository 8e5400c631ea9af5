package memcachedbackend

import (
	"cmp"
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
)

const (
	// DefaultTimeout is the bound of one request unless Options.Timeout says otherwise.
	DefaultTimeout = time.Second
	// DefaultConns is the number of connections unless Options.Conns says otherwise.
	DefaultConns = 16
)

const defaultPort = "11211"

// Options are the parameters of a URL. The zero value and nil stand for the
// defaults.
type Options struct {
	// Timeout bounds connecting and every single request: an acquisition is two to
	// five of them. 0 is DefaultTimeout.
	Timeout time.Duration
	// Conns is how many connections to each server acquiring and looking may use at
	// once; more wait for one. Renewing and releasing have eight of their own. 0 is
	// DefaultConns. The server's own limit (-c, 1024) holds for all processes together.
	Conns int
	// User and Password are sent on each new connection, for servers that are started
	// with an auth file (-Y). Both empty: none is sent.
	User, Password string
	// TLS encrypts, for servers that are started with -Z. Without a ServerName each
	// server's certificate must carry its host. nil: plaintext.
	TLS *tls.Config
}

func (o *Options) withDefaults() Options {
	if o == nil {
		o = &Options{}
	}
	settings := *o
	settings.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	settings.Conns = cmp.Or(o.Conns, DefaultConns)
	return settings
}

// parseTarget returns what a URL says.
func parseTarget(u *backend.URL) (servers []string, opts Options, err error) {
	opts.User, opts.Password = u.User, u.Password
	if err := u.TakeDuration("timeout", &opts.Timeout); err != nil {
		return nil, opts, err
	}
	if err := u.TakeInt("conns", &opts.Conns); err != nil {
		return nil, opts, err
	}
	files, err := tlsfile.Take(u, "")
	if err != nil {
		return nil, opts, err
	}
	if opts.TLS, err = files.Config(""); err != nil {
		return nil, opts, err
	}
	if u.Path != "" && u.Path != "/" {
		return nil, opts, errors.New("dlock: invalid URL: memcached has no path; several hosts are parted by commas")
	}
	servers = u.HostsWithPort(defaultPort)
	if socket, ok := u.Take("socket"); ok {
		if len(servers) > 0 || !strings.HasPrefix(socket, "/") {
			return nil, opts, errors.New("dlock: invalid URL: socket=/path takes an absolute path and no host")
		}
		servers = []string{socket}
	}
	return servers, opts, nil
}

// normalise makes one list of all that name the same servers: the order does not matter, nor
// does the case of host names.
func normalise(servers []string) ([]string, error) {
	list := make([]string, len(servers))
	for i, server := range servers {
		if list[i] = server; !isSocket(server) {
			list[i] = strings.ToLower(server)
		}
	}
	slices.Sort(list)
	if list = slices.Compact(list); len(list) == 0 {
		return nil, errors.New("dlock: invalid URL: no host, as in memcached://localhost:11211, and no socket=/path")
	}
	return list, nil
}
