// Command peers compares dlock with other libraries, on the same server and in turns:
//
//	go run . redis://localhost etcd://localhost
//
// See README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/bench"
)

const exitUsage = 64

func main() {
	if isChild() {
		signal.Ignore(os.Interrupt) // the parent ends it
		if err := serve(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "peers:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command executes the command line args and returns the exit code.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "peers:", err)
		return exitUsage
	}
	if err := c.run(ctx, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "peers:", err)
		return 1
	}
	return 0
}

// comparison is the parsed command line.
type comparison struct {
	config    bench.Config
	workloads []bench.Workload
	json      bool
	servers   []server
}

// server is dlock and its peers on one server.
type server struct {
	name     string
	subjects []bench.Subject
}

func parse(args []string, stderr io.Writer) (*comparison, error) {
	c := &comparison{}
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: peers [flags] URL…")
		flags.PrintDefaults()
	}
	flags.DurationVar(&c.config.Duration, "duration", time.Second, "to measure each row")
	flags.IntVar(&c.config.Waiters, "waiters", 1000, "of W5")
	flags.IntVar(&c.config.Locks, "locks", 10_000, "of W6")
	flags.BoolVar(&c.json, "json", false, "print a report as JSON in place of tables")
	contenders := flags.String("contenders", "2,16,128", "of W3")
	workloads := flags.String("workloads", "", "such as W1,W3; without it, all")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() == 0 {
		return nil, errors.New("no URL")
	}
	if min(c.config.Waiters, c.config.Locks) <= 0 || c.config.Duration <= 0 {
		return nil, errors.New("-duration, -waiters and -locks must be positive")
	}
	return c, errors.Join(c.takeContenders(*contenders), c.takeWorkloads(*workloads),
		c.takeURLs(flags.Args()))
}

func (c *comparison) takeContenders(list string) error {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return fmt.Errorf("-contenders: %q is no positive number", text)
		}
		c.config.Contenders = append(c.config.Contenders, n)
	}
	return nil
}

func (c *comparison) takeWorkloads(list string) error {
	if list == "" {
		c.workloads = bench.Workloads()
		return nil
	}
	for id := range strings.SplitSeq(list, ",") {
		w, ok := bench.Find(id)
		if !ok {
			return fmt.Errorf("-workloads: there is no %q", id)
		}
		c.workloads = append(c.workloads, w)
	}
	return nil
}

// takeURLs refuses two URLs of one scheme, because their results would have the same names.
func (c *comparison) takeURLs(urls []string) error {
	seen := make(map[string]bool)
	for _, raw := range urls {
		all, err := subjects(raw)
		if err != nil {
			return err
		}
		name := all[0].Name
		if seen[name] {
			return fmt.Errorf("two URLs for %s", name)
		}
		seen[name] = true
		c.servers = append(c.servers, server{name, all})
	}
	return nil
}

// run measures one server after the other. When ctx ends, it prints the results so far.
func (c *comparison) run(ctx context.Context, stdout, stderr io.Writer) error {
	report := bench.Report{
		Started: time.Now(), Machine: bench.ThisMachine(), Duration: c.config.Duration,
	}
	for _, s := range c.servers {
		if ctx.Err() != nil {
			break
		}
		results := bench.Run(ctx, c.watched(s.name, stderr), c.workloads, s.subjects...)
		report.Results = append(report.Results, results...)
		if c.json {
			continue
		}
		if err := writeTables(stdout, s.name, results); err != nil {
			return err
		}
	}
	report.Complete = ctx.Err() == nil
	if !c.json {
		return nil
	}
	encoder := json.NewEncoder(stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}

func writeTables(w io.Writer, name string, results []bench.Result) error {
	if _, err := fmt.Fprintf(w, "# %s and its peers\n\n", name); err != nil {
		return err
	}
	err := bench.WriteTable(w, results)
	fmt.Fprintln(w)
	return err
}

// watched returns a Config that reports on stderr when a workload begins.
func (c *comparison) watched(name string, stderr io.Writer) bench.Config {
	config, workload := c.config, ""
	config.Progress = func(p bench.Progress) {
		if p.Workload != workload {
			workload = p.Workload
			fmt.Fprintf(stderr, "%s: %s, %.0f %% done\n", name, workload, 100*p.Done)
		}
	}
	return config
}
