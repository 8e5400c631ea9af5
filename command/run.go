package command

import (
	"cmp"
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dlock-go/dlock/command/internal/guard"
)

const runHelp = `
COMMAND gets DLOCK_NAME and DLOCK_FENCE, a number that is greater than the number
of every earlier holder. Pass it on to the resource that COMMAND changes, and let
the resource refuse smaller numbers. The numbers of holders with --shared or
--limit have no order among each other.
` + guard.Help + `
A nested dlock does not wait for a lock under which it runs: it fails at once, with
75. With --shared or --limit it does so unless the lock is granted at once.

DURATION is a number of seconds, or a number with a unit: 90, 1.5s, 2m30s.

Exit codes: COMMAND's own, 128+n if signal n ended it or came before the lock
was acquired, 126 or 127 if it cannot be executed or found, 64 usage or bad URL,
69 backend unreachable, 75 not acquired in time (-E sets another), 76 lock lost,
78 not supported by the backend. With each of its own codes dlock writes a line to
standard error.`

func newRun(a *app) *cobra.Command {
	f := &lockFlags{}
	cmd := newLockCommand(a, f, "run", "Hold a lock while a command runs",
		"Waits until it holds the lock NAME, runs COMMAND, and frees the lock when\n"+
			"COMMAND has ended.")
	addDuration(cmd.Flags(), &f.wait, "wait", "w", 0, "give up after `DURATION`, "+
		"connecting included (default: wait for ever, while the server answers)")
	cmd.Flags().BoolVarP(&f.try, "nonblock", "n", false,
		"do not wait for a lock that is taken, as dlock try")
	f.registerKinds(cmd.Flags())
	return cmd
}

func newTry(a *app) *cobra.Command {
	f := &lockFlags{try: true}
	cmd := newLockCommand(a, f, "try",
		"Hold a lock while a command runs, unless it is taken",
		"Runs COMMAND if the lock NAME is free, and does not wait for it otherwise.\n"+
			"Use --min-hold for a job that must run once: the first of many hosts runs it,\n"+
			"and every other host finds the lock taken.")
	f.registerKinds(cmd.Flags())
	return cmd
}

func newLockCommand(a *app, f *lockFlags, name, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:                   name + " [flags] NAME -- COMMAND [ARG...]",
		Short:                 short,
		Long:                  long + "\n" + runHelp,
		DisableFlagsInUseLine: true,
		Annotations:           map[string]string{startsCommand: "yes"},
		Args:                  checkCommand,
		ValidArgsFunction:     completeCommand,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, argv, _ := splitCommand(cmd, args)
			defer a.takeNotes()()
			if f.elect {
				return f.stand(cmd.Context(), a, name, argv)
			}
			return f.run(cmd.Context(), a, name, argv)
		},
	}
	f.register(cmd.Flags())
	must(cmd.RegisterFlagCompletionFunc("on-lost", cobra.FixedCompletions(
		[]string{onLostKill, onLostContinue}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

func checkCommand(cmd *cobra.Command, args []string) error {
	_, _, err := splitCommand(cmd, args)
	return err
}

// splitCommand parses NAME -- COMMAND, or -- NAME -- COMMAND if the name begins with a dash.
func splitCommand(cmd *cobra.Command, args []string) (name string, argv []string, err error) {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash == 0 && len(args) > 1 && args[1] == "--":
		name, argv = args[0], args[2:]
	case dash == 1:
		name, argv = args[0], args[1:]
	case dash > 1:
		// The error does not quote the words: one may be a URL with a password.
		return "", nil, usagef("one NAME stands before --, not %d words", dash)
	case dash < 0 && len(args) > 0:
		return "", nil, usagef("-- must stand between NAME and COMMAND")
	default:
		return "", nil, usagef("NAME is missing before --: NAME -- COMMAND [ARG...]")
	}
	if len(argv) == 0 {
		return "", nil, usagef("COMMAND is missing behind --")
	}
	return name, argv, cmp.Or(checkWord("NAME", name), checkWord("COMMAND", argv[0]))
}

// completeCommand leaves everything after -- to the shell.
func completeCommand(
	cmd *cobra.Command, _ []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if cmd.ArgsLenAtDash() < 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// run executes dlock run and dlock try.
func (f *lockFlags) run(ctx context.Context, a *app, name string, argv []string) error {
	raw, err := f.locate(ctx, a)
	if err != nil {
		return err
	}
	_, err = f.runOnce(ctx, a, raw, name, argv)
	return err
}

// runOnce acquires the lock, runs the command, and frees the lock. raw is the URL of the backend.
// runOnce also returns the last signal that asked dlock, or the command, to end, or nil.
func (f *lockFlags) runOnce(
	ctx context.Context, a *app, raw, name string, argv []string,
) (interrupt os.Signal, err error) {
	if err := f.settle(raw); err != nil {
		return nil, err
	}
	path, err := lookCommand(argv[0]) // a misspelt command fails before dlock waits
	if err != nil {
		return nil, err
	}
	h := &holder{
		app: a, flags: f, name: name,
		signals: openInbox(), renewed: make(chan struct{}, 1),
	}
	err = h.signals.during(ctx, func(ctx context.Context) error { return h.acquire(ctx, raw) })
	if err == nil {
		err = h.hold(path, argv)
	}
	h.close()
	if sig := h.signals.end(); sig != nil {
		h.interrupt = sig
	}
	if h.interrupt != nil &&
		(err == nil || f.minHold > 0 && (isOwnEnd(err, h.interrupt) || isSeen(err))) {
		err = interrupted{h.interrupt.(syscall.Signal)}
	}
	return cmp.Or(h.interrupt, h.forwarded), err
}

// isOwnEnd reports whether err is the end of a command that neither a key nor sig has ended.
func isOwnEnd(err error, sig os.Signal) bool {
	exit, ok := errors.AsType[*exitError](err)
	return ok && exit.err == nil && !exit.key && os.Signal(exit.signal) != sig
}

// must panics if err is not nil: only a mistake in this program causes such an error.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
