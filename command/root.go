package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// newRoot builds the command tree. Each run needs a new one, because commands keep
// the values of their flags.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "dlock",
		Short: "Distributed locks for the command line",
		Long: `dlock holds a lock while a command runs: flock(1) for a fleet.

The lock lives on the server that --url or DLOCK_URL names, such as
redis://host. Without a URL it is a file in a directory of this user on
this machine, except on Windows, which has no locks in files.`,
		Args:          refuseUnknown,
		RunE:          refuseBare,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       versionText(),
	}
	root.SetVersionTemplate("{{.Version}}")
	root.SetFlagErrorFunc(explain)
	root.SetHelpCommand(newHelp(root))
	root.SetIn(a.stdin)
	root.SetErr(a.stderr)
	root.AddCommand(
		newRun(a), newTry(a), newElect(a),
		newStatus(a), newList(a), newBreak(a),
		newBench(a), newBenchProcess(a), newVerify(a),
		newVersion(a),
	)
	addCompletion(root)
	return root
}

// addCompletion adds the subcommand completion of cobra. Its error for a word would quote the word.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion, _, err := root.Find([]string{"completion"})
	must(err)
	for _, shell := range completion.Commands() {
		shell.Args = exactly()
	}
}

func refuseUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknownCommand(cmd, args[0])
}

// refuseBare shows the help and returns an error, so that a script does not take a forgotten
// command for a success.
func refuseBare(cmd *cobra.Command, _ []string) error {
	cmd.SetOut(cmd.ErrOrStderr())
	if err := cmd.Help(); err != nil {
		return err
	}
	return usagef("a command is missing")
}

// newNameCommand returns a subcommand that takes the name of one lock and starts no process.
func newNameCommand(
	command, short, long string, run func(ctx context.Context, name string) error,
) *cobra.Command {
	return &cobra.Command{
		Use:                   command + " [flags] NAME",
		Short:                 short,
		Long:                  long,
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := exactly("NAME")(cmd, args); err != nil {
				return err
			}
			return checkWord("NAME", args[0])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return run(ctx, args[0])
		}),
	}
}

// exactly returns a check that a subcommand has one argument for each of names.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		what := "no argument"
		if len(names) > 0 {
			what = strings.Join(names, " ")
		}
		return usagef("%s takes %s, not %d arguments", cmd.Name(), what, len(args))
	}
}

// say writes one line to standard error.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(redactor{a.messages}, "dlock: "+format+"\n", args...)
}
