package command

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

const (
	// watchInterval is the time between two polls of --watch.
	watchInterval = time.Second
	// pollLimit is how long a poll may take.
	pollLimit = 5 * time.Second
)

type listFlags struct {
	connection
	json, watch bool
}

func newList(a *app) *cobra.Command {
	f := &listFlags{}
	cmd := &cobra.Command{
		Use:   "ls [flags] [PREFIX]",
		Short: "Show every lock that is held or waited for",
		Long: "Shows every lock that is held or waited for and starts with PREFIX, one line\n" +
			"each. With --watch the table stays on the terminal until a signal comes.",
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return cmp.Or(exactly("[PREFIX]")(cmd, args), checkWord("PREFIX", args[0]))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return f.run(ctx, a, cmp.Or(append(args, "")...))
		}),
	}
	f.register(cmd.Flags())
	cmd.Flags().BoolVar(&f.json, "json", false, "one JSON object per line")
	cmd.Flags().BoolVar(&f.watch, "watch", false, "keep the table on the terminal")
	return cmd
}

func (f *listFlags) run(ctx context.Context, a *app, prefix string) error {
	switch {
	case f.watch && f.json:
		return usagef("--watch and --json exclude each other")
	case f.watch && !isTerminal(a.stdout):
		return usagef("--watch needs a terminal")
	}
	client, err := f.open(ctx, a)
	if err != nil {
		return err
	}
	defer client.Close()
	switch {
	case f.json:
		return listJSON(a.stdout, client.List(ctx, prefix))
	case f.watch:
		return watch(ctx, a.stdout, client, prefix)
	}
	infos, err := sorted(client.List(ctx, prefix))
	if err != nil {
		return err
	}
	return writeTable(a.stdout, infos)
}

// listJSON writes each lock as it arrives.
func listJSON(w io.Writer, infos iter.Seq2[*backend.Info, error]) error {
	for info, err := range infos {
		if err != nil {
			return err
		}
		if err := writeLock(w, info); err != nil {
			return err
		}
	}
	return nil
}

func sorted(seq iter.Seq2[*backend.Info, error]) (infos []*backend.Info, err error) {
	for info, err := range seq {
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b *backend.Info) int { return cmp.Compare(a.Key, b.Key) })
	return infos, nil
}

func writeTable(w io.Writer, infos []*backend.Info) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tMODE\tHOLDER\tFENCE\tHELD\tLEFT\tWAITERS")
	for _, info := range infos {
		holder, fence, held, left := unknown, unknown, unknown, unknown
		if len(info.Holders) > 0 {
			h := &info.Holders[0]
			holder, fence = holderName(h), strconv.FormatUint(h.Fence, 10)
			held, left = age(h.Since), span(h.TTL)
		}
		if more := len(info.Holders) - 1; more > 0 {
			holder += fmt.Sprintf(" and %d more", more)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(info.Key),
			modeOf(info), holder, fence, held, left, waiters(info.Waiters))
	}
	return table.Flush()
}

// watch redraws the table until ctx ends. If a poll fails, watch shows the error above the last
// table and goes on. The first poll must succeed.
func watch(ctx context.Context, screen *os.File, client *dlock.Client, prefix string) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	const clear = "\x1b[2J"
	var table bytes.Buffer
	for first := true; ; first = false {
		infos, err := poll(ctx, client, prefix)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && first:
			return err
		case first:
			if _, err := screen.WriteString(clear); err != nil {
				return err
			}
		}
		if err == nil {
			table.Reset()
			if err := writeTable(&table, infos); err != nil {
				return err
			}
		}
		if err := draw(screen, table.Bytes(), err); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// poll is one poll of watch. It fails if the server does not answer within pollLimit.
func poll(ctx context.Context, client *dlock.Client, prefix string) ([]*backend.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, pollLimit)
	defer cancel()
	return sorted(client.List(ctx, prefix))
}

// draw draws table on the screen. If old is not nil, the table is out of date, and draw
// shows the reason above it.
func draw(screen *os.File, table []byte, old error) error {
	width, height, err := size(screen)
	if err != nil {
		return err
	}
	if old != nil {
		table = append([]byte("the table is old: "+printable(redact(message(old)))+"\n"), table...)
	}
	_, err = screen.Write(frame(table, width, height))
	return err
}

// size returns the columns and the rows of a terminal. An old terminal reports neither, or only one
// of them: it has 80 columns and 24 rows.
func size(screen *os.File) (width, height int, err error) {
	width, height, err = term.GetSize(int(screen.Fd()))
	if width <= 0 {
		width = 80
	}
	if height <= 0 {
		height = 24
	}
	return width, height, err
}

// frame returns table as one picture of a terminal. The picture is drawn over the last one, so the
// screen does not flicker. It is cut to the size of the terminal, because a line that wraps or
// scrolls would leave text behind.
func frame(table []byte, width, height int) []byte {
	const home, eraseLine, eraseBelow = "\x1b[H", "\x1b[K", "\x1b[J"
	lines := slices.Collect(bytes.Lines(table))
	if room := max(height-1, 2); len(lines) > room {
		more := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Appendf(nil, "... and %d more\n", more))
	}
	picture := []byte(home)
	for _, line := range lines {
		picture = append(picture, cut(strings.TrimSuffix(string(line), "\n"), width)...)
		picture = append(picture, eraseLine+"\r\n"...)
	}
	return append(picture, eraseBelow...)
}
