package testenv

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, stops the servers that they shared, fails if they have left goroutines behind,
// and exits. A package that uses this one calls it from its TestMain.
func Main(m *testing.M) {
	code := m.Run()
	stopShared()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
		code = 1
	}
	os.Exit(code)
}
