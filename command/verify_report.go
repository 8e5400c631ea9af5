package command

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// outcome is the result of a case.
type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
)

// finding is the result of one case on one server. With --json it is one object.
type finding struct {
	URL      string   `json:"url"`
	Case     string   `json:"case"`
	Promise  string   `json:"promise"`
	Outcome  outcome  `json:"outcome"`
	Seen     []string `json:"seen"` // failures, or the reason why the case did not run
	Void     []string `json:"void"` // reasons why observations were void and repeated
	Duration int64    `json:"duration_ms"`
}

// report writes findings to standard output as they arrive. It shows the progress on standard error
// if that is a terminal. It is safe for concurrent use.
type report struct {
	out    io.Writer
	screen *os.File // standard output if it is a terminal, else nil
	bar    *os.File // standard error if it is a terminal, else nil
	json   bool

	mu     sync.Mutex
	broken int   // broken promises of all servers
	err    error // the first error of standard output
	tally  tally // of the current server
}

// tally counts the outcomes of the cases of one server.
type tally struct {
	begun   time.Time
	cases   int
	running []string
	count   map[outcome]int
	void    int            // void observations
	reasons map[string]int // of skipped cases
}

func newReport(a *app, json bool) *report {
	r := &report{out: a.stdout, json: json}
	if isTerminal(a.stdout) {
		r.screen = a.stdout
	}
	if isTerminal(a.stderr) {
		r.bar = a.stderr
	}
	return r
}

// begin begins the report of a server.
func (r *report) begin(s *server, cases int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	between := "\n"
	if r.tally.cases == 0 {
		between = ""
	}
	r.tally = tally{
		begun: time.Now(), cases: cases, count: map[outcome]int{}, reasons: map[string]int{},
	}
	if !r.json {
		r.print(fmt.Sprintf("%s%s, below %s\n", between, printable(s.name), printable(s.prefix)))
	}
}

// started records that a case runs.
func (r *report) started(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.running = append(r.tally.running, name)
	r.draw()
}

// add records a finding and writes it.
func (r *report) add(f *finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.tally
	t.running = slices.DeleteFunc(t.running, func(name string) bool { return name == f.Case })
	t.count[f.Outcome]++
	t.void += len(f.Void)
	switch f.Outcome {
	case skipped:
		t.reasons[f.Seen[0]]++
	case failed:
		r.broken++
	}
	if text := r.text(f); text != "" {
		r.print(text)
	}
	r.draw()
}

// end writes a summary of the server.
func (r *report) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.erase()
	if r.json {
		return
	}
	t := &r.tally
	checked := t.count[passed] + t.count[failed]
	parts := []string{fmt.Sprintf("%d of %d promises kept in %s",
		t.count[passed], checked, span(time.Since(t.begun)))}
	if t.void > 0 {
		parts = append(parts, fmt.Sprintf("%d observations were void and repeated, "+
			"as the machine or the server stood still", t.void))
	}
	for _, reason := range slices.Sorted(maps.Keys(t.reasons)) {
		parts = append(parts, fmt.Sprintf("%d not checked: %s", t.reasons[reason], reason))
	}
	r.print(strings.Join(parts, "; ") + "\n")
}

// text returns the text of a finding for standard output. It is empty for a
// skipped case without --json.
func (r *report) text(f *finding) string {
	var b strings.Builder
	switch {
	case r.json:
		if err := writeJSON(&b, f); err != nil {
			return err.Error() // cannot happen with these types
		}
	case f.Outcome == passed:
		line := fmt.Sprintf("ok    %-36s %6s  %s", f.Case, milliseconds(f.Duration), f.Promise)
		b.WriteString(r.fit(line) + "\n")
	case f.Outcome == failed:
		fmt.Fprintf(&b, "FAIL  %-36s %6s  %s\n", f.Case, milliseconds(f.Duration), f.Promise)
		for _, seen := range f.Seen {
			b.WriteString("      seen: " + strings.ReplaceAll(seen, "\n", "\n      ") + "\n")
		}
	}
	return b.String()
}

func milliseconds(n int64) string { return span(time.Duration(n) * time.Millisecond) }

// print writes to standard output. It erases the progress first, which may be on the same screen.
func (r *report) print(text string) {
	r.erase()
	if _, err := io.WriteString(r.out, text); err != nil && r.err == nil {
		r.err = err
	}
}

// draw shows the progress.
func (r *report) draw() {
	if r.bar == nil {
		return
	}
	t := &r.tally
	ended := t.count[passed] + t.count[failed] + t.count[skipped]
	const cells = 20
	full := cells * ended / max(t.cases, 1)
	line := fmt.Sprintf("[%s%s] %d/%d",
		strings.Repeat("=", full), strings.Repeat(" ", cells-full), ended, t.cases)
	if n := t.count[failed]; n > 0 {
		line += fmt.Sprintf(", %d broken", n)
	}
	if len(t.running) > 0 {
		line += ": " + strings.Join(t.running, " ")
	}
	fmt.Fprintf(r.bar, "\r%s\x1b[K", cut(line, width(r.bar)-1))
}

func (r *report) erase() {
	if r.bar != nil {
		fmt.Fprint(r.bar, "\r\x1b[K")
	}
}

// fit cuts a line where it would wrap on the screen.
func (r *report) fit(line string) string {
	if r.screen == nil {
		return line
	}
	return cut(line, width(r.screen))
}

// width returns the columns of a terminal.
func width(screen *os.File) int {
	width, _, _ := size(screen)
	return width
}

// wide has the characters of two columns: of East Asia, and pictures.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1},
		{Lo: 0x2e80, Hi: 0xa4cf, Stride: 1},
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1},
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1},
		{Lo: 0xfe30, Hi: 0xfe6f, Stride: 1},
		{Lo: 0xff00, Hi: 0xff60, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x1f300, Hi: 0x3ffff, Stride: 1}},
}

// cut returns the beginning of line that is at most n columns wide. A character without a width
// counts as one column.
func cut(line string, n int) string {
	for i, r := range line {
		if n--; unicode.Is(wide, r) {
			n--
		}
		if n < 0 {
			return line[:i]
		}
	}
	return line
}
