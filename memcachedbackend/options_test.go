package memcachedbackend

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestBadURLs checks that a mistake in a URL is reported before the driver connects.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	raw.BadURLs(t, map[string]string{
		"memcached://":                             "no host",
		"memcached:///path":                        "no path",
		"memcached://u:s3cret@h/1":                 "no path",
		"memcached://h?socket=/tmp/s":              "no host",
		"memcached:?socket=tmp/s":                  "absolute path",
		"memcached://h?ca=/tmp/x":                  "tls=1",
		"memcached://u:s3cret@h?tls=1&ca=/nowhere": "/nowhere",
		"memcached://h?tls=1&key=/nowhere":         "/nowhere",
		"memcached://h?tls=maybe":                  `"tls"`,
		"memcached://h?timeout=0s":                 `"timeout"`,
		"memcached://h?conns=0":                    `"conns"`,
	})
}

// TestParameters checks which field each part of a URL sets.
func TestParameters(t *testing.T) {
	t.Parallel()
	full := "memcached://u:p%40@Host:1,[::1],host:1/?timeout=2s&conns=3&tls=1&server-name=n"
	got := raw.Target(t, parseTarget, full)
	if got.TLS == nil || got.TLS.ServerName != "n" {
		t.Fatalf("the configuration of TLS is %+v", got.TLS)
	}
	list, err := normalise(got.servers)
	if err != nil || !slices.Equal(list, []string{"[::1]:11211", "host:1"}) {
		t.Errorf("the servers %q are %q, %v", got.servers, list, err)
	}
	for url, want := range map[string]*target{
		"memcached:?socket=/s": {
			Options: Options{Timeout: DefaultTimeout, Conns: DefaultConns},
			servers: []string{"/s"},
		},
		full: {
			Options: Options{
				Timeout: 2 * time.Second, Conns: 3, User: "u", Password: "p@", TLS: got.TLS,
			},
			servers: []string{"Host:1", "[::1]:11211", "host:1"},
		},
	} {
		if got := raw.Target(t, parseTarget, url); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", url, got, want)
		}
	}
}
