package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/command/internal/guard"
)

// minStand and maxStand limit the pause before a process stands for election again. It doubles as
// long as the command ends, or the election fails, within maxStand.
const minStand, maxStand = time.Second, 30 * time.Second

// finals are the exit codes of errors after which another attempt is useless, unless the command
// has run already.
var finals = []int{exitUsage, exitUnsupported, exitNoExec, exitNotFound}

func newElect(a *app) *cobra.Command {
	return newLockCommand(a, &lockFlags{elect: true}, "elect",
		"Run a command whenever this process leads",
		"Stands for election under NAME until a signal comes: waits until this process\n"+
			"leads, runs COMMAND, and stands again when COMMAND has ended or the lock was\n"+
			"lost, after a pause of 1 s that grows to 30 s. Other candidates may lead\n"+
			"meanwhile. Of all candidates at most one runs its COMMAND at a time.")
}

// stand executes dlock elect. It returns an error after which another attempt is useless, or the
// signal that ended it. It reads the URL only once, because a file such as a pipe has it only once.
func (f *lockFlags) stand(ctx context.Context, a *app, name string, argv []string) error {
	raw, err := f.locate(ctx, a)
	if err != nil {
		return err
	}
	hasRun := false
	for pause := minStand; ; pause = min(2*pause, maxStand) {
		began := time.Now()
		interrupt, err := f.runOnce(ctx, a, raw, name, argv)
		hasRun = hasRun || isTerm(err)
		switch {
		case isFinal(err, hasRun):
			return err
		case interrupt != nil: // the command has ended, by itself or by the signal
			if errors.Is(err, dlock.ErrLost) { // or because of the loss, later
				a.say("%s", naming(name, message(err)))
			}
			return interrupted{interrupt.(syscall.Signal)}
		}
		if time.Since(began) > maxStand {
			pause = minStand
		}
		a.say("%s: standing again in %v", naming(name, ending(err)), pause)
		if err := openInbox().rest(ctx, pause); err != nil {
			return err
		}
	}
}

// rest pauses, and closes the inbox. It returns an error if a signal or the end of ctx came first.
func (in inbox) rest(ctx context.Context, pause time.Duration) error {
	err := in.during(ctx, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
			return nil
		}
	})
	// After a stop the signal and the end of the pause come together.
	if sig := in.end(); sig != nil && err == nil {
		return interrupted{sig.(syscall.Signal)}
	}
	return err
}

// isFinal reports whether err ends dlock elect: a signal, or an error of its own after which
// another attempt is useless. The command's own exit code never does, and neither does its signal,
// unless the terminal sent that signal: the command's group alone receives it. If the command has
// run already, an error such as a missing command may pass, as during an upgrade.
func isFinal(err error, hasRun bool) bool {
	exit, ok := errors.AsType[*exitError](err)
	if ok && exit.err == nil {
		return exit.key
	}
	_, signalled := errors.AsType[interrupted](err)
	if signalled || errors.Is(err, errNested) || errors.Is(err, dlock.ErrUnsupported) {
		return true
	}
	failed, ok := errors.AsType[*guard.StartError](err)
	mayPass := err == nil || hasRun || ok && failed.IsPassing
	return !mayPass && slices.Contains(finals, exitCode(err))
}

// isTerm reports whether err is the end of a term in which the command ran.
func isTerm(err error) bool {
	exit, ok := errors.AsType[*exitError](err)
	return err == nil || ok && exit.err == nil || errors.Is(err, dlock.ErrLost)
}

// naming returns text with the name of the lock before it, unless text names the lock already. The
// errors of the library cut a long name.
func naming(name, text string) string {
	if strings.Contains(text, fmt.Sprintf("%q", name)) ||
		strings.Contains(text, fmt.Sprintf("%.64q", name)) {
		return text
	}
	return fmt.Sprintf("%q: %s", name, text)
}

// ending describes the end of a leader, or of an election that failed.
func ending(err error) string {
	exit, ok := errors.AsType[*exitError](err)
	switch {
	case err == nil:
		return "the command has ended"
	case ok && exit.err == nil && exit.signal != 0:
		return "the command was ended by a signal: " + exit.signal.String()
	case ok && exit.err == nil:
		return "the command has failed"
	}
	if isSeen(err) {
		return "the command did not run"
	}
	return message(err)
}
