//go:build unix

// Command campaign runs workers against real servers while everything fails, judges what they have
// done, and puts the figures into docs/reliability.md:
//
//	go run ./internal/testenv/campaign [flags] [server …]
//
// Package internal/campaign explains faults, classes and rules. Without a server it runs all of
// them, one after the other. It exits with 0 if no rule was violated, with 1 if one was or a server
// could not be started, with 64 after a usage error, and with 130 after Ctrl-C. Then it has ended
// all processes and servers, and has written the history so far.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/campaign"
	"github.com/dlock-go/dlock/internal/testenv"
)

const (
	document    = "docs/reliability.md"
	figuresFile = "docs/campaign.json"

	exitViolated    = 1
	exitUsage       = 64
	exitInterrupted = 130
)

// options are what the command line says.
type options struct {
	duration time.Duration
	seed     uint64
	faults   []campaign.Kind
	dir      string
	publish  bool
	judge    []string // files; none: run
	keep     bool
	servers  []*target
}

func main() {
	if url := os.Getenv(urlVariable); url != "" {
		os.Exit(work(url))
	}
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "campaign:", err)
		os.Exit(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(o.judge) > 0 {
		os.Exit(rejudge(o))
	}
	os.Exit(all(ctx, o))
}

// parse reads the command line.
func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("campaign", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.DurationVar(&o.duration, "duration", 90*time.Second, "how `long` each server is tested, two rounds at the least")
	flags.Uint64Var(&o.seed, "seed", 1, "of the schedule: the same seed gives the same faults")
	faults := flags.String("faults", "", "only these faults, a `list` with commas")
	flags.StringVar(&o.dir, "dir", filepath.Join(os.TempDir(), "dlock-campaign"), "where a history with a violation is kept, with its pictures")
	flags.BoolVar(&o.keep, "keep", false, "keep every history")
	flags.BoolVar(&o.publish, "publish", false, "put the figures into "+document)
	judge := flags.Bool("judge", false, "judge histories that were kept, whose files are named instead of servers, and run nothing")
	flags.Usage = func() {
		fmt.Fprintf(out, "usage: campaign [flags] [server …]\n\nservers: %s\nfaults:  %s\n\nflags:\n", names(targets), kindNames())
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			err = fmt.Errorf("usage: %w", err)
		}
		return nil, err
	}
	var err error
	if o.faults, err = campaign.ParseKinds(*faults); err != nil {
		return nil, err
	}
	if o.duration <= 0 {
		return nil, fmt.Errorf("duration %v: it must be greater than 0", o.duration)
	}
	if *judge {
		if o.judge = flags.Args(); len(o.judge) == 0 {
			return nil, errors.New("-judge needs the file of a history")
		}
		return o, nil
	}
	o.servers, err = find(flags.Args())
	return o, err
}

// find returns the servers of these names, all without a name.
func find(wanted []string) ([]*target, error) {
	if len(wanted) == 0 {
		return targets, nil
	}
	var found []*target
	for _, name := range wanted {
		i := slices.IndexFunc(targets, func(t *target) bool { return t.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown server %q; the servers are %s", name, names(targets))
		}
		found = append(found, targets[i])
	}
	return found, nil
}

func names(targets []*target) string {
	var all []string
	for _, t := range targets {
		all = append(all, t.name)
	}
	return strings.Join(all, ", ")
}

func kindNames() string {
	var all []string
	for _, k := range campaign.Kinds() {
		all = append(all, string(k))
	}
	return strings.Join(all, ", ")
}

// all runs the campaign of each server and returns the exit code.
func all(ctx context.Context, o *options) (code int) {
	var figures []campaign.Figures
	for _, t := range o.servers {
		if ctx.Err() != nil {
			break
		}
		tb := testenv.NewProgram(ctx, "campaign")
		var verdict *campaign.Verdict
		if tb.Run(func() { verdict = t.run(tb, o) }) != 0 {
			code = exitViolated
		}
		if verdict == nil {
			continue
		}
		figures = append(figures, verdict.Figures)
		if !conclude(verdict, o, ctx.Err() != nil) {
			code = exitViolated
		}
	}
	if ctx.Err() != nil {
		return exitInterrupted
	}
	return max(code, publish(o, figures))
}

// publish puts the figures into the documents, if that is wanted, and returns the exit code.
func publish(o *options, figures []campaign.Figures) (code int) {
	if !o.publish {
		return 0
	}
	if err := campaign.Publish(figuresFile, document, figures); err != nil {
		fmt.Fprintln(os.Stderr, "campaign:", err)
		return exitViolated
	}
	return 0
}

// conclude reports on one server, and keeps its history if that is of interest.
func conclude(v *campaign.Verdict, o *options, interrupted bool) (ok bool) {
	v.WriteReport(os.Stdout)
	if ok = len(v.Violations) == 0; ok && !o.keep && !interrupted {
		return true
	}
	files, err := v.Keep(o.dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "campaign:", err)
		return false
	}
	fmt.Printf("  kept: %s\n", strings.Join(files, " "))
	return ok
}

// rejudge judges files once more.
func rejudge(o *options) (code int) {
	var figures []campaign.Figures
	for _, file := range o.judge {
		h, err := campaign.Load(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, "campaign:", err)
			return exitViolated
		}
		v := campaign.Judge(h)
		figures = append(figures, v.Figures)
		if !conclude(v, o, false) {
			code = exitViolated
		}
	}
	return max(code, publish(o, figures))
}
