package command

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlock-go/dlock/backend"
)

type statusFlags struct {
	connection
	json, exitCode bool
}

const statusHelp = `Shows the holder of NAME, its fence, the time left and the number of waiters.
The exit code is 0 also for a free lock, unless --exit-code is set.`

func newStatus(a *app) *cobra.Command {
	f := &statusFlags{}
	cmd := newNameCommand("status", "Show the holder of a lock", statusHelp,
		func(ctx context.Context, name string) error { return f.run(ctx, a, name) })
	f.register(cmd.Flags())
	cmd.Flags().BoolVar(&f.json, "json", false, "one JSON object")
	cmd.Flags().BoolVar(&f.exitCode, "exit-code", false, "exit 1 where the lock is free")
	return cmd
}

func (f *statusFlags) run(ctx context.Context, a *app, name string) error {
	client, err := f.open(ctx, a)
	if err != nil {
		return err
	}
	defer client.Close()
	info, err := client.Inspect(ctx, name)
	if err != nil {
		return err
	}
	if err := f.write(a.stdout, info); err != nil {
		return err
	}
	if f.exitCode && len(info.Holders) == 0 {
		return &exitError{code: exitNo}
	}
	return nil
}

func (f *statusFlags) write(w io.Writer, info *backend.Info) error {
	if f.json {
		return writeLock(w, info)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "name\t%s\n", printable(info.Key))
	if len(info.Holders) == 0 {
		fmt.Fprintln(table, "holder\tnone: the lock is free")
	} else {
		fmt.Fprintf(table, "mode\t%s\n", modeOf(info))
	}
	for i := range info.Holders {
		writeHolder(table, &info.Holders[i])
	}
	fmt.Fprintf(table, "waiters\t%s\n", waiters(info.Waiters))
	return table.Flush()
}

func writeHolder(w io.Writer, h *backend.Holder) {
	fmt.Fprintf(w, "holder\t%s\n", holderName(h))
	fmt.Fprintf(w, "owner\t%s\n", printable(h.Owner))
	fmt.Fprintf(w, "fence\t%d\n", h.Fence)
	since := unknown
	if !h.Since.IsZero() {
		since = h.Since.Local().Format(time.RFC3339) + ", for " + age(h.Since)
	}
	fmt.Fprintf(w, "since\t%s\n", since)
	fmt.Fprintf(w, "time left\t%s\n", span(h.TTL))
}
