// Package testenv gives tests real servers, a network that can be broken, and certificates. Only tests import it.
//
// # Where a server comes from
//
// [Redis] and its like look, in this order, for
//
//  1. a URL in the environment: DLOCK_TEST_REDIS_URL;
//  2. Docker, if it answers within 30 seconds: the image in DLOCK_TEST_IMAGE_REDIS, else the one that
//     scripts/images.sh has built, else the official one, which may be pulled;
//  3. the server's program on PATH or in /usr/sbin, started as a child process.
//
// A test that finds none fails and says what to do. With DLOCK_TEST_ALLOW_SKIP=1 it is skipped.
//
// [EtcdEnsemble] and its like start three of them that form a cluster, or take the one that DLOCK_TEST_ETCD_3_URL names.
//
// # Announcing
//
// Every test names the server it ran against in its log, in the form of package announce. The report prints one row per
// server; the cases of a row are those of the top-level tests named TestConformance… whose log names the server. So
// there is one such test per server: TestConformance, TestConformanceValkey, TestConformanceEnsemble.
package testenv

import (
	"context"
	"os"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/internal/announce"
)

// TB is what this package needs of a test. It is the method set of conformance.TB; a *testing.T has it.
type TB interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Failed() bool
	Cleanup(f func())
	Context() context.Context
	TempDir() string
}

var announced sync.Map // top-level test + backend → struct{}

// Announce says in the log of tb which server a backend is tested with: source is "url", "container" or "process" and
// version starts with the product's name. A backend without a server calls it itself, with "process". Only the first
// announcement in a top-level test is written. Announce may be called by many goroutines.
func Announce(tb TB, backend, source, version string) {
	tb.Helper()
	top, _, _ := strings.Cut(tb.Name(), "/")
	if _, again := announced.LoadOrStore(top+" "+backend, struct{}{}); !again {
		tb.Logf("%s", announce.Server{Backend: backend, Source: source, Version: version})
	}
}

// missing ends a test that has no server.
func missing(tb TB, err error) {
	tb.Helper()
	if os.Getenv("DLOCK_TEST_ALLOW_SKIP") == "1" {
		tb.Skipf("%v", err)
	}
	tb.Fatalf("%v", err)
}
