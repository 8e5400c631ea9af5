package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// check compares what was measured, without the findings.
func check(t *testing.T, got *figure, want figure) {
	t.Helper()
	g := *got
	g.findings = nil
	if !reflect.DeepEqual(g, want) {
		t.Errorf("measured %+v, want %+v", g, want)
	}
}

// A comment after code counts, and so does a phrase over the end of a line. Strings of several
// lines are code, and directives are no comments.
func TestMeasureGo(t *testing.T) {
	t.Parallel()
	f := measureGo("package p\n\n// The driver asks and " + `tells. It is that
// of the core.
var x = "a" // that of
//go:build linux
` + "var y = `a\nb" + strings.Repeat("z", maxColumns) + "`\n")
	want := figure{code: 4, comments: 3, words: 13, long: 1, counts: [len(rules)]int{2: 2, 4: 2}}
	check(t, f, want)
}

func TestMeasureDocument(t *testing.T) {
	t.Parallel()
	f := measureDocument("# Title\n\nThe core " + `knows.

    told

` + "```go\n// asks\n```\n" + `| that of |
`)
	check(t, f, figure{words: 9, counts: [len(rules)]int{2: 1, 4: 1}})
}

// Parameters are no sentence, however many words they have.
func TestMeasureLines(t *testing.T) {
	t.Parallel()
	f := measureLines("-- Has parameters.\n-- params   "+strings.Repeat("a ", 20)+
		"\n--          "+strings.Repeat("a ", 20)+"\nSELECT 1;\n\n", "--")
	check(t, f, figure{code: 1, comments: 3, words: 43})
}

// A test, a case and a bug have names, whose words are separated by capitals or hyphens. A string
// of a test between back quotes is no text.
func TestMeasureStrings(t *testing.T) {
	t.Parallel()
	const src = "package p\nfunc TestAskTwice() {}\nfunc askTwice() {}\nvar x = []string{" +
		`"DriverAsks", "asks-twice", "asks", "ask it", ` + "`ask them`}\n"
	for _, isTest := range []bool{true, false} {
		names, texts := measureStrings(src, isTest)
		check(t, names, figure{words: 7, counts: [len(rules)]int{2: 3}})
		want := figure{words: 4, counts: [len(rules)]int{2: 2}}
		if isTest {
			want = figure{words: 2, counts: [len(rules)]int{2: 1}}
		}
		check(t, texts, want)
	}
}

// A sentence ends with its period or its paragraph. An item of a list is a paragraph.
func TestLongSentences(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", maxSentence)
	for text, want := range map[string]int{
		long:                              0,
		long + "end":                      1,
		long + "end. " + long + "end.":    2,
		"Short. " + long + "\n\nThe next": 0,
		"- " + long + "\n- " + long:       0,
		"1. " + long + "\n   end":         1,
		"# " + long + "\nend":             1,
		"(Short.) " + long:                0,
	} {
		if f := measureDocument(text); f.sentences != want {
			t.Errorf("%q: %d long sentences, want %d", text, f.sentences, want)
		}
	}
}

func TestRulesFindTheirWords(t *testing.T) {
	t.Parallel()
	for i, r := range rules {
		own := map[string]string{"archaic": "lest", "terms": "handover"}[r.name]
		if !matchers[i].MatchString(strings.ToUpper(cmp.Or(own, r.name))) {
			t.Errorf("the rule %q does not find its own word", r.name)
		}
	}
}

// write makes a tree of files, and returns its folder.
func write(t *testing.T, tree map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range tree {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// printed returns what run prints, without the folder.
func printed(t *testing.T, dir string, where, longest bool) string {
	t.Helper()
	var out strings.Builder
	if err := run(&out, []string{dir}, where, longest); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(out.String(), filepath.ToSlash(dir)+"/", "")
}

// The output of -where has the file and the line of each finding.
func TestWhere(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"p/a.go": "package p\n\n// It is" + ` told.
var x = "a" // by those
var y = "ask it" // what it
`,
		"b.md": strings.Repeat("a ", maxSentence) + "b.\n" + strings.Repeat("a", maxColumns+1),
		"p/testdata/c.go": "package p\n" + `// told
`,
	})
	want := "b.md:1: 26 words: a a …\nb.md:2: long line: " + strings.Repeat("a", maxColumns+1) + `
p/a.go:3: told: told
p/a.go:5: told: ask
`
	if got := printed(t, dir, true, false); got != want {
		t.Errorf("printed\n%swant\n%s", got, want)
	}
}

