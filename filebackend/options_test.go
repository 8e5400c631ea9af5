//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"testing"

	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestBadURLs checks that a mistake in a URL is reported.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	raw.BadURLs(t, map[string]string{
		"file:locks":                  `"locks" is relative; write`,
		"file:./locks":                "as in file:///absolute/path",
		"file:locks?block=1":          "is relative",
		"file://host/x":               "takes no host",
		"file://locks/x":              "as in file:///absolute/path",
		"file://u:s3cret@/x":          "takes no user",
		"file://:s3cret@/x":           "takes no user",
		"file:/x?allow-network=maybe": `"allow-network"`,
		"file:/x?inherit=maybe":       `"inherit"`,
		"file:/x?endless=2":           `"endless"`,
		"file:/x?block=":              `"block"`,
	})
}

// TestParameters checks which field each part of a URL sets.
func TestParameters(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		url  string
		want Options
	}{
		{"file:/x", Options{}},
		{"file:/x?allow-network=1", Options{AllowNetwork: true}},
		{"file:/x?inherit=1", Options{Inherit: true}},
		{"file:/x?endless=1", Options{Endless: true}},
		{"file:///y/../x?block=true", Options{Block: true}},
		{"file:/x?block=0", Options{}},
	} {
		want := target{tt.want, "/x"}
		if got := raw.Target(t, parseTarget, tt.url); *got != want {
			t.Errorf("%s: %+v, want %+v", tt.url, *got, want)
		}
	}
}
