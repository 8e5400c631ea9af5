// Command report reads the output of go test -json. It prints a line per package and what the failed tests wrote, then
// which server each backend was tested with, then the totals:
//
//	go test -json ./... | go run ./internal/testenv/report
//
// The cases of a backend are the innermost subtests of the tests named TestConformance… in which the backend was announced
// (see package announce). The totals count innermost tests too, and a test around them that failed on its own.
//
// It exits with 1 if something failed or did not build, if no test ran, and, without DLOCK_TEST_ALLOW_SKIP=1, if a test was
// skipped: a missing server must not go unnoticed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func main() {
	r := newReport(os.Stdout, os.Getenv("DLOCK_TEST_ALLOW_SKIP") == "1")
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	if !r.finish() {
		os.Exit(1)
	}
}

// read handles the events of a stream. What is not an event, such as a message of the go command, is passed on.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.handle(&e)
			} else {
				fmt.Fprintf(r.out, "%s", line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
