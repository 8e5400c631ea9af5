package command

import (
	"cmp"
	"context"
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
	"github.com/dlock-go/dlock/command/internal/guard"
)

type benchFlags struct {
	sources
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
		Use:   "bench [flags] URL…",
		Short: "Compare backends",
		Long: `Measures what locks cost on the server of each URL, or of DLOCK_URL. The servers take
turns, and for each workload there is a table:

` + workloadList() + `
A floor is the fewest requests that can lock and unlock through the same client
library. The tables show costs in floors: 1 is the floor's, 2 is twice as slow. W7 to
W9 compare with a mutex that has the same contenders, and W10 with the TTL. A row
says "not supported" if the backend has no locks of that kind. The load is a closed
loop: a contender locks again after its Unlock. For workloads with several processes
dlock starts itself, except for mem:, whose locks end at the process.

All locks are under dlock-bench/ and a random word. When it is done, or interrupted,
bench frees them and removes its data. Measure on a server that does nothing else,
and not on a server that other programs need: the load is as high as it gets.

With the defaults a backend takes some forty seconds. ZooKeeper also takes the
timeout of a session, twice. An unknown value is shown as "–". The exit code is 64
for a bad URL, and 69 if a server cannot be reached or fails. The other URLs are
measured in any case.`,
		DisableFlagsInUseLine: true,
		Args:                  cobra.ArbitraryArgs,
		ValidArgsFunction:     cobra.NoFileCompletions,
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
	f.sources.register(flags)
	addDuration(flags, &f.duration, "duration", "", time.Second,
		"measure each row of the table for `DURATION`")
	flags.StringSliceVar(&f.workloads, "workloads", nil,
		"measure these `WORKLOADS` only, such as W1,W3,recovery")
	flags.IntSliceVar(&f.contenders, "contenders", []int{2, 16, 128},
		"the `NUMBERS` of goroutines that contend in W3")
	flags.IntVar(&f.waiters, "waiters", 1000, "have `N` goroutines wait in W5")
	flags.IntVar(&f.locks, "locks", 10_000, "hold `N` locks in W6")
	flags.Var((*textValue)(&f.prefix), "prefix",
		"put all locks under `PREFIX`, where there must be none yet, instead of the URL's prefix")
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
			err := usagef("--workloads: there is no %q; see dlock help bench", id)
			return nil, unquoted("--workloads", strings.Join(f.workloads, ","), err)
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
		return usagef("--prefix is empty") // all locks of the server are under it
	case f.flags.Changed("html") && f.html == "":
		return usagef("--html is empty")
	}
	return nil
}

func (f *benchFlags) run(ctx context.Context, a *app, urls []string) error {
	urls, err := f.all(ctx, a, "bench", urls)
	if err != nil {
		return err
	}
	workloads, err := f.chosen()
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return err
	}
	subjects, failed := f.subjects(ctx, a, urls)
	if len(subjects) == 0 && failed != nil {
		return failed
	}
	// The page is created first: an error must be reported before the measurement, not after it.
	var page *output
	if f.html != "" {
		if page, err = createOutput(f.html); err != nil {
			return unquoted("--html", f.html, err)
		}
		defer page.discard()
	}
	report := f.measure(ctx, a, workloads, subjects)
	if err := f.write(a, page, report); err != nil {
		return err
	}
	for _, r := range report.Results {
		if r.Error != "" {
			a.say("%s: %s: %s", r.Subject, r.Workload, r.Error)
			failed = cmp.Or(failed, error(&exitError{code: exitUnavailable}))
		}
	}
	return failed
}

// subjects returns the subjects that can be measured, and reports the errors of all other URLs.
// failed has the exit code of the first such error.
func (f *benchFlags) subjects(
	ctx context.Context, a *app, urls []string,
) (subjects []bench.Subject, failed error) {
	for i, url := range urls {
		s, err := f.subject(ctx, a, url)
		twice := slices.ContainsFunc(subjects, func(other bench.Subject) bool {
			return other.Name == s.Name
		})
		if twice {
			err = usagef("it is given twice")
		}
		if err == nil {
			subjects = append(subjects, s)
		} else if ctx.Err() == nil {
			a.say("%s: %s", urlName(url, i), message(err))
			failed = cmp.Or(failed, error(&exitError{code: exitCode(err)}))
		}
	}
	return subjects, failed
}

// subject connects to the server of url. It returns an error if the server does not answer, or if
// there are already locks under a prefix that the user has chosen.
func (f *benchFlags) subject(ctx context.Context, a *app, url string) (s bench.Subject, err error) {
	connected := url
	if f.prefix != "" {
		connected = withParameter(url, "prefix", f.prefix)
	}
	if s, err = bench.URL(connected); err != nil {
		return s, err
	}
	s.Name = urlName(url, 0)
	client, err := dlock.Open(ctx, connected)
	if err != nil {
		return s, err
	}
	defer client.Close()
	if f.prefix != "" {
		if !client.Capabilities().List {
			a.say("%s: it cannot list locks: make sure that no other program has locks under %q",
				s.Name, f.prefix)
		}
		err = refuseForeign(ctx, client, f.prefix)
	}
	if !strings.HasPrefix(url, "mem:") {
		s.Command = func() *exec.Cmd { return a.benchProcess(connected) }
	}
	return s, err
}

// measure runs the workloads until they are done, or until a signal comes.
func (f *benchFlags) measure(
	ctx context.Context, a *app, workloads []bench.Workload, subjects []bench.Subject,
) bench.Report {
	bar := newProgressBar(a)
	defer bar.clear()
	report := bench.Report{Started: time.Now(), Machine: bench.ThisMachine(), Duration: f.duration}
	report.Results = bench.Run(ctx, bench.Config{
		Duration: f.duration, Contenders: f.contenders, Waiters: f.waiters, Locks: f.locks,
		Progress: bar.show,
	}, workloads, subjects...)
	report.Complete = ctx.Err() == nil
	return report
}

// write writes the results in the forms that the flags name.
func (f *benchFlags) write(a *app, page *output, report bench.Report) error {
	if page != nil {
		if err := bench.WriteHTML(page, report); err != nil {
			return err
		}
		if err := page.done(); err != nil {
			return err
		}
	}
	if f.json {
		return writeJSON(a.stdout, report)
	}
	return bench.WriteTable(a.stdout, report.Results)
}

// benchProcess is the name of the hidden subcommand for the processes that bench starts.
const benchProcess = "bench-process"

// benchProcess returns the command line of such a process. The URL is in its environment, because
// arguments show in ps.
func (a *app) benchProcess(url string) *exec.Cmd {
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	cmd := exec.Command(program, benchProcess)
	cmd.Env = append(slices.Clone(a.env), "DLOCK_URL="+url)
	return cmd
}

func newBenchProcess(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    benchProcess,
		Short:  "Be one of the processes of bench",
		Hidden: true,
		Args:   exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A terminal sends these signals to bench as well, and bench ends this
			// process in good order.
			signal.Ignore(guard.Interrupts...)
			s, err := bench.URL(a.getenv("DLOCK_URL"))
			if err != nil {
				return err
			}
			return bench.Serve(cmd.Context(), a.stdin, a.stdout, s.Open)
		},
	}
}
