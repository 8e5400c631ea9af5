package redisbackend

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
		"redis://":                              "no host",
		"redis:///1":                            "no host",
		"redis://h1,h2":                         "one host",
		"rediss://h1,h2":                        "rediss+cluster",
		"redis://h/x":                           "number of a database",
		"redis://h/-1":                          "number of a database",
		"redis://h/1/2":                         "number of a database",
		"redis://h?timeout=0s":                  `"timeout"`,
		"redis://h?wait=0":                      `"wait"`,
		"redis://h?socket=/s":                   "no host",
		"redis:///?socket=s":                    "absolute path",
		"redis://h?ca=/c":                       "rediss://",
		"redis://h?sentinel-password=s3cret":    "sentinel-password",
		"rediss://:s3cret@h?ca=/does/not/exist": "/does/not/exist",
		"rediss://h?cert=/does/not/exist":       "/does/not/exist",
		"redis+cluster://":                      "no host",
		"redis+cluster://h/1":                   "no numbered databases",
		"redis+cluster://h?socket=/s":           "socket",
		"redis+cluster://h?sentinel-user=u":     "sentinel-user",
		"redis+cluster://h?ca=/c":               "rediss+cluster",
		"redis+sentinel://h":                    "mymaster",
		"redis+sentinel://h/":                   "mymaster",
		"redis+sentinel:///m":                   "mymaster",
		"redis+sentinel://h/m/x":                "number of a database",
		"redis+sentinel://:s3cret@h/m/1/2":      "number of a database",
		"rediss+sentinel://h/m?ca=/not/a/file":  "/not/a/file",
		"rediss+cluster://h?cert=/c&key=":       "go together",
	})
}

// TestParameters checks which field each part of a URL sets.
func TestParameters(t *testing.T) {
	t.Parallel()
	defaults := Options{Timeout: DefaultTimeout}
	for url, want := range map[string]*target{
		"rediss://u:p%40@[::1]/3?timeout=2s&wait=1&server-name=n": {
			Options: Options{Timeout: 2 * time.Second, Wait: 1},
			network: "tcp", addrs: []string{"[::1]:6379"},
			user: "u", password: "p@", database: 3,
			tls: &tlsfile.Files{ServerName: "n"},
		},
		"redis:///1?socket=/s": {
			Options: defaults, network: "unix", addrs: []string{"/s"}, database: 1,
		},
		"redis+cluster://a,b:1": {
			Options: defaults, shape: cluster, network: "tcp", addrs: []string{"a:6379", "b:1"},
		},
		"rediss+sentinel://u:p@a,b:1,[::1]/m%20m/3?sentinel-user=su&sentinel-password=sp": {
			Options: defaults, shape: sentinel,
			network: "tcp", addrs: []string{"a:26379", "b:1", "[::1]:26379"},
			user: "u", password: "p", database: 3,
			master: "m m", sentinelUser: "su", sentinelPassword: "sp",
			tls: &tlsfile.Files{},
		},
	} {
		if got := raw.Target(t, parseTarget, url); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", url, got, want)
		}
	}
}
