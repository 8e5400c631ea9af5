package testenv

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// parallel is how many tests of a package run at a time, unless -parallel says otherwise. They mostly
// wait, so it does not depend on the number of processors.
const parallel = "8"

// Main runs the tests of a package, stops the servers that they shared, fails if they have left goroutines behind,
// and exits. A package that uses this one calls it from its TestMain.
func Main(m *testing.M) {
	flag.Parse()
	if !isGiven("test.parallel") {
		_ = flag.Set("test.parallel", parallel) // it exists in every test
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
