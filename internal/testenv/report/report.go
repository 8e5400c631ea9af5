package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dlock-go/dlock/internal/announce"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

const (
	passed  = "pass"
	failed  = "fail"
	skipped = "skip"
	// inapplicable is the outcome of a skipped case of the conformance suite that has nothing to
	// check on its backend.
	inapplicable = "inapplicable"
)

// inapplicableReason begins the reason of an inapplicable case.
const inapplicableReason = ": does not apply: "

// counts has the number of tests for each outcome, and the number of void observations.
type counts struct{ passed, failed, skipped, inapplicable, void int }

func (c *counts) add(outcome string) {
	switch outcome {
	case passed:
		c.passed++
	case failed:
		c.failed++
	case skipped:
		c.skipped++
	case inapplicable:
		c.inapplicable++
	}
}

func (c *counts) plus(other counts) {
	c.passed += other.passed
	c.failed += other.failed
	c.skipped += other.skipped
	c.inapplicable += other.inapplicable
	c.void += other.void
}

func (c *counts) String() string {
	text := fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
	if c.inapplicable > 0 {
		text += fmt.Sprintf(", %d do not apply", c.inapplicable)
	}
	if c.void > 0 {
		text += fmt.Sprintf("; %d observations were void and repeated", c.void)
	}
	return text
}

// report has the results so far. It forgets the tests of a package when the package ends.
type report struct {
	out       io.Writer
	allowSkip bool
	packages  map[string]*pkg
	servers   map[announce.Server]*counts
	total     counts
	longest   []timing
	broken    bool // a package has failed
}

// timing is the duration of a test.
type timing struct {
	name    string // with its package
	seconds float64
}

// shown is the number of longest tests that are printed.
const shown = 10

type pkg struct {
	tests     map[string]*test
	output    strings.Builder // outside of tests
	crashed   bool            // the output is now about the whole package
	announced map[string][]announce.Server
}

type test struct {
	outcome string // "": still running
	void    int    // observations
	seconds float64
	output  strings.Builder
}

func newReport(out io.Writer, allowSkip bool) *report {
	return &report{
		out: out, allowSkip: allowSkip,
		packages: make(map[string]*pkg),
		servers:  make(map[announce.Server]*counts),
	}
}

func (r *report) handle(e *event) {
	if strings.HasPrefix(e.Action, "build-") {
		fmt.Fprint(r.out, e.Output) // a compiler's message; its package fails later
		return
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &pkg{tests: make(map[string]*test), announced: make(map[string][]announce.Server)}
		r.packages[e.Package] = p
	}
	if e.Test == "" {
		r.handlePackage(p, e)
		return
	}
	t := p.tests[e.Test]
	if t == nil {
		t = new(test)
		p.tests[e.Test] = t
	}
	switch e.Action {
	case "output":
		p.crashed = p.crashed || isCrash(e.Output)
		if p.crashed {
			p.output.WriteString(e.Output)
			return
		}
		t.output.WriteString(e.Output)
		p.noteServer(e)
		if announce.IsVoid(e.Output) {
			t.void++
		}
	case passed, failed, skipped:
		t.outcome, t.seconds = e.Action, e.Elapsed
		if e.Action == skipped && strings.Contains(t.output.String(), inapplicableReason) {
			t.outcome = inapplicable
		}
		r.show(t)
	}
}

// isCrash reports whether a line is the first line with which the runtime ends a test binary, for
// example after a timeout or SIGQUIT. go test writes this line under the name of any test, even of
// a test that passes.
func isCrash(output string) bool { return crash.MatchString(output) }

var crash = regexp.MustCompile(`^(panic|fatal error|SIG[A-Z0-9]+): `)

func (r *report) handlePackage(p *pkg, e *event) {
	switch e.Action {
	case "output":
		p.output.WriteString(e.Output)
	case passed:
		fmt.Fprintf(r.out, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
		r.close(p, e.Package)
	case failed:
		r.broken = true
		r.abort(p)
		// The output ends with the line of go test for the package.
		fmt.Fprint(r.out, strings.TrimPrefix(p.output.String(), "FAIL\n"))
		r.close(p, e.Package)
	case skipped: // the package has no tests
		r.close(p, e.Package)
	}
}

// show prints the output of a failed test, and of a skipped test if that counts as a failure.
func (r *report) show(t *test) {
	if t.outcome == failed || t.outcome == skipped && !r.allowSkip {
		fmt.Fprint(r.out, t.output.String())
	}
	t.output.Reset()
}

// abort fails the tests that were running when their package ended.
func (r *report) abort(p *pkg) {
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		if t := p.tests[name]; t.outcome == "" {
			t.outcome = failed
			r.show(t)
		}
	}
}

