// Package command is the dlock command as a package. A program that imports further drivers and
// calls [Main] is a dlock with these drivers: every subcommand accepts their URLs. For example:
//
//	package main
//
//	import (
//		"github.com/redis/go-redis/v9/logging"
//
//		_ "example.com/ourbackend" // calls backend.Register("ours", open)
//		_ "github.com/dlock-go/dlock/redisbackend"
//
//		"github.com/dlock-go/dlock/command"
//	)
//
//	func main() {
//		logging.Disable() // go-redis would print errors that dlock reports, too
//		command.Main()
//	}
//
// URLs of file: always work. dlock help lists the subcommands, and dlock help run shows the flags
// and exit codes of dlock run.
package command

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"strings"
)

// Main executes the command line of the process and ends the process with its exit code. It does
// not return. Call it once, from the main function: it handles the signals of the process. It also
// starts the program again, for the processes of bench and for the guard process of run and try.
// The guard process runs no main function: a program that imports this package is a guard if its
// first argument is guard.
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

// run executes the command line args. It writes the message of an error to
// stderr, and returns the error.
func run(ctx context.Context, args []string, stdin, stdout, stderr *os.File, env []string) error {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, messages: stderr, env: env}
	root := newRoot(a)
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	help := &checkedWriter{w: a.stdout}
	root.SetOut(help)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = help.err
	}
	if line := message(err); line != "" && !isSeen(err) {
		end := a.takeNotes()
		a.say("%s", line)
		end()
	}
	return err
}

// checkedWriter keeps the first error of a writer: the help functions of cobra drop it.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(text []byte) (n int, err error) {
	n, err = c.w.Write(text)
	c.err = cmp.Or(c.err, err)
	return n, err
}

// app has the standard streams and the environment of the process, for every subcommand.
type app struct {
	stdin, stdout, stderr *os.File

	messages io.Writer // standard error, or a writer to it that does not block
	env      []string
	stopper  stopper
}

// getenv returns the value of a variable, or "" if it is not set. If the environment of the app
// sets a variable several times, the last setting counts.
func (a *app) getenv(name string) (value string) {
	for _, entry := range a.env {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}
