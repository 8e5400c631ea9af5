package dlock_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// driverFiles are the files that name each driver, see CONTRIBUTING.md. A driver without a server
// is missing in some of them. A pattern stands for one of its files.
var driverFiles = []struct {
	file       string
	serverOnly bool
}{
	{"cmd/dlock/main.go", false},
	{"command/*.go", false},
	{"examples/stock/main.go", false},
	{"internal/mutants/list.go", false},
	{"internal/testenv/campaign/*.go", true},
	{"bench/peers/peers.go", true},
	{"README.md", false},
}

// serverless are the drivers without a server.
var serverless = map[string]bool{"filebackend": true, "membackend": true}

// TestEveryDriverIsNamed checks that a driver is not forgotten where each of them has to be named.
func TestEveryDriverIsNamed(t *testing.T) {
	t.Parallel()
	drivers := glob(t, "?*backend")
	if len(drivers) < 7 {
		t.Fatalf("found the drivers %q", drivers)
	}
	for _, f := range driverFiles {
		text := readAll(t, f.file)
		for _, driver := range drivers {
			name := driver
			if f.file == "internal/mutants/list.go" {
				name = mutantsOf(driver)
			}
			if !strings.Contains(text, name) && (!f.serverOnly || !serverless[driver]) {
				t.Errorf("%s does not name %s: see \"Writing a new backend\" in CONTRIBUTING.md",
					f.file, name)
			}
		}
	}
}

// mutantsOf returns the variable with the guards of a driver.
func mutantsOf(driver string) string { return strings.TrimSuffix(driver, "backend") + "Mutants" }

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEveryOptionHasATest checks that tests use each option of a lock.
func TestEveryOptionHasATest(t *testing.T) {
	t.Parallel()
	tests := readAll(t, "*_test.go")
	options := regexp.MustCompile(`(?m)^func (With\w+)\(`).FindAllStringSubmatch(
		readFile(t, "options.go"), -1)
	if len(options) < 10 {
		t.Fatalf("found %d options", len(options))
	}
	for _, option := range options {
		if !strings.Contains(tests, "dlock."+option[1]+"(") {
			t.Errorf("no test uses %s: options_test.go has the tests of options", option[1])
		}
	}
}

// TestEveryParameterHasATest checks that each parameter of a URL is documented, and tested in its
// package.
func TestEveryParameterHasATest(t *testing.T) {
	t.Parallel()
	taken := regexp.MustCompile(`\bu\.Take\w*\("([a-z-]+)"`)
	found := 0
	for _, driver := range append(glob(t, "?*backend"), "backend/tlsfile") {
		for _, match := range taken.FindAllStringSubmatch(readAll(t, driver+"/*.go"), -1) {
			name := match[1]
			found++
			if !strings.Contains(readAll(t, driver+"/*_test.go"), name+"=") {
				t.Errorf("no test in %s has the parameter %s", driver, name)
			}
			if driver == "backend/tlsfile" {
				continue // the page of each driver names them
			}
			if !strings.Contains(readFile(t, driver+"/doc.go"), name) {
				t.Errorf("%s/doc.go does not document the parameter %s", driver, name)
			}
		}
	}
	if found < 15 {
		t.Fatalf("found %d parameters", found)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func readAll(t *testing.T, pattern string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range glob(t, pattern) {
		all.WriteString(readFile(t, name))
	}
	return all.String()
}
