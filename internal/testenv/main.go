package testenv

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// parallel is the number of tests of a package that run at a time, unless -parallel is set. Tests
// mostly wait, so the number does not depend on the number of processors.
const parallel = "8"

// Main runs the tests of a package, stops the servers that the tests shared, and exits. It fails if
// the tests have left goroutines behind. A package that uses this one calls Main from its TestMain.
func Main(m *testing.M) {
	flag.Parse()
	if !isGiven("test.parallel") {
		_ = flag.Set("test.parallel", parallel) // every test has this flag
	}
	code := m.Run()
	stopShared()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
		code = 1
	}
	os.Exit(code)
}

// isGiven reports whether a flag is on the command line.
func isGiven(name string) (given bool) {
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	return given
}
