package mysqlbackend

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
)

// Defaults of Options.
const (
	DefaultTimeout = 3 * time.Second
	DefaultTable   = "dlock"
)

const defaultPort = "3306"

// Values of Options.Notify.
const (
	NotifyLock = "lock" // waiters are woken, by way of GET_LOCK and KILL QUERY
	NotifyPoll = "poll" // the core polls
)

// Options are the parameters of a URL that concern the driver. Those that concern the
// connection have no field: who calls New has made it already. The zero value and
// nil stand for the defaults.
type Options struct {
	// Timeout bounds connecting and every statement of a driver that is opened by URL, and for New
	// what the driver does behind its callers. 0 is DefaultTimeout.
	Timeout time.Duration
	// Table is the name of the table: letters, digits, _ and $. "" is DefaultTable.
	Table string
	// Create makes the table if it is not there.
	Create bool
	// Notify is how waiters learn of a release: NotifyLock or NotifyPoll. "" is NotifyLock.
	Notify string
}

func (o *Options) withDefaults() (Options, error) {
	if o == nil {
		o = &Options{}
	}
	opts := Options{
		Timeout: cmp.Or(o.Timeout, DefaultTimeout),
		Table:   cmp.Or(o.Table, DefaultTable),
		Create:  o.Create,
		Notify:  cmp.Or(o.Notify, NotifyLock),
	}
	return opts, opts.check()
}

// tablePattern is what an identifier may be that is not quoted: nothing that could end a
// quoted one, or be another identifier to a server that folds case or trims blanks.
var tablePattern = regexp.MustCompile(`^[0-9A-Za-z_$]{1,64}$`)

func (o *Options) check() error {
	switch {
	case o.Timeout < 0:
		return errors.New("dlock: Options.Timeout is negative")
	case !tablePattern.MatchString(o.Table):
		return fmt.Errorf("dlock: parameter \"table\": %.80q must be 1 to 64 letters, digits, _ or $", o.Table)
	case o.Notify != NotifyLock && o.Notify != NotifyPoll:
		return errors.New("dlock: parameter \"notify\" must be " + NotifyLock + " or " + NotifyPoll)
	}
	return nil
}

// target is what a URL says.
type target struct {
	Options
	network, addr            string
	user, password, database string
	tls                      *tlsfile.Files
}

func parseTarget(u *backend.URL) (*target, error) {
	t := &target{user: u.User, password: u.Password, database: strings.TrimPrefix(u.Path, "/")}
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
		return nil, errors.New("dlock: invalid URL: the path must be the name of a database, as in mysql://localhost/jobs")
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

func (t *target) takeAddress(u *backend.URL) error {
	socket, isSocket := u.Take("socket")
	hosts := u.HostsWithPort(defaultPort)
	switch {
	case isSocket && (len(hosts) > 0 || !strings.HasPrefix(socket, "/")):
		return errors.New("dlock: invalid URL: socket=/path takes an absolute path and no host")
	case isSocket:
		t.network, t.addr = "unix", socket
	case len(hosts) == 0:
		return errors.New("dlock: invalid URL: no host, as in mysql://localhost/jobs, and no socket=/path")
	case len(hosts) > 1:
		return fmt.Errorf("dlock: invalid URL: %s takes one host, the writer, not %d", u.Scheme, len(hosts))
	default:
		t.network, t.addr = "tcp", hosts[0]
	}
	return nil
}
