package redisbackend

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
)

// DefaultTimeout is the bound of one request unless Options.Timeout says otherwise.
const DefaultTimeout = 3 * time.Second

const (
	defaultPort         = "6379"
	defaultSentinelPort = "26379"
)

// Options are the parameters of a URL that concern the driver. Those that concern
// the connection have no field: who calls New has made it already. The
// zero value and nil stand for the defaults.
type Options struct {
	// Timeout bounds connecting and every request of a driver that is opened by
	// URL. A lent client has timeouts of its own, so for New it is only how long after
	// its context has ended a request may still be executed (Capabilities.Late). 0 is
	// DefaultTimeout, or the ReadTimeout of a lent client.
	Timeout time.Duration

	// Wait is how many replicas must have acknowledged a lock, and each renewal of it,
	// before its holder relies on it. The server is asked to wait for them for half of
	// Timeout, and for a third of the TTL at most. A lock without its replicas is released
	// and ErrUnavailable; a lease whose renewals lack them is lost at its deadline. 0:
	// replicas follow as they can.
	Wait int
}

func (o *Options) withDefaults() Options {
	if o == nil {
		o = &Options{}
	}
	return Options{Timeout: cmp.Or(o.Timeout, DefaultTimeout), Wait: o.Wait}
}

// shape is how the servers of a URL belong together; it is also what stands behind
// the "+" of the scheme.
type shape string

const (
	single   shape = ""
	cluster  shape = "cluster"
	sentinel shape = "sentinel"
)

// target is what a URL says.
type target struct {
	Options
	shape          shape
	network        string
	addrs          []string // of the server, of nodes of the cluster, or of the sentinels
	user, password string
	database       int
	tls            *tlsfile.Files

	master                         string // what the sentinels call it
	sentinelUser, sentinelPassword string
}

func parseTarget(u *backend.URL) (*target, error) {
	protocol, kind, _ := strings.Cut(u.Scheme, "+")
	t := &target{shape: shape(kind), network: "tcp", user: u.User, password: u.Password}
	err := errors.Join(u.TakeDuration("timeout", &t.Timeout), u.TakeInt("wait", &t.Wait))
	if err != nil {
		return nil, err
	}
	t.Options = t.withDefaults()
	switch t.shape {
	case cluster:
		err = t.takeCluster(u)
	case sentinel:
		err = t.takeSentinel(u)
	default:
		err = t.takeSingle(u)
	}
	if err != nil {
		return nil, fmt.Errorf("dlock: invalid URL: %w", err)
	}
	t.tls, err = tlsfile.Take(u, strings.Replace(u.Scheme, protocol, "rediss", 1))
	return t, err
}

func (t *target) takeSingle(u *backend.URL) error {
	socket, isSocket := u.Take("socket")
	t.addrs = u.HostsWithPort(defaultPort)
	switch {
	case isSocket && (len(t.addrs) > 0 || !strings.HasPrefix(socket, "/")):
		return errors.New("socket=/path takes an absolute path and no host")
	case isSocket:
		t.network, t.addrs = "unix", []string{socket}
	case len(t.addrs) == 0:
		return errors.New("no host, as in redis://localhost:6379, and no socket=/path")
	case len(t.addrs) > 1:
		return fmt.Errorf("%[1]s takes one host, not %[2]d: several servers are a cluster, %[1]s+cluster, "+
			"or stand behind sentinels, %[1]s+sentinel", u.Scheme, len(t.addrs))
	}
	return t.takeDatabase(strings.TrimPrefix(u.Path, "/"))
}

func (t *target) takeCluster(u *backend.URL) error {
	t.addrs = u.HostsWithPort(defaultPort)
	switch {
	case len(t.addrs) == 0:
		return fmt.Errorf("no host, as in %s://node1,node2,node3", u.Scheme)
	case strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("the path %.32q: a cluster has no numbered databases", u.Path)
	}
	return nil
}

func (t *target) takeSentinel(u *backend.URL) error {
	u.TakeString("sentinel-user", &t.sentinelUser)
	u.TakeString("sentinel-password", &t.sentinelPassword)
	t.addrs = u.HostsWithPort(defaultSentinelPort)
	var database string
	t.master, database, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if len(t.addrs) == 0 || t.master == "" {
		return fmt.Errorf("it names the sentinels and their master, as in %s://host1,host2,host3/mymaster", u.Scheme)
	}
	return t.takeDatabase(database)
}

func (t *target) takeDatabase(number string) error {
	if number == "" {
		return nil
	}
	database, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return fmt.Errorf("the path: %.32q must be the number of a database", number)
	}
	t.database = int(database)
	return nil
}
