package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

type breakFlags struct {
	connection
	yes bool
}

const breakHelp = `Takes the lock NAME from its holder, after it has shown the holder. A later
holder keeps the lock. The next holder has it at once. A command that runs under
dlock gets SIGTERM at once on redis, etcd and zk, and elsewhere at the next renewal,
a third of the TTL later at most. Then it has up to its --grace to end: break the
lock of a holder that is dead, or end the holder first.

Asks first on a terminal, for each of several holders, and needs --yes elsewhere.
The exit code is 1 if it took the lock from no holder.`

func newBreak(a *app) *cobra.Command {
	f := &breakFlags{}
	cmd := newNameCommand("break", "Take a lock from its holder", breakHelp,
		func(ctx context.Context, name string) error { return f.run(ctx, a, name) })
	f.register(cmd.Flags())
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (f *breakFlags) run(ctx context.Context, a *app, name string) error {
	if !f.yes && !isTerminal(a.stdin) {
		return usagef("standard input is not a terminal: break needs --yes")
	}
	client, err := f.open(ctx, a)
	if err != nil {
		return err
	}
	defer client.Close()
	if !client.Capabilities().Break {
		return fmt.Errorf("break: %w: end the holder instead", dlock.ErrUnsupported)
	}
	info, err := client.Inspect(ctx, name)
	if err != nil {
		return err
	}
	if len(info.Holders) == 0 {
		return &exitError{code: exitNo, err: fmt.Errorf("%q is free", name)}
	}
	return f.breakAll(ctx, a, client, name, info.Holders)
}

// breakAll takes the lock from each holder. It goes on after a holder that has gone, or for which
// the answer was no.
func (f *breakFlags) breakAll(
	ctx context.Context, a *app, client *dlock.Client, name string, holders []backend.Holder,
) error {
	isAnyBroken := false
	for i := range holders {
		isBroken, err := f.breakOne(ctx, a, client, name, &holders[i])
		if err != nil {
			return err
		}
		isAnyBroken = isAnyBroken || isBroken
	}
	if !isAnyBroken {
		return &exitError{code: exitNo, err: errors.New("nothing was broken")}
	}
	return nil
}

// breakOne takes the lock from one holder, and reports whether it did. It names the holder's owner,
// so that a later holder keeps the lock.
func (f *breakFlags) breakOne(
	ctx context.Context, a *app, client *dlock.Client, name string, h *backend.Holder,
) (isBroken bool, err error) {
	if !f.yes {
		fmt.Fprintf(a.stderr, "%q is held by %s\n", name, describe(h))
		if isConfirmed, err := confirm(ctx, a, "Take it away?"); !isConfirmed {
			return false, err
		}
	}
	err = client.Break(ctx, name, h.Owner)
	if errors.Is(err, dlock.ErrNotHeld) {
		a.say("%q is no longer held by %s", name, holderName(h))
		return false, nil
	}
	if err == nil {
		_, err = fmt.Fprintf(a.stdout, "%q was taken from %s\n", name, describe(h))
	}
	return err == nil, err
}

// confirm shows a question on the terminal, and reports whether the answer is yes. It returns an
// error if ctx ends before the answer.
func confirm(ctx context.Context, a *app, question string) (isConfirmed bool, err error) {
	fmt.Fprintf(a.stderr, "%s [y/N] ", question)
	answer, err := backend.Call(ctx, func(context.Context) (string, error) {
		return bufio.NewReader(a.stdin).ReadString('\n')
	})
	if ctx.Err() != nil {
		fmt.Fprintln(a.stderr) // ends the line of the question
		return false, err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}
