package main

import (
	"strings"
	"testing"
)

func TestMeasureGo(t *testing.T) {
	t.Parallel()
	f := measureGo("package p\n\n// The driver asks and tells.\nvar x = `a\nb` // that of\n\n" +
		"//go:build linux\nvar y = \"" + strings.Repeat("z", maxColumns) + "\"\n")
	want := figure{code: 4, comments: 2, words: 7, long: 1, counts: [5]int{0, 0, 2, 0, 1}}
	if *f != want {
		t.Errorf("measured %+v, want %+v", *f, want)
	}
}

func TestMeasureDocument(t *testing.T) {
	t.Parallel()
	f := measureDocument("# Title\n\nThe core knows.\n\n```go\n// asks\n```\n" +
		"    told\n| that of |\n")
	want := figure{words: 9, counts: [5]int{0, 0, 1, 0, 1}}
	if *f != want {
		t.Errorf("measured %+v, want %+v", *f, want)
	}
}

func TestMeasureLines(t *testing.T) {
	t.Parallel()
	f := measureLines("-- Looks twice.\nSELECT 1;\n\n", "--")
	want := figure{code: 1, comments: 1, words: 2, counts: [5]int{0, 0, 1, 0, 0}}
	if *f != want {
		t.Errorf("measured %+v, want %+v", *f, want)
	}
}

func TestRulesFindTheirWords(t *testing.T) {
	t.Parallel()
	for _, r := range rules {
		if r.name != "archaic" && !r.words.MatchString(strings.ToUpper(r.name)) {
			t.Errorf("the rule %q does not find its own word", r.name)
		}
	}
}

// The repository keeps its own rules. A comment that breaks one needs other words: see
// CONTRIBUTING.md.
func TestRepository(t *testing.T) {
	t.Parallel()
	figures, err := measure("../..")
	if err != nil {
		t.Fatal(err)
	}
	all := figures[len(figures)-1]
	for i, r := range rules {
		if got := all.rate(i); got > r.most {
			t.Errorf("%q: %.2f in 1,000 words, at most %.1f: go run ./internal/prose says where",
				r.name, got, r.most)
		}
	}
	for _, f := range figures[:len(figures)-1] {
		if f.long > 0 {
			t.Errorf("%s: %d lines beyond %d columns", f.name, f.long, maxColumns)
		}
	}
}
