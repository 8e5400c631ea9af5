// Command mutants removes each guard of the library in turn, in a copy of the
// tree, and runs the test that must notice. A guard whose removal
// nobody notices is a hole in the tests.
//
//	go run ./internal/mutants [-all] [-run REGEXP]
//	go run ./internal/mutants -random N [-seed S] [-run REGEXP] [-part NAMES] [-jobs N]
//	go run ./internal/mutants -table
//
// With -random it draws mutants at random from the code, the scripts and the statements, runs
// them over the tests of their part and lists those that survive.
//
// It is run from the root of the module, needs the same servers as the tests, prints one
// line per mutant and exits with 1 if one of them survives.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// mutant is the library without one guard.
type mutant struct {
	guard   string // what is missing
	without string // what happens then, in a few words
	file    string // where
	edits   []edit
	pkg     string // whose test
	test    string // the test, or the case of the suite, that notices
}

// edit is a guard, and what stands there without it.
type edit struct{ old, new string }

func main() {
	all := flag.Bool("all", false, "run the whole suite against each mutant and show every case that notices")
	run := flag.String("run", "", "only the guards, or the random mutants, that match `regexp`")
	asTable := flag.Bool("table", false, "write the table of guards into "+document+" and run nothing")
	random := flag.Int("random", 0, "run `n` random mutants of each part in place of the guards")
	seed := flag.Uint64("seed", 1, "what chooses the random mutants")
	only := flag.String("part", "", "parts to draw from, with commas: "+strings.Join(partNames(), ", ")+" (default all)")
	jobs := flag.Int("jobs", 2, "random mutants that run at a time")
	flag.Parse()
	if *random > 0 {
		os.Exit(runRandom(*only, regexp.MustCompile(*run), *random, *seed, *jobs))
	}
	if *asTable {
		if err := writeTable(); err != nil {
			fmt.Fprintln(os.Stderr, "mutants:", err)
			os.Exit(2)
		}
		return
	}
	survivors, err := hunt(regexp.MustCompile(*run), *all)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		fmt.Fprintf(os.Stderr, "mutants: %d survived\n", survivors)
		os.Exit(1)
	}
}

// runRandom runs random mutants of the parts and returns the exit code.
func runRandom(only string, wanted *regexp.Regexp, n int, seed uint64, jobs int) int {
	chosen, err := chosenParts(only)
	survivors := 0
	for _, p := range chosen {
		var s score
		if s, err = campaign(p, wanted, n, seed, max(jobs, 1)); err != nil {
			break
		}
		survivors += s.survived
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		return 2
	case survivors > 0:
		return 1
	}
	return 0
}

// hunt runs the mutants and returns how many survived.
func hunt(wanted *regexp.Regexp, all bool) (survivors int, err error) {
	const row = "%-44s %-38s %-9s %s\n"
	fmt.Printf(row, "GUARD", "IN", "RESULT", "NOTICED BY")
	for _, m := range mutants {
		if !wanted.MatchString(m.guard) {
			continue
		}
		failed, err := m.run(all)
		if err != nil {
			return survivors, fmt.Errorf("%s: %w", m.guard, err)
		}
		result := "killed"
		if len(failed) == 0 {
			result = "SURVIVED"
			survivors++
		}
		fmt.Printf(row, m.guard, m.file, result, strings.Join(failed, ", "))
	}
	return survivors, nil
}

// run returns the cases that fail without the guard.
func (m *mutant) run(all bool) (failed []string, err error) {
	dir, err := os.MkdirTemp("", "dlock-mutant-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.CopyFS(dir, sources{os.DirFS(".")}); err != nil {
		return nil, err
	}
	if err := m.apply(filepath.Join(dir, m.file)); err != nil {
		return nil, err
	}
	pattern := "^" + strings.ReplaceAll(m.test, "/", "$/^") + "$"
	if all {
		pattern = "."
	}
	return test(dir, m.pkg, pattern)
}

// apply removes the guard from a file; that it is there exactly once is checked, lest the
// list grow old unnoticed.
func (m *mutant) apply(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, e := range m.edits {
		if n := bytes.Count(text, []byte(e.old)); n != 1 {
			return fmt.Errorf("%s has the guard %d times, not once: %q", m.file, n, e.old)
		}
		text = bytes.Replace(text, []byte(e.old), []byte(e.new), 1)
	}
	return os.WriteFile(path, text, 0o600)
}

var failure = regexp.MustCompile(`--- FAIL: (\S+)`)

// test runs the tests that match and returns the cases that failed. That a mutant
// does not compile, or that no case was run, is an error.
func test(dir, pkg, pattern string) (failed []string, err error) {
	cmd := exec.Command("go", "test", "-count=1", "-timeout=5m", "-v", "-run", pattern, "./"+pkg)
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return nil, err
	}
	for _, match := range failure.FindAllSubmatch(output, -1) {
		if name := strings.TrimPrefix(string(match[1]), "TestConformance/"); name != "TestConformance" {
			failed = append(failed, name)
		}
	}
	passed := bytes.Contains(output, []byte("--- PASS: "))
	if len(failed) == 0 && !passed {
		return nil, fmt.Errorf("no case was run:\n%s", output)
	}
	return failed, nil
}

// sources is the tree without what tests do not need.
type sources struct{ fs.FS }

// ReadDir leaves out hidden folders.
func (s sources) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(s.FS, name)
	visible := entries[:0]
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") {
			visible = append(visible, entry)
		}
	}
	return visible, err
}
