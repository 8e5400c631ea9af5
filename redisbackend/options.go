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

// DefaultTimeout limits one request unless Options.Timeout sets another limit.
const DefaultTimeout = 3 * time.Second

// The ports of hosts without a port in a URL.
const (
	defaultPort         = "6379"
	defaultSentinelPort = "26379"
)

// Options are the parameters of a URL that concern the driver. The parameters of the connection
// have no field, because the caller of New has made the connection already. The zero value and nil
// select the defaults.
type Options struct {
	// Timeout limits connecting and every request of a driver that is opened by URL. A lent client
	// has its own timeouts. For New, Timeout is only how long after the end of its context a
	// request may still be executed (Capabilities.Late). 0 means DefaultTimeout, or the ReadTimeout
	// of a lent client.
	//
	// Timeout should be well below 5 s, because Close undoes requests that were given up for 5 s at
	// most. A request that is executed later takes a lock for a TTL.
	Timeout time.Duration

	// Wait is the number of replicas that must acknowledge a lock, and each renewal of it,
	// before its holder relies on it. The server waits for them for at most half of Timeout and
	// a quarter of the TTL. A lock without its replicas is released, and Acquire returns
	// ErrUnavailable. A lease whose renewals lack their replicas is lost at its deadline. 0
	// means that no replica has to acknowledge.
	Wait int
}

// withDefaults returns a copy of o with defaults for the fields that are zero. o may be nil.
func (o *Options) withDefaults() Options {
	if o == nil {
		o = &Options{}
	}
	opts := *o
	opts.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	return opts
}

// shape is how the servers of a URL belong together. Its value is the part of the scheme after "+".
type shape string

// The shapes.
const (
	single   shape = ""         // one server
	cluster  shape = "cluster"  // masters that share the keys, with replicas
	sentinel shape = "sentinel" // one master with replicas, reported by sentinels
)

// target is the content of a URL.
type target struct {
	Options
	shape          shape
	network        string   // "tcp" or "unix"
	addrs          []string // of the server, of nodes of the cluster, or of the sentinels
	user, password string
	database       int            // always 0 in a cluster
	tls            *tlsfile.Files // nil without TLS

	// These are for sentinels only. master is the name of the master in their configuration.
	master                         string
	sentinelUser, sentinelPassword string
}

// parseTarget takes all parameters of u before anything is dialed, so that a misspelt one is
// reported even if the server is down.
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

// takeSingle takes the parameters of a single server: one host or a unix socket, and a database.
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
		return fmt.Errorf("%[1]s takes one host, not %[2]d: several servers are a cluster, "+
			"%[1]s+cluster, or have sentinels, %[1]s+sentinel", u.Scheme, len(t.addrs))
	}
	return t.takeDatabase(strings.TrimPrefix(u.Path, "/"))
}

// takeCluster takes the nodes of a cluster.
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

// takeSentinel takes the sentinels, the name of the master, and the database.
func (t *target) takeSentinel(u *backend.URL) error {
	u.TakeString("sentinel-user", &t.sentinelUser)
	u.TakeString("sentinel-password", &t.sentinelPassword)
	t.addrs = u.HostsWithPort(defaultSentinelPort)
	var database string
	t.master, database, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if len(t.addrs) == 0 || t.master == "" {
		return fmt.Errorf("no sentinels or no master, as in %s://host1,host2,host3/mymaster",
			u.Scheme)
	}
	return t.takeDatabase(database)
}

// takeDatabase takes the number of a database. An empty number is database 0.
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
