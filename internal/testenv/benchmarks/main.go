// Command benchmarks measures the five backends against servers of its own, and puts the tables and plots into the
// documentation:
//
//	go run ./internal/testenv/benchmarks [flags of dlock bench]
//
// In docs/benchmarks.md it replaces what stands between the marks of each table, and keeps the text around them; the plots
// are docs/benchmarks/*.svg. Nothing else should run on the machine meanwhile.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/bench"
	"github.com/dlock-go/dlock/internal/testenv"
)

const (
	page     = "docs/benchmarks.md"
	pictures = "docs/benchmarks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	tb := &process{ctx: ctx}
	code := tb.run(func() { generate(tb, os.Args[1:]) })
	os.Exit(code)
}

// generate measures and writes. Servers that write to disk do so as by default.
func generate(tb *process, args []string) {
	servers := []*testenv.Server{
		testenv.NewRedis(tb, "--appendonly", "no"), testenv.NewMemcached(tb), testenv.NewEtcd(tb),
		testenv.NewZooKeeper(tb, 2*time.Second), testenv.NewMySQL(tb, "--innodb-flush-log-at-trx-commit=1"),
	}
	names, urls := make(map[string]string), []string{}
	for _, s := range servers {
		names[s.URL], urls = s.Version, append(urls, s.URL)
	}
	report, err := measure(tb, args, urls)
	if err == nil {
		for i, r := range report.Results {
			report.Results[i].Subject = names[r.Subject]
		}
		err = write(report, append(slices.Clone(args), "URL…"))
	}
	if err != nil {
		tb.Fatalf("%v", err)
	}
}

// measure runs the command. Its exit code says no more than the rows do.
func measure(tb *process, args, urls []string) (report bench.Report, err error) {
	program := filepath.Join(tb.TempDir(), "dlock")
	if out, err := exec.CommandContext(tb.ctx, "go", "build", "-o", program, "./cmd/dlock").CombinedOutput(); err != nil {
		return report, fmt.Errorf("%w\n%s", err, out)
	}
	cmd := exec.Command(program, slices.Concat([]string{"bench", "--json"}, args, urls)...) // a signal reaches it too
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if len(out) == 0 {
		return report, fmt.Errorf("dlock bench: %w", err)
	}
	return report, json.Unmarshal(out, &report)
}

func write(report bench.Report, args []string) error {
	text, err := os.ReadFile(page)
	if err == nil {
		text, err = replace(text, "run", describe(report, args))
	}
	if err == nil {
		err = os.MkdirAll(pictures, 0o755)
	}
	plots := bench.Plots(report.Results)
	for _, w := range bench.Workloads() {
		if err == nil {
			text, err = writeWorkload(text, w.ID, report.Results, plots)
		}
	}
	if err != nil {
		return err
	}
	return os.WriteFile(page, text, 0o644)
}

// writeWorkload puts a table, and the plots below it.
func writeWorkload(text []byte, id string, results []bench.Result, plots []bench.Plot) ([]byte, error) {
	var content bytes.Buffer
	if err := bench.WriteMarkdown(&content, id, results); err != nil {
		return nil, err
	}
	for _, p := range plots {
		if p.Workload != id {
			continue
		}
		file := p.Name + ".svg"
		if err := os.WriteFile(filepath.Join(pictures, file), []byte(p.File()), 0o644); err != nil {
			return nil, err
		}
		fmt.Fprintf(&content, "\n![%s](%s/%s)\n", p.Title, filepath.Base(pictures), file)
	}
	return replace(text, id, content.String())
}

func describe(r bench.Report, args []string) string {
	var subjects []string
	for _, row := range r.Results {
		if !slices.Contains(subjects, row.Subject) {
			subjects = append(subjects, row.Subject)
		}
	}
	return fmt.Sprintf("    dlock bench %s\n\n%s, %s/%s, %d CPUs, %s. Servers and clients share the machine: %s.\n",
		strings.Join(args, " "), r.Started.UTC().Format("2006-01-02"), r.Machine.OS, r.Machine.Arch, r.Machine.CPUs, r.Machine.Go,
		strings.Join(subjects, ", "))
}

// replace puts content between the marks of that name.
func replace(text []byte, name, content string) ([]byte, error) {
	begin, end := fmt.Appendf(nil, "<!-- begin %s -->\n", name), fmt.Appendf(nil, "<!-- end %s -->\n", name)
	before, rest, found := bytes.Cut(text, begin)
	_, after, ended := bytes.Cut(rest, end)
	if !found || !ended {
		return nil, fmt.Errorf("%s has no marks %q", page, name)
	}
	return slices.Concat(before, begin, []byte("\n"+content+"\n"), end, after), nil
}
