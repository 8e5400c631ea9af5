package main

import (
	"cmp"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// rule is a kind of words that a comment does without.
type rule struct {
	name  string
	words *regexp.Regexp
	most  float64 // per 1,000 words of comments: the rate in net/http of Go 1.26
}

// rules are R1 to R5.
var rules = []rule{
	{"who", anyOf("who|whoever"), 0.1},
	{"somebody", anyOf("somebody|nobody|anybody|others"), 0.2},
	{"told", anyOf("tells?|told|asks?|asked|knows?|knew|says?|said|looks?|looked"), 1.4},
	{"archaic", anyOf("lest|anew|beside|beneath|shall|is had|all the same|behind the caller"), 0},
	{"that of", anyOf("that of|those of|one that|ones that|those which|that which"), 0.2},
}

// anyOf matches one of the words, which are separated by |, in lower or upper case.
func anyOf(words string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(` + words + `)\b`)
}

// maxColumns is the length of a line.
const maxColumns = 100

// figure is what was measured in one package, or in all.
type figure struct {
	name           string
	code, comments int // lines
	words          int // in comments
	counts         [5]int
	long           int // lines beyond maxColumns
}

// share is the ratio of lines of comments to lines of code.
func (f *figure) share() float64 { return float64(f.comments) / float64(max(f.code, 1)) }

// rate is how often a rule is broken in 1,000 words.
func (f *figure) rate(rule int) float64 {
	return 1000 * float64(f.counts[rule]) / float64(max(f.words, 1))
}

func (f *figure) add(other *figure) {
	f.code += other.code
	f.comments += other.comments
	f.words += other.words
	f.long += other.long
	for i, n := range other.counts {
		f.counts[i] += n
	}
}

// skipped are the folders without text of this project's authors.
var skipped = []string{"testdata", ".git", ".claude"}

// measure returns a figure for each folder below the given ones, and the sum. Tests have a figure
// of their own, and so has each document.
func measure(roots ...string) ([]*figure, error) {
	packages := make(map[string]*figure)
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
			name := nameOf(path)
			if packages[name] == nil {
				packages[name] = &figure{name: name}
			}
			packages[name].add(languageOf(path)(string(src)))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	figures := slices.SortedFunc(maps.Values(packages), func(a, b *figure) int {
		return cmp.Compare(a.name, b.name)
	})
	total := &figure{name: "all"}
	for _, f := range figures {
		total.add(f)
	}
	return append(figures, total), nil
}

// nameOf returns the name of the figure to which a file counts.
func nameOf(path string) string {
	path = filepath.ToSlash(path)
	switch dir := filepath.ToSlash(filepath.Dir(path)); {
	case strings.HasSuffix(path, ".md"):
		return path
	case strings.HasSuffix(path, "_test.go"):
		return dir + " test"
	default:
		return dir
	}
}

// languageOf returns the function that measures files of this name, or nil.
func languageOf(path string) func(string) *figure {
	switch filepath.Ext(path) {
	case ".go":
		return measureGo
	case ".lua", ".sql":
		return func(src string) *figure { return measureLines(src, "--") }
	case ".sh", ".yml":
		return func(src string) *figure { return measureLines(src, "#") }
	case ".md":
		return measureDocument
	}
	if base := filepath.Base(path); base == "Dockerfile" || base == "Makefile" {
		return func(src string) *figure { return measureLines(src, "#") }
	}
	return nil
}

// measureGo measures a file of Go.
func measureGo(src string) *figure {
	f := &figure{long: longLines(src)}
	code := make(map[int]bool)
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, []byte(src), nil, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			f.code = len(code)
			return f
		case tok == token.COMMENT:
			f.readComment(text)
		case tok != token.SEMICOLON || text != "\n":
			for i := range strings.Count(text, "\n") + 1 {
				code[file.Line(pos)+i] = true
			}
		}
	}
}

// measureLines measures a file in which comments begin with mark and end with the line.
func measureLines(src, mark string) *figure {
	f := &figure{long: longLines(src)}
	for line := range strings.Lines(src) {
		switch line = strings.TrimSpace(line); {
		case line == "":
		case strings.HasPrefix(line, mark):
			f.readComment(strings.TrimPrefix(line, mark))
		default:
			f.code++
		}
	}
	return f
}

// measureDocument measures a document. Blocks of code and tables are no sentences, and have long
// lines.
func measureDocument(src string) *figure {
	f := new(figure)
	isCode := false
	for line := range strings.Lines(src) {
		switch {
		case strings.HasPrefix(line, "```"):
			isCode = !isCode
		case isCode || strings.HasPrefix(line, "    "):
		case strings.HasPrefix(line, "|"):
			f.read(line)
		default:
			f.long += longLines(line)
			f.read(line)
		}
	}
	return f
}

// longLines returns how many lines have more than maxColumns, with a tab as four.
func longLines(src string) (n int) {
	for line := range strings.Lines(src) {
		line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    ")
		if utf8.RuneCountInString(line) > maxColumns {
			n++
		}
	}
	return n
}

// readComment measures one comment of code.
func (f *figure) readComment(comment string) {
	if strings.HasPrefix(comment, "//go:") || strings.HasPrefix(comment, "//nolint") {
		return
	}
	f.comments += strings.Count(comment, "\n") + 1
	f.read(strings.TrimLeft(comment, "/*"))
}

// read measures sentences.
func (f *figure) read(text string) {
	f.words += len(strings.Fields(text))
	for i, r := range rules {
		f.counts[i] += len(r.words.FindAllString(text, -1))
	}
}
