package zkbackend

import (
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestBadURLs checks that a mistake in a URL is reported before the driver connects.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	raw.BadURLs(t, map[string]string{
		"zk:":                                "no host",
		"zk://":                              "no host",
		"zk:///locks":                        "no host",
		"zk://h/zookeeper":                   "belongs to the server",
		"zk://h/zookeeper/a":                 "belongs to the server",
		"zk://h/a//b":                        "it is written /a/b",
		"zk://h/a/../b":                      "it is written /a/b",
		"zk://h/%EF%80%80":                   "it is written /a/b",
		"zk://h/?session=0s":                 `"session"`,
		"zk://h/?session=x":                  `"session"`,
		"zk://h/?session=1us":                "session 1µs",
		"zk://h/?session=10000h":             "session 10000h",
		"zk://h/?acl=me":                     "auth or world",
		"zk://h/?acl=auth":                   "needs a user",
		"zk://h/?ca=/x":                      "tls=1",
		"zk://u:s3cret@h/?tls=1&ca=/nowhere": "/nowhere",
		"zk://h/?tls=1&cert=/nowhere":        "/nowhere",
		"zk://h/?tls=maybe":                  `"tls"`,
		"zk://u%3Av:s3cret@h/":               "colon",
	})
}

// TestNewWithoutServers checks that New needs a server.
func TestNewWithoutServers(t *testing.T) {
	t.Parallel()
	if _, err := New(nil, nil); err == nil {
		t.Error("New without servers: nil")
	}
}

// TestParameters checks which field each part of a URL sets.
func TestParameters(t *testing.T) {
	t.Parallel()
	// As the core does, with the client's TTL.
	parse := func(u *backend.URL) (*target, error) {
		u.TTL = time.Minute
		return parseTarget(u)
	}
	plain := raw.Target(t, parse, "zookeeper://h")
	if want := (Options{TTL: time.Minute, ACL: aclWorld}); plain.settings.Options != want {
		t.Errorf("without parameters: %+v, want %+v", plain.settings.Options, want)
	}
	got := raw.Target(t, parse,
		"zk://u:p%40@a,[::1]:1/a%20b?session=5s&acl=world&tls=1&server-name=n")
	want := Options{
		Chroot: "/a b", User: "u", Password: "p@", Session: 5 * time.Second, TTL: time.Minute,
		ACL: aclWorld, TLS: got.settings.TLS,
	}
	if got.settings.Options != want {
		t.Errorf("%+v, want %+v", got.settings.Options, want)
	}
	if !slices.Equal(got.servers, []string{"a:2181", "[::1]:1"}) {
		t.Errorf("the servers are %q", got.servers)
	}
	if got.settings.TLS == nil || got.settings.TLS.ServerName != "n" {
		t.Errorf("the configuration of TLS is %+v", got.settings.TLS)
	}
}
