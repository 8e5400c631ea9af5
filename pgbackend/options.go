package pgbackend

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Defaults of Options.
const (
	DefaultTimeout = 3 * time.Second
	DefaultTable   = "dlock"
)

// Options are the settings of a driver, which a URL has as parameters. Settings of the connections
// have no field, because the caller of New has already made them. The zero value and nil stand for
// the defaults.
type Options struct {
	// Timeout limits connecting, and each statement of the driver's work in the background. 0 is
	// DefaultTimeout.
	Timeout time.Duration
	// Table is the name of the table: letters, digits and _, with its schema and a dot before it
	// if it is not in the search path. "" is DefaultTable.
	Table string
}

// tablePattern matches the names of tables.
var tablePattern = regexp.MustCompile(
	`^(?:[A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// withDefaults returns a copy of o with the defaults in the place of zero values. A nil o is valid.
func (o *Options) withDefaults() Options {
	if o == nil {
		o = &Options{}
	}
	opts := *o
	opts.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	opts.Table = cmp.Or(opts.Table, DefaultTable)
	return opts
}

// check returns an error if an option is invalid.
func (o Options) check() error {
	if o.Timeout < 0 {
		return fmt.Errorf("dlock: invalid timeout %v: it must be greater than 0", o.Timeout)
	}
	if !tablePattern.MatchString(o.Table) {
		return fmt.Errorf("dlock: invalid table %q: it must be letters, digits and _, "+
			"with a schema and a dot before it if needed", o.Table)
	}
	return nil
}

// quoted returns the name of a table as an identifier of SQL.
func quoted(table string) string {
	return pgx.Identifier(strings.Split(table, ".")).Sanitize()
}
