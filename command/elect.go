package command

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// minStand and maxStand limit the pause before a process stands for election again. It doubles as
// long as the command ends, or the election fails, within maxStand.
const minStand, maxStand = time.Second, 30 * time.Second

// finals are the exit codes of errors after which another attempt is useless.
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
// signal that ended it.
func (f *lockFlags) stand(ctx context.Context, a *app, name string, argv []string) error {
	for pause := minStand; ; pause = min(2*pause, maxStand) {
		began := time.Now()
		interrupt, err := f.runOnce(ctx, a, name, argv)
		switch {
		case isFinal(err):
			return err
		case interrupt != nil: // the command has ended, by itself or by the signal
			return interrupted{interrupt.(syscall.Signal)}
		}
		if time.Since(began) > maxStand {
			pause = minStand
		}
		a.say("%q: %s: standing again in %v", name, ending(err), pause)
		if err := rest(ctx, pause); err != nil {
			return err
		}
	}
}

// rest pauses. It returns an error if a signal or the end of ctx came first.
func rest(ctx context.Context, pause time.Duration) error {
	in := openInbox()
	defer in.close()
	return in.during(ctx, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
			return nil
		}
	})
}

// isFinal reports whether err ends dlock elect: a signal, or an error of its own after which
// another attempt is useless. The command's own exit code never does.
func isFinal(err error) bool {
	exit, ok := errors.AsType[*exitError](err)
	if ok && exit.err == nil {
		return false
	}
	_, signalled := errors.AsType[interrupted](err)
	return signalled || err != nil && slices.Contains(finals, exitCode(err))
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
	return message(err)
}
