package pgbackend

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
		"postgres:":                                        "hosts or a socket",
		"postgres:///db":                                   "hosts or a socket",
		"postgres://u:s3cret@h/db?socket=/s":               "hosts or a socket",
		"postgres://h":                                     "name of the database",
		"postgres://h/":                                    "name of the database",
		"postgres://h/a/b":                                 "name of the database",
		"postgres://h/db?table=a.b.c":                      "invalid table",
		"postgres://h/db?table=a;b":                        "invalid table",
		"postgres://h/db?table=.a":                         "invalid table",
		"postgres://h/db?table=a.":                         "invalid table",
		"postgres://h/db?table=1a":                         "invalid table",
		"postgres://h/db?table=a.1":                        "invalid table",
		"postgres://h/db?table=" + strings.Repeat("a", 64): "invalid table",

		"postgres://h/db?lock=table":                  `invalid lock "table"`,
		"postgres://h/db?lock=session&ttl=50ms":       "invalid TTL 50ms",
		"postgres://h/db?lock=session&ttl=597h":       "invalid TTL 597h",
		"postgres://h/db?timeout=0s":                  `"timeout"`,
		"postgres:///db?socket=/s&tls=1":              "a socket has no TLS",
		"postgres://h/db?ca=/c":                       "tls=1",
		"postgres://u:s3cret@h/db?tls=1&ca=/not/here": "/not/here",
		"postgres://h/db?tls=1&key=/not/here":         "/not/here",
		"postgres://h/db?lock=session&tls=1&ca=/none": "/none",
	})
}

// TestParameters checks which field each part of a URL sets.
func TestParameters(t *testing.T) {
	t.Parallel()
	// As the core does, with the client's TTL.
	parse := func(u *backend.URL) (*target, error) {
		u.TTL = time.Minute
		return parseTarget(u)
	}
	for url, want := range map[string]*target{
		"postgres:///db?socket=/s": {
			Options: Options{
				Timeout: DefaultTimeout, Table: DefaultTable, Lock: LockRow, TTL: time.Minute,
			},
			hosts: []string{}, socket: "/s", database: "db",
		},
		"postgresql://u:p%40@a,[::1]:1/a%20b?timeout=2s&table=s.T_1&lock=session" +
			"&tls=1&server-name=n": {
			Options: Options{
				Timeout: 2 * time.Second, Table: "s.T_1", Lock: LockSession, TTL: time.Minute,
			},
			hosts: []string{"a:5432", "[::1]:1"},
			user:  "u", password: "p@", database: "a b",
			tls: &tlsfile.Files{ServerName: "n"},
		},
	} {
		if got := raw.Target(t, parse, url); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", url, got, want)
		}
	}
}
