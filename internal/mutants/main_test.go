package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/conformance/broken"
)

// TestGuardsAreThere checks that the source of each guard occurs once in its file. A change of a
// guard must change its mutant as well.
func TestGuardsAreThere(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		source, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range m.edits {
			if n := strings.Count(string(source), e.old); n != 1 {
				t.Errorf("%s: %s has the guard %d times, not once: %q", m.guard, m.file, n, e.old)
			}
		}
	}
}

// TestTestsOfGuardsAreThere checks that the test of each guard exists. Its mutant would not run
// otherwise. The name of a subtest must be in the source of its package or of the suite. The last
// word may have a place of its own there.
func TestTestsOfGuardsAreThere(t *testing.T) {
	t.Parallel()
	suite := sources(t, "conformance/*.go")
	for _, m := range mutants {
		source := sources(t, m.pkg+"/*_test.go")
		test, parts, _ := strings.Cut(m.test, "/")
		if !strings.Contains(source, "func "+test+"(") {
			t.Errorf("%s: %s has no %s", m.guard, m.pkg, test)
		}
		for part := range strings.SplitSeq(parts, "/") {
			name := strings.ReplaceAll(part, "_", " ")
			i := max(strings.LastIndex(name, " "), 0)
			first, last := name[:i], strings.TrimSpace(name[i:])
			if !strings.Contains(source+suite, name) &&
				(!strings.Contains(source, first) || !strings.Contains(source, last)) {
				t.Errorf("%s: %s has no %s", m.guard, test, part)
			}
		}
	}
}

// TestUnbrokenCasesKill checks that each case that no broken driver can fail is the test of a
// mutant. Otherwise nothing shows that the case can fail.
func TestUnbrokenCasesKill(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	for _, m := range mutants {
		tests[m.test[strings.LastIndexByte(m.test, '/')+1:]] = true
	}
	for name, reason := range broken.Unbroken() {
		if !tests[name] {
			t.Errorf("no mutant has the case %s as its test, and no broken driver fails it (%s): "+
				"add a row to internal/mutants/core.go", name, reason)
		}
	}
}

// sources returns the texts of the files that match a pattern in the module.
func sources(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", pattern))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

func TestTableOfGuards(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", document))
	if err != nil {
		t.Fatal(err)
	}
	want, err := withTable(text)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, want) {
		t.Errorf("%s is out of date: go run ./internal/mutants -table", document)
	}
}
