package pgbackend

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
const defaultPort = "5432"

// Values of Options.Lock.
const (
	LockRow     = session.LockRow     // "row": a lock is a row of the table
	LockSession = session.LockSession // "session": an advisory lock of a connection
)

// Options are the settings of a driver, which a URL has as parameters. Settings of the connections
// have no field, because the caller of New has already made them. The zero value and nil stand for
// the defaults.
type Options struct {
	// Timeout limits connecting to one host, and each statement of a driver: if a statement has no
	// answer by then, its connection ends and its outcome is unknown. 0 is DefaultTimeout.
	Timeout time.Duration
	// Table is the name of the table: letters, digits and _, with its schema and a dot before it
	// if it is not in the search path. "" is DefaultTable.
	Table string
	// Lock is what a lock is on the server: LockRow or LockSession. "" is LockRow.
	Lock string
	// TTL is the longest TTL of the locks with LockSession: the server ends the connection if it is
	// silent for so long. In a URL it is the client's TTL. 0 is DefaultTTL.
	TTL time.Duration
}

// withDefaults returns a copy of o with the defaults in the place of zero values. A nil o is valid.
func (o *Options) withDefaults() Options {
	if o == nil {
		o = &Options{}
	}
	opts := *o
	opts.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	opts.Table = cmp.Or(opts.Table, DefaultTable)
	opts.Lock = cmp.Or(opts.Lock, LockRow)
	opts.TTL = cmp.Or(opts.TTL, DefaultTTL)
	return opts
}

// isTable reports whether name is the name of a table, with or without a schema. The statements
// have the name as text, so nothing but identifiers is accepted. 63 bytes are PostgreSQL's limit;
// it would cut off a longer name, and two names could then be one table.
func isTable(name string) bool {
	schema, table, ok := strings.Cut(name, ".")
	return isIdentifier(schema) && (!ok || isIdentifier(table))
}

func isIdentifier(s string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
	return s != "" && len(s) <= 63 && strings.Trim(s, letters+"0123456789") == "" &&
		strings.ContainsRune(letters, rune(s[0]))
}

// check returns an error if an option is invalid.
func (o Options) check() error {
	if o.Timeout < 0 {
		return fmt.Errorf("dlock: invalid timeout %v: it must be greater than 0", o.Timeout)
	}
	if !isTable(o.Table) {
		return fmt.Errorf("dlock: invalid table %q: it must be letters, digits and _, "+
			"with a schema and a dot before it if needed", o.Table)
	}
	return session.CheckOptions(o.Lock, o.TTL, minTTL, maxTTL)
}

// target is the content of a URL.
type target struct {
	Options
	user, password, database string
	hosts                    []string // with ports; none with a socket
	socket                   string
	tls                      *tlsfile.Files
}

// parseTarget takes the driver's parameters from u. It reads no file and makes no connection, so
// that a bad parameter is reported even if the server is down.
func parseTarget(u *backend.URL) (*target, error) {
	t := &target{user: u.User, password: u.Password, hosts: u.HostsWithPort(defaultPort)}
	t.Options = (&Options{TTL: u.TTL}).withDefaults()
	files, tlsErr := tlsfile.Take(u, "")
	t.tls = files
	err := errors.Join(tlsErr, u.TakeDuration("timeout", &t.Timeout))
	u.TakeString("table", &t.Table)
	u.TakeString("lock", &t.Lock)
	u.TakeString("socket", &t.socket)
	if err := errors.Join(err, t.check()); err != nil {
		return nil, err
	}
	t.database = strings.TrimPrefix(u.Path, "/")
	switch {
	case (len(t.hosts) == 0) == (t.socket == ""):
		return nil, errors.New("dlock: invalid URL: it has either hosts or a socket, " +
			"as in postgres://user@host/database")
	case t.database == "" || strings.Contains(t.database, "/"):
		return nil, errors.New("dlock: invalid URL: the path is the name of the database")
	case t.socket != "" && t.tls != nil:
		return nil, errors.New("dlock: invalid URL: a socket has no TLS")
	}
	return t, nil
}
