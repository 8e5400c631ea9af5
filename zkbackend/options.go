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

// DefaultSession is the session timeout that New requests unless Options.Session is set.
const DefaultSession = 30 * time.Second

const (
	minSession = time.Millisecond
	maxSession = math.MaxInt32 * time.Millisecond

	defaultPort = "2181"
	// directory holds all locks below the chroot.
	directory = "/dlock"
	// reserved is the server's own.
	reserved = "/zookeeper"
)

// The values of Options.ACL.
const (
	aclAuth  = "auth"
	aclWorld = "world"
)

// Options are the parameters of a URL. The zero value and nil stand for the defaults.
type Options struct {
	// Chroot is the node below which the driver's own lies; it must exist. Empty: the root.
	Chroot string
	// User and Password authenticate by the scheme digest, unless User is empty.
	User, Password string
	// Session is the session timeout to request; the server grants what its own
	// bounds allow. 0 is DefaultSession, unless TTL is set. In a URL
	// it is the parameter session.
	Session time.Duration
	// TTL is the longest TTL that a lock is to have. Where Session is 0 the driver requests a tick
	// of the server more than that. In a URL it is the client's TTL.
	TTL time.Duration
	// ACL says who may touch the nodes that the driver makes: "auth", the user
	// alone, or "world", anybody. Empty: auth where there is a user, else world.
	ACL string
	// TLS is the configuration of connections; nil: plaintext. An empty ServerName
	// stands for the host that is dialled.
	TLS *tls.Config
}

// settings are checked Options.
type settings struct {
	Options
	root string // of the driver's nodes
	acl  []zk.ACL

	// As long as the tick is not known the driver requests the shortest timeout that there is.
	tick    time.Duration // of the server; 0: not known yet
	timeout time.Duration // of the session, to request
}

// measured returns settings for a server whose shortest timeout was granted. By default that is
// two ticks.
func (s *settings) measured(shortest time.Duration) *settings {
	m := *s
	m.tick = shortest / 2
	m.timeout = cmp.Or(m.Session, min(m.TTL, maxSession-m.tick)+m.tick)
	return &m
}

// wanted returns the timeout that the session is to have in the end, or nearly.
func (s *settings) wanted() time.Duration { return cmp.Or(s.Session, s.TTL) }

// report returns within which time the leader hears of a request to another member. Heartbeats
// are sent twice in a tick.
func (s *settings) report() time.Duration { return s.tick * 11 / 20 }

// maxTTL returns the longest TTL that a session proves between two pings: three quarters of its
// timeout, or the client's TTL if it leaves a tick.
func (s *settings) maxTTL(granted time.Duration) time.Duration {
	return max(min(granted-s.tick, granted*3/4), min(granted-s.tick, s.TTL))
}

// ping returns the pause between two pings, which leaves as much time again to those that are late.
func (s *settings) ping(granted time.Duration) time.Duration {
	if granted == 0 || s.tick == 0 {
		return minPatience
	}
	return max((granted-s.maxTTL(granted)-s.report())/2, minPing)
}

func (o *Options) settings() (*settings, error) {
	if o == nil {
		o = &Options{}
	}
	s := &settings{Options: *o}
	if s.TTL == 0 {
		s.Session = cmp.Or(s.Session, DefaultSession)
	}
	s.timeout = minSession
	s.Chroot = strings.TrimSuffix(s.Chroot, "/")
	if s.TTL < 0 || s.Session != 0 && (s.Session < minSession || s.Session > maxSession) {
		return nil, fmt.Errorf("dlock: session %v: it must be %v to %v", s.Session, minSession, maxSession)
	}
	if err := checkChroot(s.Chroot); err != nil {
		return nil, err
	}
	s.root = s.Chroot + directory
	switch cmp.Or(s.ACL, s.defaultACL()) {
	case aclWorld:
		s.acl = zk.WorldACL(zk.PermAll)
	case aclAuth:
		s.acl = zk.AuthACL(zk.PermAll)
		if s.User == "" {
			return nil, errors.New("dlock: acl=auth needs a user")
		}
	default:
		return nil, errors.New("dlock: acl must be auth or world")
	}
	return s, nil
}

func (o *Options) defaultACL() string {
	if o.User == "" {
		return aclWorld
	}
	return aclAuth
}

// checkChroot refuses what the server would, and its own nodes, which it would not.
func checkChroot(chroot string) error {
	if chroot == "" {
		return nil
	}
	segments := strings.Split(chroot, "/")
	plain := segments[0] == ""
	for _, segment := range segments[1:] {
		plain = plain && segment != "" && segment != "." && segment != ".."
	}
	if !plain || strings.ContainsFunc(chroot, forbidden) {
		return fmt.Errorf("dlock: chroot %.64q: it is written /a/b, without control characters", chroot)
	}
	if segments[1] == reserved[1:] {
		return fmt.Errorf("dlock: chroot %.64q: %s is the server's own", chroot, reserved)
	}
	return nil
}

// forbidden tells which characters ZooKeeper has in no path.
func forbidden(r rune) bool {
	return r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 && r <= 0xffff
}

// parseURL returns what a URL says.
func parseURL(u *backend.URL) (servers []string, opts *Options, err error) {
	opts = &Options{Chroot: u.Path, User: u.User, Password: u.Password, TTL: max(u.TTL, 0)}
	u.TakeString("acl", &opts.ACL)
	if err := u.TakeDuration("session", &opts.Session); err != nil {
		return nil, nil, err
	}
	files, err := tlsfile.Take(u, "")
	if err != nil {
		return nil, nil, err
	}
	if opts.TLS, err = files.Config(""); err != nil {
		return nil, nil, err
	}
	if strings.Contains(opts.User, ":") {
		return nil, nil, errors.New("dlock: invalid URL: a user of the scheme digest cannot contain a colon")
	}
	servers = u.HostsWithPort(defaultPort)
	if len(servers) == 0 {
		return nil, nil, errors.New("dlock: invalid URL: no host, as in zk://host1,host2,host3/chroot")
	}
	return servers, opts, nil
}
