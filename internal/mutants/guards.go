package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
)

// mutant describes the library without one guard.
type mutant struct {
	guard   string // the missing guard
	without string // the consequence, in a few words
	file    string // the file of the guard
	edits   []edit
	pkg     string // the package of the test
	test    string // the test, or the case of the suite, that detects the missing guard
}

// edit replaces the source of a guard by other source.
type edit struct{ old, new string }

// hunt runs the mutants whose guards match, jobs at a time, and returns the number of survivors. It
// prints each mutant as soon as its tests have ended.
func hunt(wanted *regexp.Regexp, all bool, jobs int) (survivors int, err error) {
	queue := make(chan *mutant, len(mutants))
	for i := range mutants {
		if wanted.MatchString(mutants[i].guard) {
			queue <- &mutants[i]
		}
	}
	close(queue)
	const row = "%-44s %-38s %-9s %s\n"
	fmt.Printf(row, "GUARD", "IN", "RESULT", "DETECTED BY")
	var mu sync.Mutex
	report := func(m *mutant, failed []string, failure error) {
		mu.Lock()
		defer mu.Unlock()
		result := "killed"
		switch {
		case failure != nil:
			result = "NOT RUN"
			err = errors.Join(err, fmt.Errorf("%s: %w", m.guard, failure))
		case len(failed) == 0:
			result = "SURVIVED"
			survivors++
		}
		fmt.Printf(row, m.guard, m.file, result, strings.Join(failed, ", "))
	}
	var workers sync.WaitGroup
	for range jobs {
		workers.Go(func() {
			for m := range queue {
				failed, failure := m.run(all)
				report(m, failed, failure)
			}
		})
	}
	workers.Wait()
	return survivors, err
}

// run returns the cases that fail without the guard.
func (m *mutant) run(all bool) (failed []string, err error) {
	text, err := m.text()
	if err != nil {
		return nil, err
	}
	list, remove, err := overlay(m.file, text)
	if err != nil {
		return nil, err
	}
	defer remove()
	if all {
		return test(list, m.pkg, ".", "")
	}
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(m.test), "/", "$/^") + "$"
	return test(list, m.pkg, pattern, m.test)
}

// text returns the file without the guard. It returns an error unless each piece of source occurs
// exactly once: the list of guards must follow the source.
func (m *mutant) text() (string, error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	text := string(source)
	for _, e := range m.edits {
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("%s has the guard %d times, not once: %q", m.file, n, e.old)
		}
		text = strings.Replace(text, e.old, e.new, 1)
	}
	return text, nil
}

var failure = regexp.MustCompile(`--- FAIL: (\S+)`)

// test runs the matching tests of pkg with a list of replaced files, and returns the names of the
// tests that failed. It returns an error if the mutant does not compile or if the wanted test was
// not run.
func test(overlay, pkg, pattern, wanted string) (failed []string, err error) {
	cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-timeout=5m", "-v",
		"-overlay="+overlay, "-run", pattern, "./"+pkg)
	combined, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return nil, err
	}
	output := string(combined)
	for _, match := range failure.FindAllStringSubmatch(output, -1) {
		if name := strings.TrimPrefix(match[1], "TestConformance/"); name != "TestConformance" {
			failed = append(failed, name)
		}
	}
	switch {
	case len(failed) > 0:
	case strings.Contains(output, "panic: test timed out"):
		failed = []string{"the timeout of " + pattern}
	case strings.Contains(output, "\npanic: "), strings.Contains(output, "\nfatal error: "):
		failed = []string{"a panic of " + pattern}
	case !strings.Contains(output, "--- PASS: "+wanted):
		return nil, fmt.Errorf("%s was not run:\n%s", wanted, output)
	}
	return failed, nil
}
