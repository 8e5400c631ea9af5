package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// document contains the table of guards between two comments.
const document = "docs/reliability.md"

const (
	tableBegin = "<!-- guards: go run ./internal/mutants -table -->\n"
	tableEnd   = "<!-- end of guards -->\n"
)

// table returns the table of guards in Markdown.
func table() string {
	var b strings.Builder
	b.WriteString("| guard | file | without it | detected by |\n|---|---|---|---|\n")
	for _, m := range mutants {
		fmt.Fprintf(&b, "| %s | %s | %s | `%s` |\n",
			m.guard, m.file, m.without, strings.TrimPrefix(m.test, "TestConformance/"))
	}
	return b.String()
}

// withTable returns text with an updated table of guards.
func withTable(text []byte) ([]byte, error) {
	before, rest, begun := bytes.Cut(text, []byte(tableBegin))
	_, after, ended := bytes.Cut(rest, []byte(tableEnd))
	if !begun || !ended {
		return nil, fmt.Errorf("%s has no table of guards", document)
	}
	return bytes.Join([][]byte{before, []byte(tableBegin + table() + tableEnd), after}, nil), nil
}

// writeTable updates the table of guards in the document.
func writeTable() error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	if text, err = withTable(text); err != nil {
		return err
	}
	return os.WriteFile(document, text, 0o644)
}
