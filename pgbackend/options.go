package pgbackend

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Defaults of Options.
const (
	DefaultTimeout = 3 * time.Second
	DefaultTable   = "dlock"
	DefaultTTL     = 30 * time.Second
)

// Values of Options.Lock.
const (
	LockRow     = "row"     // a lock is a row of the table
	LockSession = "session" // a lock is an advisory lock of a connection
)

// Options are the settings of a driver, which a URL has as parameters. Settings of the connections
// have no field, because the caller of New has already made them. The zero value and nil stand for
// the defaults.
type Options struct {
	// Timeout limits connecting to one host, and each statement of a driver: of one that has no
	// answer by then, the connection ends and the outcome is unknown. 0 is DefaultTimeout.
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

// isTable reports whether name is the name of a table, with or without a schema.
func isTable(name string) bool {
	schema, table, ok := strings.Cut(name, ".")
	return isIdentifier(schema) && (!ok || isIdentifier(table))
}

func isIdentifier(s string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
	return s != "" && len(s) <= 63 && strings.Trim(s, letters+"0123456789") == "" &&
		strings.ContainsRune(letters, rune(s[0]))
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

// check returns an error if an option is invalid.
func (o Options) check() error {
	if o.Timeout < 0 {
		return fmt.Errorf("dlock: invalid timeout %v: it must be greater than 0", o.Timeout)
	}
	if o.Lock != LockRow && o.Lock != LockSession {
		return fmt.Errorf("dlock: invalid lock %q: it must be %s or %s",
			o.Lock, LockRow, LockSession)
	}
	if o.Lock == LockSession && (o.TTL < minTTL || o.TTL > maxTTL) {
		return fmt.Errorf("dlock: invalid TTL %v of a session: it must be from %v to %v",
			o.TTL, minTTL, maxTTL)
	}
	if !isTable(o.Table) {
		return fmt.Errorf("dlock: invalid table %q: it must be letters, digits and _, "+
			"with a schema and a dot before it if needed", o.Table)
	}
	return nil
}

// quoted returns the name of a table as an identifier of SQL.
func quoted(table string) string {
	return pgx.Identifier(strings.Split(table, ".")).Sanitize()
}
