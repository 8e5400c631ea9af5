package mysqlbackend

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestBadURLs checks that a mistake in a URL is reported before the driver connects.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	raw.BadURLs(t, map[string]string{
		"mysql:///db":                              "no host",
		"mysql://h":                                "name of a database",
		"mysql://h/":                               "name of a database",
		"mysql://h/a/b":                            "name of a database",
		"mysql://u:s3cret@a,b/db":                  "one host",
		"mysql://h/db?table=a-b":                   `"table"`,
		"mysql://h/db?table=a%60b":                 `"table"`,
		"mysql://h/db?table=" + tableOf(65):        `"table"`,
		"mysql://h/db?create=maybe":                `"create"`,
		"mysql://h/db?notify=mail":                 `"notify"`,
		"mysql://h/db?lock=table":                  `invalid lock "table"`,
		"mysql://h/db?lock=session&ttl=50ms":       "invalid TTL 50ms",
		"mysql://h/db?lock=session&ttl=11m":        "invalid TTL 11m",
		"mysql://h/db?timeout=0s":                  `"timeout"`,
		"mysql://h/db?socket=/s":                   "no host",
		"mysql:///db?socket=s":                     "absolute path",
		"mysql:///db?socket=/s&tls=1":              "no socket",
		"mysql://h/db?ca=/c":                       "tls=1",
		"mysql://u:s3cret@h/db?tls=1&ca=/not/here": "/not/here",
		"mysql://h/db?tls=1&key=/not/here":         "/not/here",
		"mysql://h/db?lock=session&tls=1&ca=/none": "/none",
	})
}

// tableOf returns a name with n letters.
func tableOf(n int) string { return strings.Repeat("t", n) }

// TestParameters checks which field each part of a URL sets.
func TestParameters(t *testing.T) {
	t.Parallel()
	// As the core does, with the client's TTL.
	parse := func(u *backend.URL) (*target, error) {
		u.TTL = time.Minute
		return parseTarget(u)
	}
	for url, want := range map[string]*target{
		"mysql:///" + tableOf(65) + "?socket=/s&table=" + tableOf(64): {
			Options: Options{
				Timeout: DefaultTimeout, Table: tableOf(64), Notify: NotifyLock, Lock: LockRow,
				TTL: time.Minute,
			},
			network: "unix", addr: "/s", database: tableOf(65),
		},
		"mariadb://u:p%40@[::1]/a%20b?timeout=2s&table=T_1$&create=1&notify=poll&lock=session" +
			"&tls=1&server-name=n": {
			Options: Options{
				Timeout: 2 * time.Second, Table: "T_1$", Create: true, Notify: NotifyPoll,
				Lock: LockSession, TTL: time.Minute,
			},
			network: "tcp", addr: "[::1]:3306",
			user: "u", password: "p@", database: "a b",
			tls: &tlsfile.Files{ServerName: "n"},
		},
	} {
		if got := raw.Target(t, parse, url); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", url, got, want)
		}
	}
}
