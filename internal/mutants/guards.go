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

// hunt runs the mutants that are wanted, jobs at a time, and returns how many survived. It prints each as
// soon as its tests have ended.
func hunt(wanted *regexp.Regexp, all bool, jobs int) (survivors int, err error) {
	queue := make(chan *mutant, len(mutants))
	for i := range mutants {
		if wanted.MatchString(mutants[i].guard) {
			queue <- &mutants[i]
		}
	}
	close(queue)
	const row = "%-44s %-38s %-9s %s\n"
	fmt.Printf(row, "GUARD", "IN", "RESULT", "NOTICED BY")
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

// text returns the file without the guard. A guard that is not there exactly once is an error:
// the list has grown old.
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

// test runs the tests of pkg that match, with a list of replaced files, and returns the cases that
// failed. That a mutant does not compile, or that the case was not run, is an error.
func test(overlay, pkg, pattern, wanted string) (failed []string, err error) {
	cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-timeout=5m", "-v", "-overlay="+overlay, "-run", pattern, "./"+pkg)
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
		failed = []string{"the time-out of " + pattern}
	case strings.Contains(output, "\npanic: "), strings.Contains(output, "\nfatal error: "):
		failed = []string{"a panic of " + pattern}
	case !strings.Contains(output, "--- PASS: "+wanted):
		return nil, fmt.Errorf("%s was not run:\n%s", wanted, output)
	}
	return failed, nil
}
