package main

import (
	"go/scanner"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

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

// scan calls fn with each token of a file of Go.
func scan(src string, fn func(line int, tok token.Token, text string)) {
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, []byte(src), nil, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return
		}
		fn(file.Line(pos), tok, text)
	}
}

// measureGo measures the comments of a file of Go.
func measureGo(src string) *figure {
	c := newComments(src)
	code := make(map[int]bool)
	scan(src, func(line int, tok token.Token, text string) {
		switch {
		case tok == token.COMMENT:
			for i, part := range strings.Split(text, "\n") {
				c.read(part, line+i, code[line])
			}
		case tok != token.SEMICOLON || text != "\n":
			for i := range strings.Count(text, "\n") + 1 {
				code[line+i] = true
			}
		}
	})
	c.code = len(code)
	return c.done()
}

// measureLines measures a file in which comments begin with mark and end with the line. Lines with
// a gap are a table of parameters, and no sentences.
func measureLines(src, mark string) *figure {
	c := newComments(src)
	n := 0
	for line := range strings.Lines(src) {
		n++
		switch line = strings.TrimSpace(line); {
		case line == "":
		case strings.HasPrefix(line, mark):
			line = strings.TrimPrefix(line, mark)
			c.read(line, n, strings.Contains(strings.TrimPrefix(line, " "), "  "))
		default:
			c.code++
		}
	}
	return c.done()
}

// comments measures the comments of a file, which follow each other in lines.
type comments struct {
	figure
	paragraph []word
	last      int // line
}

// newComments also measures the lengths of all lines.
func newComments(src string) *comments {
	c := new(comments)
	n := 0
	for line := range strings.Lines(src) {
		n++
		c.readLine(line, n)
	}
	return c
}

// item is the beginning of an item of a list.
var item = regexp.MustCompile(`^\s*([-*]|[0-9]+\.)\s`)

// read measures one line of a comment. Lines without code between them are a paragraph, which ends
// with an empty line or an item of a list. Lines that begin with several blanks are no sentences. A
// line that stands alone is a paragraph.
func (c *comments) read(text string, line int, alone bool) {
	if strings.HasPrefix(text, "//go:") || strings.HasPrefix(text, "//nolint") {
		return
	}
	c.comments++
	if alone || line != c.last+1 {
		c.end()
	}
	c.last = line
	text = strings.TrimSuffix(strings.TrimLeft(text, "/*"), "*/")
	switch {
	case strings.TrimSpace(text) == "":
		c.end()
	case item.MatchString(text):
		c.end()
		c.paragraph = wordsOf(item.ReplaceAllString(text, ""), line)
	case len(c.paragraph) == 0 && (strings.HasPrefix(text, "\t") || strings.HasPrefix(text, "  ")):
		c.readWords(wordsOf(text, line))
	default:
		c.paragraph = append(c.paragraph, wordsOf(text, line)...)
	}
	if alone {
		c.end()
	}
}

// end measures the paragraph.
func (c *comments) end() {
	c.figure.read(c.paragraph)
	c.paragraph = nil
}

func (c *comments) done() *figure {
	c.end()
	return &c.figure
}

// measureDocument measures a document. Blocks of code and tables are no sentences, and have long
// lines.
func measureDocument(src string) *figure {
	f := new(figure)
	var paragraph []word
	end := func() {
		f.read(paragraph)
		paragraph = nil
	}
	isCode := false
	n := 0
	for line := range strings.Lines(src) {
		n++
		switch {
		case strings.HasPrefix(line, "```"):
			isCode = !isCode
			end()
		case isCode || len(paragraph) == 0 && strings.HasPrefix(line, "    "):
		case strings.HasPrefix(line, "|"):
			end()
			f.readWords(wordsOf(line, n))
		default:
			f.readLine(line, n)
			isItem := item.MatchString(line)
			if isItem || strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
				end()
			}
			paragraph = append(paragraph, wordsOf(item.ReplaceAllString(line, ""), n)...)
			if strings.HasPrefix(line, "#") {
				end()
			}
		}
	}
	end()
	return f
}

var (
	// testFunc is the name of a function that go test calls.
	testFunc = regexp.MustCompile(`^(Test|Benchmark|Example|Fuzz)[A-Z_]`)
	// camelName and kebabName are names in a string: of cases, tests and bugs.
	camelName = regexp.MustCompile(`^[A-Z][a-z0-9]+([A-Z][a-z0-9]*)+$`)
	kebabName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)
	hump      = regexp.MustCompile(`([a-z0-9])([A-Z])`)
)

// measureStrings measures the names of tests, cases and bugs in a file of Go, and its texts: the
// strings with several words. In tests, a string between back quotes is data.
func measureStrings(src string, isTest bool) (names, texts *figure) {
	names, texts = new(figure), new(figure)
	addName := func(name string, line int) {
		name = hump.ReplaceAllString(strings.ReplaceAll(name, "-", " "), "$1 $2")
		names.readWords(wordsOf(name, line))
	}
	isFunc := false
	scan(src, func(line int, tok token.Token, text string) {
		switch {
		case tok == token.IDENT && isFunc && testFunc.MatchString(text):
			addName(text, line)
		case tok == token.STRING && (strings.HasPrefix(text, `"`) || !isTest):
			s, err := strconv.Unquote(text)
			switch {
			case err != nil:
			case camelName.MatchString(s) || kebabName.MatchString(s):
				addName(s, line)
			case strings.Contains(s, " "):
				texts.readWords(wordsOf(s, line))
			}
		}
		isFunc = tok == token.FUNC
	})
	return names, texts
}
