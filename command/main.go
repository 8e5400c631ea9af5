// Package command is the dlock command, for programs with drivers of their own: each driver
// that the program imports has its URLs in every subcommand. For example:
//
//	package main
//
//	import (
//		_ "example.com/ourbackend" // calls backend.Register("ours", open)
//		_ "github.com/dlock-go/dlock/redisbackend"
//
//		"github.com/dlock-go/dlock/command"
//	)
//
//	func main() { command.Main() }
//
// URLs of file: always work. dlock help lists the subcommands, dlock help run their flags and
// exit codes.
package command

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
)

// Main executes the command line of the process and ends the process with the exit code. It
// does not return. It must be called once, from the main function: it handles the signals of
// the process, and starts the program again for the processes of the subcommand bench.
func Main() {
	err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ())
	if exit, ok := errors.AsType[*exitError](err); ok && exit.signal != 0 {
		endBySignal(exit.signal, exit.key)
	}
	if signal, ok := errors.AsType[interrupted](err); ok {
		endBySignal(signal.signal, false)
	}
	os.Exit(exitCode(err))
}

// run is Main without the process: it executes the command line args, writes the message of its
// error, and returns it.
func run(ctx context.Context, args []string, stdin, stdout, stderr *os.File, env []string) error {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, messages: stderr, env: env}
	root := newRoot(a)
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	err := root.ExecuteContext(ctx)
	if line := message(err); line != "" {
		last := startNotes(a.stderr)
		a.messages = last
		a.say("%s", line)
		last.close()
	}
	return err
}

// app is what every command gets from its process.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	messages       io.Writer // standard error, or a writer to it that does not block
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
