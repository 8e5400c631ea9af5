package main

import "strings"

// equivalent is a family of mutants that no test can tell from the original.
type equivalent struct {
	file     string // ends the mutant's file; "" is any
	operator string // "" is any
	line     string // the line on which the mutant begins contains it
	why      string
}

// equivalents are known by their text, so the list survives changes elsewhere in a file.
var equivalents = []equivalent{
	{operator: "one more", line: "MaxHold > 0 &&", why: "a duration of one nanosecond is no bound that anything could keep"},
}

// reasonOf returns why no test can notice a mutant, "" if a test should.
func reasonOf(c change) string {
	for _, e := range equivalents {
		if strings.HasSuffix(c.file, e.file) && (e.operator == "" || e.operator == c.operator) &&
			strings.Contains(c.source, e.line) {
			return e.why
		}
	}
	return ""
}
