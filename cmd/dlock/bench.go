package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/bench"
	_ "github.com/dlock-go/dlock/membackend" // mem:
)

type benchFlags struct {
	duration       time.Duration
	workloads      []string
	contenders     []int
	waiters, locks int
	prefix         string
	json           bool
	html           string
	flags          *pflag.FlagSet
}

func newBench(a *app) *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench [flags] URL...",
		Short: "Compare backends",
		Long: `Measures what locks cost on each of the backends, which take turns on the same
machine, and writes a table for each workload:

` + workloadList() + `
A floor is the fewest requests that can lock and unlock through the same client
library. Where processes are needed dlock starts itself, except for mem:, whose
locks end at the process.

Every name is locked under a prefix of its own. When it is done, or interrupted,
it frees what is locked and removes what it has left. Measure on a server that
does nothing else, and not on one that others need: the load is as high as it gets.

With the defaults a backend takes some twenty seconds, ZooKeeper the timeout of
a session besides. What cannot be known is shown as "–". A backend that fails is
left out, and the exit code is 69 then.`,
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("bench takes the URLs of one or more backends, such as redis://host or file:")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return f.run(ctx, a, args)
		}),
	}
	f.register(cmd.Flags())
	return cmd
}

func workloadList() string {
	var b strings.Builder
	for _, w := range bench.Workloads() {
		fmt.Fprintf(&b, "  %-10s%s\n", w.ID, w.Title)
	}
	return b.String()
}

func (f *benchFlags) register(flags *pflag.FlagSet) {
	f.flags = flags
	flags.DurationVar(&f.duration, "duration", time.Second, "measure each row of the table for `DURATION`")
	flags.StringSliceVar(&f.workloads, "workloads", nil, "measure these `WORKLOADS` only, such as W1,W3,recovery")
	flags.IntSliceVar(&f.contenders, "contenders", []int{2, 16, 128}, "the `NUMBERS` of goroutines that contend in W3")
	flags.IntVar(&f.waiters, "waiters", 1000, "have `N` goroutines wait in W5")
	flags.IntVar(&f.locks, "locks", 10_000, "hold `N` locks in W6")
	flags.StringVar(&f.prefix, "prefix", "", "lock names under `PREFIX`, where nobody else has any, instead of dlock-bench/ and something random")
	flags.BoolVar(&f.json, "json", false, "write one JSON object instead of the table")
	flags.StringVar(&f.html, "html", "", "write a page with tables and plots to `FILE`, too")
}

// chosen returns the workloads to measure, in their order.
func (f *benchFlags) chosen() ([]bench.Workload, error) {
	all := bench.Workloads()
	if !f.flags.Changed("workloads") {
		return all, nil
	}
	wanted := make(map[string]bool)
	for _, id := range f.workloads {
		w, ok := bench.Find(strings.TrimSpace(id))
		if !ok {
			return nil, usagef("--workloads: there is no %q; see dlock help bench", id)
		}
		wanted[w.ID] = true
	}
	if len(wanted) == 0 {
		return nil, usagef("--workloads is empty")
	}
	return slices.DeleteFunc(all, func(w bench.Workload) bool { return !wanted[w.ID] }), nil
}

func (f *benchFlags) check() error {
	switch {
	case f.duration < 10*time.Millisecond:
		return usagef("--duration: %v is too short to measure anything", f.duration)
	case len(f.contenders) == 0 || slices.Min(f.contenders) <= 0:
		return usagef("--contenders takes numbers greater than 0")
	case f.waiters <= 0 || f.locks <= 0:
		return usagef("--waiters and --locks take a number greater than 0")
	case f.flags.Changed("prefix") && f.prefix == "":
		return usagef("--prefix is empty") // everybody's locks lie under it
	case f.flags.Changed("html") && f.html == "":
		return usagef("--html is empty")
	}
	return nil
}

