package etcdbackend

import (
	"reflect"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend/tlsfile"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestBadURLs checks that a mistake in a URL is reported before the driver connects.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	raw.BadURLs(t, map[string]string{
		"etcd:":                      "no host",
		"etcd://user@h":              "go together",
		"etcd://:s3cret@h":           "go together",
		"etcd://h?ca=x":              "etcds://",
		"etcds://h?ca=/nowhere":      "/nowhere",
		"etcds://h?cert=/nowhere":    "/nowhere",
		"etcds://u:s3cret@h?ca=none": "open none",
		"etcd://h?timeout=0s":        `"timeout"`,
		"etcd://h/a/lock/b":          "among the locks",
	})
}

// TestParameters checks which field each part of a URL sets.
func TestParameters(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]*target{
		"etcd://h": {
			Options:   Options{Root: DefaultRoot, Timeout: DefaultTimeout},
			endpoints: []string{"http://h:2379"},
		},
		"etcds://u:p%40@a,[::1]:1/a%20b?timeout=2s&server-name=n": {
			Options:   Options{Root: "/a b", Timeout: 2 * time.Second},
			endpoints: []string{"https://a:2379", "https://[::1]:1"},
			user:      "u", password: "p@",
			tls: &tlsfile.Files{ServerName: "n"},
		},
	} {
		if got := raw.Target(t, parseTarget, url); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", url, got, want)
		}
	}
}
