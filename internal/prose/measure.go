package main

import (
	"cmp"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// figure is what was measured in one package, or in all.
type figure struct {
	name           string
	code, comments int // lines
	words          int // in comments
	counts         [len(rules)]int
	sentences      int // of more than maxSentence words
	long           int // lines beyond maxColumns
	findings       []finding
}

// Figures with these names are about the strings in all code.
const (
	namesFigure = "names of tests"
	textsFigure = "texts"
)

// share is the ratio of lines of comments to lines of code.
func (f *figure) share() float64 { return float64(f.comments) / float64(max(f.code, 1)) }

// rate is how often a rule is broken in 1,000 words.
func (f *figure) rate(rule int) float64 {
	return 1000 * float64(f.counts[rule]) / float64(max(f.words, 1))
}

// add adds what was measured in the file of the path.
func (f *figure) add(other *figure, path string) {
	f.code += other.code
	f.comments += other.comments
	f.words += other.words
	f.sentences += other.sentences
	f.long += other.long
	for i, n := range other.counts {
		f.counts[i] += n
	}
	for _, found := range other.findings {
		found.path = path
		f.findings = append(f.findings, found)
	}
}

// read measures one paragraph.
func (f *figure) read(paragraph []word) {
	f.readWords(paragraph)
	long := longSentences(paragraph)
	f.sentences += len(long)
	f.findings = append(f.findings, long...)
}

// readWords measures words that need not be sentences.
func (f *figure) readWords(words []word) {
	f.words += len(words)
	counts, findings := broken(words)
	for i, n := range counts {
		f.counts[i] += n
	}
	f.findings = append(f.findings, findings...)
}

// readLine measures the length of a line.
func (f *figure) readLine(text string, line int) {
	text = strings.ReplaceAll(strings.TrimRight(text, "\n"), "\t", "    ")
	if n := utf8.RuneCountInString(text); n > maxColumns {
		f.long++
		f.findings = append(f.findings, finding{line: line, rule: "long line", text: text})
	}
}

// skipped are the folders without text of this project's authors.
var skipped = []string{"testdata", ".git", ".claude"}

// files calls fn with each file of the project below the given folders.
func files(roots []string, fn func(path, src string) error) error {
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && slices.Contains(skipped, d.Name()):
				return filepath.SkipDir
			case d.IsDir() || languageOf(path) == nil:
				return nil
			}
			src, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return fn(filepath.ToSlash(path), string(src))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// measure returns a figure for each folder below the given ones, and the sum. Tests have a figure
// of their own, and so have each document, all names of tests, and all texts of programs. The sum
// has no names and no texts.
func measure(roots ...string) ([]*figure, error) {
	packages := make(map[string]*figure)
	add := func(name, path string, measured *figure) {
		if packages[name] == nil {
			packages[name] = &figure{name: name}
		}
		packages[name].add(measured, path)
	}
	err := files(roots, func(path, src string) error {
		add(nameOf(path), path, languageOf(path)(src))
		if strings.HasSuffix(path, ".go") {
			names, texts := measureStrings(src, strings.HasSuffix(path, "_test.go"))
			add(namesFigure, path, names)
			add(textsFigure, path, texts)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	figures := slices.SortedFunc(maps.Values(packages), func(a, b *figure) int {
		return cmp.Compare(a.name, b.name)
	})
	total := &figure{name: "all"}
	for _, f := range figures {
		slices.SortStableFunc(f.findings, func(a, b finding) int {
			return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.line, b.line))
		})
		if f.name != namesFigure && f.name != textsFigure {
			total.add(f, "")
		}
	}
	return append(figures, total), nil
}

// nameOf returns the name of the figure to which a file counts.
func nameOf(path string) string {
	switch dir := filepath.ToSlash(filepath.Dir(path)); {
	case strings.HasSuffix(path, ".md"):
		return path
	case strings.HasSuffix(path, "_test.go"):
		return dir + " test"
	default:
		return dir
	}
}
