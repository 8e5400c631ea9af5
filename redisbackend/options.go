package redisbackend

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/tlsfile"
)

// DefaultTimeout is the bound of one request unless Options.Timeout says otherwise.
const DefaultTimeout = 3 * time.Second

const defaultPort = "6379"

// Options are the parameters of a URL that concern the driver. Those that concern
// the connection have no field: who calls New has made it already. The
// zero value and nil stand for the defaults.
type Options struct {
	// Timeout bounds connecting and every request of a driver that is opened by
	// URL. A lent client has timeouts of its own, so for New it is only how long after
	// its context has ended a request may still be executed (Capabilities.Late). 0 is
	// DefaultTimeout, or the ReadTimeout of a lent *redis.Client.
	Timeout time.Duration
}

func (o *Options) withDefaults() Options {
	if o == nil {
		o = &Options{}
	}
	return Options{Timeout: cmp.Or(o.Timeout, DefaultTimeout)}
}

// target is what a URL says.
type target struct {
	Options
	network, addr  string
	user, password string
	database       int
	tls            *tlsfile.Files
}

func parseTarget(u *backend.URL) (*target, error) {
	t := &target{user: u.User, password: u.Password}
	if err := u.TakeDuration("timeout", &t.Timeout); err != nil {
		return nil, err
	}
	t.Options = t.withDefaults()
	if err := t.takeAddress(u); err != nil {
		return nil, err
	}
	if err := t.takeDatabase(u.Path); err != nil {
		return nil, err
	}
	var err error
	t.tls, err = tlsfile.Take(u, "rediss")
	return t, err
}

func (t *target) takeAddress(u *backend.URL) error {
	socket, isSocket := u.Take("socket")
	hosts := u.HostsWithPort(defaultPort)
	switch {
	case isSocket && (len(hosts) > 0 || !strings.HasPrefix(socket, "/")):
		return errors.New("dlock: invalid URL: socket=/path takes an absolute path and no host")
	case isSocket:
		t.network, t.addr = "unix", socket
	case len(hosts) == 0:
		return errors.New("dlock: invalid URL: no host, as in redis://localhost:6379, and no socket=/path")
	case len(hosts) > 1:
		return fmt.Errorf("dlock: invalid URL: %s takes one host, not %d: several servers are a cluster "+
			"or stand behind sentinels, which have schemes of their own", u.Scheme, len(hosts))
	default:
		t.network, t.addr = "tcp", hosts[0]
	}
	return nil
}

func (t *target) takeDatabase(path string) error {
	number := strings.TrimPrefix(path, "/")
	if number == "" {
		return nil
	}
	database, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return fmt.Errorf("dlock: invalid URL: the path %.32q must be the number of a database", path)
	}
	t.database = int(database)
	return nil
}
