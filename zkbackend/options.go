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
	"github.com/dlock-go/dlock/internal/tlsfile"
)

// DefaultSession is the session timeout that is asked for unless Options.Session says otherwise.
const DefaultSession = 30 * time.Second

const (
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
	// Session is the session timeout to ask for; the server grants what its own
	// bounds allow, and what it grants is Capabilities.MaxTTL. 0 is DefaultSession.
	Session time.Duration
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
}

func (o *Options) settings() (*settings, error) {
	if o == nil {
		o = &Options{}
	}
	s := &settings{Options: *o}
	s.Session = cmp.Or(s.Session, DefaultSession)
	s.Chroot = strings.TrimSuffix(s.Chroot, "/")
	if s.Session < time.Millisecond || s.Session > math.MaxInt32*time.Millisecond {
		return nil, fmt.Errorf("dlock: session %v: it must be 1ms to %v", s.Session, math.MaxInt32*time.Millisecond)
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
	opts = &Options{Chroot: u.Path, User: u.User, Password: u.Password}
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
