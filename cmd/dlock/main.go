// Command dlock holds a distributed lock while a command runs, and shows and
// breaks locks: flock(1) for a fleet.
//
//	dlock run deploy -- ./deploy.sh
//
// dlock help lists its commands, dlock help run their flags and exit codes.
package main

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	logging.Disable() // go-redis writes to standard error what our errors say
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}

// run is main without the process: it executes the command line args and
// returns the exit code. Standard streams that are an *os.File are handed to the
// command as they are.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, env: env}
	root := newRoot(a)
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	err := root.ExecuteContext(ctx)
	if line := message(err); line != "" {
		a.say("%s", line)
	}
	return exitCode(err)
}

// app is what every command gets from its process.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            []string
}

// getenv returns a variable's value, empty where it is not set. As everywhere,
// the last of several settings counts.
func (a *app) getenv(name string) (value string) {
	for _, entry := range a.env {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}
