package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
