package mysqlbackend

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
	"github.com/dlock-go/dlock/internal/session"
)

// Defaults of Options.
const (
	DefaultTimeout = 3 * time.Second
	DefaultTable   = "dlock"
	DefaultTTL     = session.DefaultTTL // 30 s
)

// defaultPort is the port of a URL without one.
const defaultPort = "3306"

// Values of Options.Notify.
const (
	NotifyLock = "lock" // the server wakes waiters, by GET_LOCK and KILL QUERY
	NotifyPoll = "poll" // the core polls
)

// Values of Options.Lock.
const (
	LockRow     = session.LockRow     // "row": a lock is a row of the table
	LockSession = session.LockSession // "session": a user-level lock (GET_LOCK) of a connection
)

// Options are the settings of a driver, which a URL has as parameters. Settings of the connection
// have no field, because the caller of New has already made it. The zero value and nil stand for
// the defaults.
type Options struct {
	// Timeout limits connecting and every statement of a driver that is opened by URL. With New
	// it limits only the driver's work in the background. 0 is DefaultTimeout.
	Timeout time.Duration
	// Table is the name of the table: letters, digits, _ and $. "" is DefaultTable.
	Table string
	// Create makes the table if it does not exist.
	Create bool
	// Notify is how waiters learn of a release: NotifyLock or NotifyPoll. "" is NotifyLock.
	Notify string
	// Lock is what a lock is on the server: LockRow or LockSession. "" is LockRow. New takes only
	// LockRow.
	Lock string
	// TTL is the longest TTL of the locks with LockSession: the server ends the connection if it is
	// silent for so long, in whole seconds. In a URL it is the client's TTL. 0 is DefaultTTL.
	TTL time.Duration
}

// withDefaults returns a copy of o with the defaults of all fields that are zero, or an error if a
// field is invalid. o may be nil.
func (o *Options) withDefaults() (Options, error) {
	if o == nil {
		o = &Options{}
	}
	opts := *o
	opts.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	opts.Table = cmp.Or(opts.Table, DefaultTable)
	opts.Notify = cmp.Or(opts.Notify, NotifyLock)
	opts.Lock = cmp.Or(opts.Lock, LockRow)
	opts.TTL = cmp.Or(opts.TTL, DefaultTTL)
	return opts, opts.check()
}

// isTable reports whether name is an identifier that needs no quotes. Such an identifier cannot end
// a quoted identifier, and cannot become another one on a server that folds case or trims blanks.
func isTable(name string) bool {
	const chars = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_$"
	return name != "" && len(name) <= 64 && strings.Trim(name, chars) == ""
}

// check returns an error if a field is invalid. The defaults must be filled in.
func (o *Options) check() error {
	switch {
	case o.Timeout < 0:
		return errors.New("dlock: Options.Timeout is negative")
	case !isTable(o.Table):
		return fmt.Errorf("dlock: parameter \"table\": %.80q must be "+
			"1 to 64 letters, digits, _ or $", o.Table)
	case o.Notify != NotifyLock && o.Notify != NotifyPoll:
		return errors.New("dlock: parameter \"notify\" must be " + NotifyLock + " or " + NotifyPoll)
	}
	return session.CheckOptions(o.Lock, o.TTL, minTTL, maxTTL)
}

// target is the content of a URL.
type target struct {
	Options
	network, addr            string // as in net.Dial
	user, password, database string
	tls                      *tlsfile.Files // nil: no encryption
}

// parseTarget takes the driver's parameters from u. It reads no file and makes no connection, so
// that a bad parameter is reported even if the server is down.
func parseTarget(u *backend.URL) (*target, error) {
	t := &target{
		user: u.User, password: u.Password, database: strings.TrimPrefix(u.Path, "/"),
	}
	t.TTL = u.TTL
	u.TakeString("lock", &t.Lock)
	u.TakeString("table", &t.Table)
	u.TakeString("notify", &t.Notify)
	err := errors.Join(u.TakeDuration("timeout", &t.Timeout), u.TakeBool("create", &t.Create))
	if err != nil {
		return nil, err
	}
	if t.Options, err = t.withDefaults(); err != nil {
		return nil, err
	}
	if t.database == "" || strings.Contains(t.database, "/") {
		return nil, errors.New("dlock: invalid URL: the path must be the name of a database, " +
			"as in mysql://localhost/jobs")
	}
	if err := t.takeAddress(u); err != nil {
		return nil, err
	}
	if t.tls, err = tlsfile.Take(u, ""); err != nil {
		return nil, err
	}
	if t.tls != nil && t.network == "unix" {
		return nil, errors.New("dlock: invalid URL: tls=1 takes a host and no socket")
	}
	return t, nil
}

// takeAddress sets the network and the address: the only host, or the socket.
func (t *target) takeAddress(u *backend.URL) error {
	socket, isSocket := u.Take("socket")
	hosts := u.HostsWithPort(defaultPort)
	switch {
	case isSocket && (len(hosts) > 0 || !strings.HasPrefix(socket, "/")):
		return errors.New("dlock: invalid URL: socket=/path takes an absolute path and no host")
	case isSocket:
		t.network, t.addr = "unix", socket
	case len(hosts) == 0:
		return errors.New("dlock: invalid URL: no host, as in mysql://localhost/jobs, " +
			"and no socket=/path")
	case len(hosts) > 1:
		return fmt.Errorf("dlock: invalid URL: %s takes one host, the writer, not %d",
			u.Scheme, len(hosts))
	default:
		t.network, t.addr = "tcp", hosts[0]
	}
	return nil
}
