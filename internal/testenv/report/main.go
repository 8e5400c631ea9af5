// Command report reads the output of go test -json. It prints a line per package and the output of
// failed tests, then the server with which each backend was tested, then the totals:
//
//	go test -json ./... | go run ./internal/testenv/report
//
// The cases of a backend are the innermost subtests of those tests named TestConformance… that
// announced the backend (see package announce). The totals count innermost tests, and each outer
// test that failed although none of its subtests did.
//
// The exit code is 1 if a test failed or did not build, or if no test ran. It is also 1 if a test
// was skipped, because a missing server must not go unnoticed; DLOCK_TEST_ALLOW_SKIP=1 allows
// skipped tests.
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

// read handles the events of a stream. It copies other lines, such as messages of the go command,
// to the output.
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
