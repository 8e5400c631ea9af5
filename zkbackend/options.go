package zkbackend

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
)

// DefaultSession is the session timeout that New requests if neither Options.Session nor
// Options.TTL is set.
const DefaultSession = 30 * time.Second

const (
	// minSession and maxSession limit Options.Session. The server has its own, narrower limits.
	minSession = time.Millisecond
	maxSession = math.MaxInt32 * time.Millisecond

	// defaultPort is the port of a server whose URL has none.
	defaultPort = "2181"
)

// The values of Options.ACL.
const (
	aclAuth  = "auth"
	aclWorld = "world"
)

// Options are the parameters of a URL. The zero value and nil stand for the defaults.
type Options struct {
	// Chroot is the existing node that contains the driver's node. The empty Chroot is the root.
	Chroot string
	// User and Password authenticate by the scheme digest, unless User is empty.
	User, Password string
	// Session is the session timeout to request. The server grants a timeout within its own limits.
	// 0 is DefaultSession, unless TTL is set. In a URL it is the parameter session.
	Session time.Duration
	// TTL is the longest TTL of the locks. If Session is 0, the driver requests a session timeout
	// of TTL and a tick of the server. In a URL it is the client's TTL.
	TTL time.Duration
	// ACL is the access to the nodes that the driver creates: "auth" for the user alone, or "world"
	// for every client. Empty is "auth" if there is a user, and otherwise "world".
	ACL string
	// TLS is the configuration of connections. nil is plaintext. An empty ServerName stands for the
	// host of each server.
	TLS *tls.Config
}

// withDefaults returns a copy of o with the defaults in the place of zero fields. A nil o is the
// zero value.
func (o *Options) withDefaults() Options {
	if o == nil {
		o = &Options{}
	}
	opts := *o
	opts.Chroot = strings.TrimSuffix(opts.Chroot, "/")
	if opts.TTL == 0 {
		opts.Session = cmp.Or(opts.Session, DefaultSession)
	}
	if opts.User != "" {
		opts.ACL = cmp.Or(opts.ACL, aclAuth)
	}
	opts.ACL = cmp.Or(opts.ACL, aclWorld)
	return opts
}

// check returns an error if an option is invalid. o has its defaults.
func (o *Options) check() error {
	if o.TTL < 0 || o.Session != 0 && (o.Session < minSession || o.Session > maxSession) {
		return fmt.Errorf("dlock: session %v: it must be %v to %v",
			o.Session, minSession, maxSession)
	}
	if err := checkChroot(o.Chroot); err != nil {
		return err
	}
	switch {
	case o.ACL != aclAuth && o.ACL != aclWorld:
		return errors.New("dlock: acl must be auth or world")
	case o.ACL == aclAuth && o.User == "":
		return errors.New("dlock: acl=auth needs a user")
	}
	return nil
}

// checkChroot returns an error for a path that the server refuses, and for the server's own nodes,
// which it would accept.
func checkChroot(chroot string) error {
	if chroot == "" {
		return nil
	}
	segments := strings.Split(chroot, "/")
	plain := segments[0] == ""
	for _, segment := range segments[1:] {
		plain = plain && segment != "" && segment != "." && segment != ".."
	}
	if !plain || strings.ContainsFunc(chroot, isForbidden) {
		return fmt.Errorf("dlock: chroot %.64q: it is written /a/b, without control characters",
			chroot)
	}
	if segments[1] == reserved[1:] {
		return fmt.Errorf("dlock: chroot %.64q: %s belongs to the server", chroot, reserved)
	}
	return nil
}

// isForbidden reports whether ZooKeeper refuses a path with the character r.
func isForbidden(r rune) bool {
	switch {
	case r <= 0x1f, r >= 0x7f && r <= 0x9f:
		return true
	case r >= 0xd800 && r <= 0xf8ff, r >= 0xfff0 && r <= 0xffff:
		return true
	}
	return false
}

// target is what a URL says.
type target struct {
	servers  []string // as host:port
	settings *settings
}

// parseTarget takes the parameters of the driver from u. It reads the files of the TLS parameters.
func parseTarget(u *backend.URL) (*target, error) {
	opts := &Options{Chroot: u.Path, User: u.User, Password: u.Password, TTL: max(u.TTL, 0)}
	u.TakeString("acl", &opts.ACL)
	if err := u.TakeDuration("session", &opts.Session); err != nil {
		return nil, err
	}
	files, err := tlsfile.Take(u, "")
	if err != nil {
		return nil, err
	}
	if opts.TLS, err = files.Config(""); err != nil {
		return nil, err
	}
	if strings.Contains(opts.User, ":") {
		return nil, errors.New(
			"dlock: invalid URL: a user of the scheme digest cannot contain a colon")
	}
	servers := u.HostsWithPort(defaultPort)
	if len(servers) == 0 {
		return nil, errors.New(
			"dlock: invalid URL: no host, as in zk://host1,host2,host3/chroot")
	}
	settings, err := opts.settings()
	if err != nil {
		return nil, err
	}
	return &target{servers: servers, settings: settings}, nil
}

// settings are checked Options and what follows from them and from the server's tick.
//
// A driver begins with the shortest session timeout, which shows the tick. The settings for the
// real session come from measured. They do not change afterwards.
type settings struct {
	Options
	root string   // path of the node that contains all locks
	acl  []zk.ACL // of the nodes that the driver creates

	tick    time.Duration // of the server; 0: not measured yet
	timeout time.Duration // session timeout to request
}

// settings returns the settings for the measurement of the tick, or an error if an option is
// invalid.
func (o *Options) settings() (*settings, error) {
	opts := o.withDefaults()
	if err := opts.check(); err != nil {
		return nil, err
	}
	acl := zk.WorldACL(zk.PermAll)
	if opts.ACL == aclAuth {
		acl = zk.AuthACL(zk.PermAll)
	}
	return &settings{
		Options: opts,
		root:    opts.Chroot + directory,
		acl:     acl,
		timeout: minSession,
	}, nil
}

// measured returns the settings for a server that granted shortest as its shortest timeout. By
// default that is two ticks.
func (s *settings) measured(shortest time.Duration) *settings {
	m := *s
	m.tick = shortest / 2
	m.timeout = cmp.Or(m.Session, min(m.TTL, maxSession-m.tick)+m.tick)
	return &m
}

// planned returns the timeout of the real session, except for the tick that may be added. It does
// not depend on the measurement.
func (s *settings) planned() time.Duration { return cmp.Or(s.Session, s.TTL) }

// report returns the maximum time until a server has reported a request to the leader. Servers send
// two heartbeats per tick.
func (s *settings) report() time.Duration { return s.tick * 11 / 20 }

// maxTTL returns the longest TTL that a session with the granted timeout proves between two pings:
// three quarters of the timeout, or the client's TTL if it leaves a tick.
func (s *settings) maxTTL(granted time.Duration) time.Duration {
	return max(min(granted-s.tick, granted*3/4), min(granted-s.tick, s.TTL))
}

// ping returns the pause between two pings of a session with the granted timeout. It leaves as much
// time again for pings that are late.
func (s *settings) ping(granted time.Duration) time.Duration {
	if granted == 0 || s.tick == 0 {
		return minServerTimeout
	}
	return max((granted-s.maxTTL(granted)-s.report())/2, minPing)
}