func (f *benchFlags) run(ctx context.Context, a *app, urls []string) error {
	workloads, err := f.chosen()
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return err
	}
	subjects, err := newSubjects(a, urls)
	if err != nil {
		return err
	}
	var page *os.File // made before anything is measured: afterwards is too late to learn that it cannot be
	if f.html != "" {
		if page, err = os.Create(f.html); err != nil {
			return err
		}
		defer page.Close()
	}
	admitted := f.admit(ctx, a, urls, subjects)
	report := f.measure(ctx, a, workloads, admitted)
	if err := f.write(a, page, report); err != nil {
		return err
	}
	failed := len(admitted) < len(subjects)
	for _, r := range report.Results {
		if r.Error != "" {
			a.say("%s: %s: %s", r.Subject, r.Workload, r.Error)
			failed = true
		}
	}
	if failed {
		return &exitError{code: exitUnavailable} // what, and why, has been said
	}
	return nil
}

// measure runs the workloads, until a signal comes.
func (f *benchFlags) measure(ctx context.Context, a *app, workloads []bench.Workload, subjects []bench.Subject) bench.Report {
	bar := newProgressBar(a)
	defer bar.clear()
	report := bench.Report{Started: time.Now(), Machine: bench.ThisMachine(), Duration: f.duration}
	report.Results = bench.Run(ctx, bench.Config{
		Prefix: f.prefix, Duration: f.duration, Contenders: f.contenders, Waiters: f.waiters, Locks: f.locks,
		Progress: bar.show,
	}, workloads, subjects...)
	report.Complete = ctx.Err() == nil
	return report
}

// newSubjects makes a subject of each URL. What is wrong with a URL itself is told before anything is
// measured.
func newSubjects(a *app, urls []string) ([]bench.Subject, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var subjects []bench.Subject
	for _, raw := range urls {
		s, err := bench.URL(raw)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(subjects, func(other bench.Subject) bool { return other.Name == s.Name }) {
			return nil, usagef("%s is given twice", s.Name)
		}
		if !strings.HasPrefix(raw, "mem:") {
			s.Command = func() *exec.Cmd {
				cmd := exec.Command(program, benchProcess)
				cmd.Env = append(slices.Clone(a.env), "DLOCK_URL="+raw) // command lines show in ps
				return cmd
			}
		}
		subjects = append(subjects, s)
	}
	return subjects, nil
}

// admit returns the subjects that can be measured, and tells what is wrong with the others.
func (f *benchFlags) admit(ctx context.Context, a *app, urls []string, subjects []bench.Subject) (admitted []bench.Subject) {
	for i, s := range subjects {
		err := f.inspect(ctx, a, urls[i], s.Name)
		if err == nil {
			admitted = append(admitted, s)
		} else if ctx.Err() == nil {
			a.say("%s: %s", s.Name, message(err))
		}
	}
	return admitted
}

// inspect looks whether the server answers, and for locks of others under a prefix that the user
// has chosen.
func (f *benchFlags) inspect(ctx context.Context, a *app, raw, name string) error {
	client, err := dlock.Open(ctx, raw)
	if err != nil {
		return err
	}
	defer client.Close()
	if f.prefix == "" {
		return nil
	}
	for info, err := range client.List(ctx, f.prefix) {
		switch {
		case errors.Is(err, dlock.ErrUnsupported):
			a.say("%s: it cannot list locks: make sure that nobody else has any under the prefix %q", name, f.prefix)
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("under the prefix %q lie locks of others, such as %q", f.prefix, info.Key)
	}
	return nil
}

// write writes the results in the forms that are wanted.
func (f *benchFlags) write(a *app, page *os.File, report bench.Report) error {
	if page != nil {
		if err := errors.Join(bench.WriteHTML(page, report), page.Close()); err != nil {
			return err
		}
	}
	if f.json {
		return writeJSON(a.stdout, report)
	}
	return bench.WriteTable(a.stdout, report.Results)
}

// benchProcess names the hidden command of the processes that bench starts.
const benchProcess = "bench-process"

func newBenchProcess(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    benchProcess,
		Short:  "Be one of the processes of bench",
		Hidden: true,
		Args:   exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(interrupts...) // those of a terminal reach bench too, and it ends us in order
			s, err := bench.URL(a.getenv("DLOCK_URL"))
			if err != nil {
				return err
			}
			return bench.Serve(cmd.Context(), a.stdin, a.stdout, s.Open)
		},
	}
}
