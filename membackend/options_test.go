package membackend

import (
	"testing"

	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestBadURLs checks that a URL with a host or a user is refused.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	const want = "no host and no user"
	raw.BadURLs(t, map[string]string{
		"mem://host": want, "mem://host:1/name": want,
		"mem://joe@/name": want, "mem://:s3cret@/name": want, "mem://joe:s3cret@host/name": want,
		"mem:name?timeout=1s": `"timeout"`,
	})
}

// TestParameters checks that the path of a URL is the name of the space.
func TestParameters(t *testing.T) {
	t.Parallel()
	for url, space := range map[string]string{
		"mem:": "", "mem:name": "name", "mem:/a%20b/c": "/a b/c",
	} {
		want := target{Options{Space: space}}
		if got := raw.Target(t, parseTarget, url); *got != want {
			t.Errorf("%s: %+v, want %+v", url, *got, want)
		}
	}
}