// The output of -longest begins with the longest function and the longest file.
func TestLongest(t *testing.T) {
	t.Parallel()
	functions, lines := strings.Repeat("func short() {}\n", topLength), ""
	for i := range topLength - 1 {
		lines += fmt.Sprintf("     1  a.go:%d  short\n", 2+i)
	}
	dir := write(t, map[string]string{
		"a.go":      "package p\n" + functions,
		"b.go":      "package p\n\n// long is long.\nfunc long() {\n}\n",
		"a_test.go": "package p\n\nfunc test() {\n\n}\n",
	})
	want := "The longest functions:\n     2  b.go:4  long\n" + lines +
		"The longest files:\n    11  a.go  \n     5  b.go  \n" +
		"The longest functions of tests:\n     3  a_test.go:3  test\n" +
		"The longest files of tests:\n     5  a_test.go  \n"
	if got := printed(t, dir, false, true); got != want {
		t.Errorf("printed\n%swant\n%s", got, want)
	}
}

// measureOnce returns the figures of the repository.
var measureOnce = sync.OnceValues(func() ([]*figure, error) { return measure("../..") })

// repository returns the figures of the repository by their names.
func repository(t *testing.T) map[string]*figure {
	t.Helper()
	figures, err := measureOnce()
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]*figure)
	for _, f := range figures {
		byName[f.name] = f
	}
	return byName
}

const hint = "go run ./internal/prose -where prints the places"

// The repository keeps its own rules, in comments, documents and texts. A comment that breaks one
// needs other words: see CONTRIBUTING.md. No test, case or bug has a word of the rules in its name.
func TestRepository(t *testing.T) {
	t.Parallel()
	figures := repository(t)
	for i, r := range rules {
		for _, name := range []string{
			"all", textsFigure, "../..", "../../internal/engine", "../../backend",
		} {
			if got := figures[name].rate(i); got > r.max {
				t.Errorf("%s: %q: %.2f in 1,000 words, at most %.1f: %s",
					name, r.name, got, r.max, hint)
			}
		}
		if n := figures[namesFigure].counts[i]; n > 0 {
			t.Errorf("%d %s have words of the rule %q: %s", n, namesFigure, r.name, hint)
		}
	}
	all := figures["all"]
	if got := 1000 * float64(all.sentences) / float64(all.words); got > maxSentences {
		t.Errorf("%.2f sentences in 1,000 words have more than %d words, want at most %d: %s",
			got, maxSentence, maxSentences, hint)
	}
	for name, f := range figures {
		if f.long > 0 && name != "all" {
			t.Errorf("%s: %d lines beyond %d columns: %s", name, f.long, maxColumns, hint)
		}
	}
}

// Each driver has a line of comments for about three lines of code, the root package for two, and
// the contract of the drivers has more comments than code.
func TestCommentsForCode(t *testing.T) {
	t.Parallel()
	figures := repository(t)
	drivers, err := filepath.Glob("../../*backend")
	if err != nil || len(drivers) == 0 {
		t.Fatalf("no drivers: %v", err)
	}
	shares := map[string]float64{"../..": 0.45, "../../backend": 1}
	for _, driver := range drivers {
		shares[filepath.ToSlash(driver)] = 0.3
	}
	for name, want := range shares {
		if f := figures[name]; f == nil || f.share() < want {
			t.Errorf("%s: comments for code: %+v, want a share of at least %.2f", name, f, want)
		}
	}
}
