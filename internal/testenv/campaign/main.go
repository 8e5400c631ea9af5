//go:build unix

// Command campaign runs workers against real servers while processes, networks and servers fail. It
// judges the workers' history, and writes the figures into docs/reliability.md:
//
//	go run ./internal/testenv/campaign [flags] [server …]
//
// Package internal/campaign describes the faults, classes and rules. Without a server name, the
// command tests all servers, one after the other. The exit code is 0 if no rule was violated. It is
// 1 if a rule was violated or a server could not be started, and 64 after a usage error. After
// Ctrl-C the command ends all processes and servers, removes its locks from a server that was given
// by URL, writes the history so far, and exits with 130.
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

// options are the options of the command line.
type options struct {
	duration time.Duration
	seed     uint64
	faults   []campaign.Kind
	kinds    []campaign.LockKind
	elect    int // kills of a leader; 0: random faults
	dir      string
	publish  bool
	judge    []string // files; empty: run a campaign
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
	flags.DurationVar(&o.duration, "duration", 90*time.Second,
		"how `long` each server is tested, at least two rounds")
	flags.Uint64Var(&o.seed, "seed", 1,
		"the seed of the schedule: the same seed gives the same faults")
	faults := flags.String("faults", "", "inject only these faults, a comma-separated `list`")
	kinds := flags.String("kinds", "",
		"use only these kinds of locks, a comma-separated `list`; each has at least one round")
	flags.IntVar(&o.elect, "elections", 0, "instead of random faults, hold an election among "+
		"five processes, and kill the leader `n` times")
	flags.StringVar(&o.dir, "dir", filepath.Join(os.TempDir(), "dlock-campaign"),
		"the folder for histories with a violation, and their pictures")
	flags.BoolVar(&o.keep, "keep", false, "keep every history")
	flags.BoolVar(&o.publish, "publish", false, "write the figures into "+document)
	judge := flags.Bool("judge", false,
		"run nothing, but judge kept histories: the arguments are their files")
	flags.Usage = func() {
		fmt.Fprintf(out, "usage: campaign [flags] [server …]\n\n"+
			"servers: %s\nfaults:  %s\nkinds:   %s\n\nflags:\n",
			names(targets), join(campaign.Kinds()), join(campaign.LockKinds()))
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
	if o.kinds, err = campaign.ParseLockKinds(*kinds); err != nil {
		return nil, err
	}
	if o.elect < 0 {
		return nil, fmt.Errorf("elections %d: it must not be negative", o.elect)
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

// find returns the servers with these names, or all servers if there are no names.
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

func join[K ~string](kinds []K) string {
	var all []string
	for _, k := range kinds {
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

// publish writes the figures into the documents if the options require it. It returns the exit
// code.
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

// conclude prints the report on one server. It keeps the history if there is a violation, an
// interruption or -keep.
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

// rejudge judges kept histories again.
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
