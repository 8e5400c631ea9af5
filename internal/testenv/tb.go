package testenv

import (
	"context"
	"os"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/internal/announce"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// TB is the part of a test's methods that this package needs. It is the method set of
// conformance.TB; a *testing.T has it.
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

// Announce writes the server that a test of a backend uses to the log of tb. source is "url",
// "container" or "process". version begins with the product's name. A backend without a server
// calls Announce itself, with "process". Announce writes only the first announcement in a top-level
// test. It may be called from several goroutines.
func Announce(tb TB, backend, source, version string) {
	tb.Helper()
	top, _, _ := strings.Cut(tb.Name(), "/")
	if _, again := announced.LoadOrStore(top+" "+backend, struct{}{}); !again {
		tb.Logf("%s", announce.Server{Backend: backend, Source: source, Version: version})
	}
}

// announceServer announces a server of this package.
func announceServer(tb TB, id server.Identity) {
	tb.Helper()
	if alone, ok := tb.(aloneTB); ok {
		id.Name += alone.suffix
	}
	Announce(tb, id.Name, id.Source, id.Version)
}

// missing fails or skips a test that has no server.
func missing(tb TB, err error) {
	tb.Helper()
	if os.Getenv("DLOCK_TEST_ALLOW_SKIP") == "1" {
		tb.Skipf("%v", err)
	}
	tb.Fatalf("%v", err)
}