// close counts a package's tests and forgets the package.
func (r *report) close(p *pkg, name string) {
	for _, servers := range p.announced {
		for _, s := range servers {
			if r.servers[s] == nil {
				r.servers[s] = new(counts)
			}
		}
	}
	r.noteLongest(p, name)
	for top, c := range p.count() {
		r.total.plus(*c)
		if strings.HasPrefix(top, "TestConformance") {
			for _, s := range p.announced[top] {
				r.servers[s].plus(*c)
			}
		}
	}
	delete(r.packages, name)
}

// noteLongest keeps the longest innermost tests.
func (r *report) noteLongest(p *pkg, name string) {
	for test, t := range p.tests {
		if !p.isOuter(test) {
			full := path.Base(name) + " " + test
			r.longest = append(r.longest, timing{name: full, seconds: t.seconds})
		}
	}
	slices.SortFunc(r.longest, func(a, b timing) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.name, b.name))
	})
	r.longest = r.longest[:min(len(r.longest), shown)]
}

// isOuter reports whether a test has subtests.
func (p *pkg) isOuter(test string) bool {
	for other := range p.tests {
		if strings.HasPrefix(other, test+"/") {
			return true
		}
	}
	return false
}

// count returns the outcomes for each top-level test.
func (p *pkg) count() map[string]*counts {
	inner := make(map[string]*counts) // for outer tests: the outcomes of their subtests
	tops := make(map[string]*counts)
	names := slices.Sorted(maps.Keys(p.tests))
	for _, name := range slices.Backward(names) { // a name comes after the names of its subtests
		outcome := p.tests[name].outcome
		if in := inner[name]; in != nil && (outcome != failed || in.failed > 0) {
			continue
		}
		for parent := name; ; {
			i := strings.LastIndexByte(parent, '/')
			if i < 0 {
				break
			}
			parent = parent[:i]
			tally(inner, parent).add(outcome)
		}
		tally(tops, top(name)).add(outcome)
	}
	for name, t := range p.tests {
		if t.void > 0 {
			tally(tops, top(name)).void += t.void
		}
	}
	return tops
}

func tally(m map[string]*counts, name string) *counts {
	if m[name] == nil {
		m[name] = new(counts)
	}
	return m[name]
}

func top(test string) string {
	name, _, _ := strings.Cut(test, "/")
	return name
}

func (p *pkg) noteServer(e *event) {
	s, ok := announce.Parse(e.Output)
	if ok && !slices.Contains(p.announced[top(e.Test)], s) {
		p.announced[top(e.Test)] = append(p.announced[top(e.Test)], s)
	}
}

// finish prints the table and the totals. It reports whether all packages and tests succeeded.
func (r *report) finish() bool {
	for _, name := range slices.Sorted(maps.Keys(r.packages)) { // the go command itself was killed
		fmt.Fprintf(r.out, "FAIL  %s  has not ended\n", name)
		r.broken = true
		r.abort(r.packages[name])
		r.close(r.packages[name], name)
	}
	r.table()
	r.printLongest()
	ran := r.total != counts{}
	switch {
	case !ran:
		fmt.Fprintln(r.out, "no test ran")
	case r.total.skipped > 0 && !r.allowSkip:
		fmt.Fprintln(r.out, "skipped tests count as failures; DLOCK_TEST_ALLOW_SKIP=1 allows them")
	}
	fmt.Fprintln(r.out, r.total.String())
	return ran && !r.broken && r.total.failed == 0 && (r.total.skipped == 0 || r.allowSkip)
}

// printLongest prints the longest tests, if any took a second or more.
func (r *report) printLongest() {
	if len(r.longest) == 0 || r.longest[0].seconds < 1 {
		return
	}
	fmt.Fprintln(r.out, "\nthe longest tests")
	for _, t := range r.longest {
		fmt.Fprintf(r.out, "%7.1fs  %s\n", t.seconds, t.name)
	}
	fmt.Fprintln(r.out)
}

func (r *report) table() {
	if len(r.servers) == 0 {
		return
	}
	fmt.Fprintln(r.out)
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "backend\tsource\tversion\tcases passed\tfailed\tskipped\tdo not apply\tvoid")
	servers := slices.SortedFunc(maps.Keys(r.servers), func(a, b announce.Server) int {
		return cmp.Or(cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.Source, b.Source),
			cmp.Compare(a.Version, b.Version))
	})
	tested := make(map[string]bool)
	for s, c := range r.servers {
		tested[s.Backend] = tested[s.Backend] || *c != (counts{})
	}
	for _, s := range servers {
		c := r.servers[s]
		if *c == (counts{}) && tested[s.Backend] {
			continue // a server of another test, not of the suite
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", s.Backend, s.Source, s.Version,
			c.passed, c.failed, c.skipped, c.inapplicable, c.void)
	}
	_ = w.Flush() // r.out ignores write errors, too
	fmt.Fprintln(r.out)
}
