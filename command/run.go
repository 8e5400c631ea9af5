package command

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
)

const runHelp = `
COMMAND gets DLOCK_NAME and DLOCK_FENCE, a number that is greater than that of
every earlier holder: hand it to what COMMAND changes, and let that refuse
smaller ones.

The lock is renewed while COMMAND runs. If it cannot be renewed, COMMAND gets
SIGTERM so early that --grace remains, then SIGKILL, and has ended before the
lock can pass to anybody else. If the lock is broken, SIGTERM comes at once.
A dlock that is itself stopped (SIGSTOP) cannot end COMMAND before it goes on.

COMMAND runs in a process group of its own, which gets the signals that dlock
gets (SIGUSR1 and SIGUSR2: COMMAND alone), SIGTERM and SIGKILL included. Where
standard input is a terminal it shares dlock's group, as job control wants it;
SIGTERM and SIGKILL then reach COMMAND alone. What leaves the group, and
what COMMAND leaves behind when it ends by itself, goes on without the lock.

Exit codes: COMMAND's own, 128+n if signal n ended it or came before the lock
was had, 126 or 127 if it cannot be executed or found, 64 usage or bad URL,
69 backend unreachable, 75 not acquired in time, 76 lock lost, 78 not supported
by the backend. Each of dlock's own comes with a line on standard error.`

func newRun(a *app) *cobra.Command {
	f := &lockFlags{}
	cmd := newLockCommand(a, f, "run", "Hold a lock while a command runs",
		"Waits until it holds the lock NAME, runs COMMAND, and frees the lock when\nCOMMAND has ended.")
	cmd.Flags().DurationVar(&f.wait, "wait", 0, "give up after `DURATION` (default: wait for ever)")
	return cmd
}

func newTry(a *app) *cobra.Command {
	return newLockCommand(a, &lockFlags{try: true}, "try", "Hold a lock while a command runs, unless it is taken",
		"Runs COMMAND if the lock NAME is free, and does not wait for it otherwise.\nWith --min-hold for a job that must run once: the first of many hosts runs it,\nand the others find the lock taken.")
}

func newLockCommand(a *app, f *lockFlags, name, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:                   name + " [flags] NAME -- COMMAND [ARG...]",
		Short:                 short,
		Long:                  long + "\n" + runHelp,
		DisableFlagsInUseLine: true,
		Args:                  func(_ *cobra.Command, args []string) error { return checkCommand(args) },
		ValidArgsFunction:     completeCommand,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), a, args[0], args[2:])
		},
	}
	f.register(cmd.Flags())
	must(cmd.RegisterFlagCompletionFunc("on-lost", cobra.FixedCompletions([]string{onLostKill, onLostContinue}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// checkCommand wants NAME -- COMMAND.
func checkCommand(args []string) error {
	switch {
	case len(args) == 0:
		return usagef("NAME is missing: NAME -- COMMAND [ARG...]")
	case len(args) > 1 && args[1] != "--" && strings.HasPrefix(args[1], "-"):
		return usagef("flags stand before NAME: found %s behind it", args[1])
	case len(args) == 1 || args[1] != "--":
		return usagef("-- must stand between NAME and COMMAND")
	case len(args) == 2:
		return usagef("COMMAND is missing behind --")
	}
	return nil
}

// completeCommand leaves everything behind -- to the shell.
func completeCommand(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) < 2 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// run is the whole of dlock run and dlock try.
func (f *lockFlags) run(ctx context.Context, a *app, name string, argv []string) error {
	raw, err := f.locate(a)
	if err != nil {
		return err
	}
	if err := f.settle(raw); err != nil {
		return err
	}
	path, err := lookCommand(argv[0]) // a misspelt command need not wait for a lock
	if err != nil {
		return err
	}
	h := &holder{app: a, flags: f, name: name, signals: openInbox()}
	defer h.signals.close()
	defer h.close()
	if err := h.signals.during(ctx, func(ctx context.Context) error { return h.acquire(ctx, raw) }); err != nil {
		return err
	}
	return h.hold(path, argv)
}

// must is for what can only fail by a mistake in this program.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
