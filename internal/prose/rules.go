package main

import (
	"fmt"
	"regexp"
	"strings"
)

// rule is a kind of words that a comment does without.
type rule struct {
	name  string
	words string  // alternatives, with \s for a space
	max   float64 // per 1,000 words of comments: the rate in net/http of Go 1.26
}

// rules are the first five rules of the style guide, and its terms.
var rules = [...]rule{
	{"who", `who|whoever`, 0.1},
	{"somebody", `somebody|nobody|anybody|others`, 0.2},
	{"told", `tells?|told|asks?|asked|knows?|knew|says?|said|looks?|looked`, 1.4},
	{"archaic", `lest|anew|beside|beneath|shall|is\shad|all\sthe\ssame|behind\sthe\scaller`, 0},
	{"that of", `that\sof|those\sof|ones?\sthat|those\swhich|that\swhich`, 0.2},
	{"terms", `hand[-\s]?overs?|back-offs?|fail-overs?|time-outs?`, 0},
}

const (
	// maxSentence is the number of words in a sentence that is easy to read.
	maxSentence = 25
	// maxSentences is how many sentences in 1,000 words may be longer: log/slog of Go 1.26 has 3.7,
	// and net/http has 4.8.
	maxSentences = 3
	// maxColumns is the length of a line.
	maxColumns = 100
)

// matchers find the words of the rules, in lower or upper case.
var matchers = func() (ms [len(rules)]*regexp.Regexp) {
	for i, r := range rules {
		ms[i] = regexp.MustCompile(`(?i)\b(` + r.words + `)\b`)
	}
	return ms
}()

// finding is one place where a rule is broken.
type finding struct {
	path string
	line int
	rule string
	text string
}

// String returns the finding as editors expect it.
func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.path, f.line, f.rule, f.text)
}

// word is a word of a text, and its line.
type word struct {
	text string
	line int
}

// wordsOf returns the words of one line.
func wordsOf(text string, line int) (ws []word) {
	for w := range strings.FieldsSeq(text) {
		ws = append(ws, word{w, line})
	}
	return ws
}

// broken returns the rules that words break, with a finding for each of them. A phrase may go over
// the end of a line.
func broken(words []word) (counts [len(rules)]int, findings []finding) {
	var text strings.Builder
	var ends []int // of the words in text
	for _, w := range words {
		text.WriteString(w.text)
		ends = append(ends, text.Len())
		text.WriteByte(' ')
	}
	for i, r := range rules {
		word := 0
		for _, at := range matchers[i].FindAllStringIndex(text.String(), -1) {
			for ends[word] <= at[0] {
				word++
			}
			counts[i]++
			findings = append(findings, finding{
				line: words[word].line, rule: r.name, text: text.String()[at[0]:at[1]],
			})
		}
	}
	return counts, findings
}

// longSentences returns a finding for each sentence of a paragraph that is too long.
func longSentences(paragraph []word) (findings []finding) {
	first := 0
	for i, w := range paragraph {
		if !strings.HasSuffix(strings.TrimRight(w.text, `)"'”*_]`), ".") && i < len(paragraph)-1 {
			continue
		}
		if n := i + 1 - first; n > maxSentence {
			findings = append(findings, finding{
				line: paragraph[first].line, rule: fmt.Sprintf("%d words", n),
				text: paragraph[first].text + " " + paragraph[first+1].text + " …",
			})
		}
		first = i + 1
	}
	return findings
}
