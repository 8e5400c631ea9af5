// Command benchmarks measures the five backends, and beside each the other libraries for its server, against
// servers of its own, and puts the tables and plots into the documentation:
//
//	go run ./internal/testenv/benchmarks [flags]
//
// In docs/benchmarks.md it replaces what stands between the marks of each table, and keeps the text around them; the plots
// are docs/benchmarks/*.svg. Nothing else should run on the machine meanwhile.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
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
	peers    = "bench/peers" // a module of its own
)

func main() {
	duration := flag.Duration("duration", time.Second, "to measure each row of the backends; 0: not at all")
	peersDuration := flag.Duration("peers-duration", 500*time.Millisecond, "to measure each row beside other libraries; 0: not at all")
	only := flag.String("only", "", "the one server to measure beside other libraries, such as mysql")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	tb := testenv.NewProgram(ctx, "benchmarks")
	code := tb.Run(func() { generate(tb, *duration, *peersDuration, *only) })
	os.Exit(code)
}

// generate measures and writes. Servers that write to disk do so as by default; ZooKeeper's alone do not wait for it.
func generate(tb *testenv.Program, duration, peersDuration time.Duration, only string) {
	servers := []*testenv.Server{
		testenv.NewRedis(tb, "--appendonly", "no"), testenv.NewMemcached(tb), testenv.NewEtcd(tb),
		testenv.NewZooKeeper(tb, 2*time.Second),
		testenv.NewMySQL(tb, "--innodb-flush-log-at-trx-commit=1", "--max-connections=1500"),
	}
	var err error
	if duration > 0 {
		err = compareBackends(tb, duration, servers)
	}
	for _, s := range servers {
		if err == nil && peersDuration > 0 && (only == "" || only == s.Name) {
			err = comparePeers(tb, peersDuration, s)
		}
	}
	if err != nil {
		tb.Fatalf("%v", err)
	}
}

func compareBackends(tb *testenv.Program, duration time.Duration, servers []*testenv.Server) error {
	names, args := make(map[string]string), []string{"bench", "--json", "--duration", duration.String()}
	for _, s := range servers {
		url := s.DirectURL()
		names[url], args = s.Version, append(args, url)
	}
	report, err := measure(tb, ".", "./cmd/dlock", args)
	if err != nil {
		return err
	}
	for i, r := range report.Results {
		report.Results[i].Subject = names[r.Subject]
	}
	return write(report, fmt.Sprintf("dlock bench --duration %v URL…", duration))
}

// measure builds a program and runs it. Its exit code says no more than the rows do.
func measure(tb *testenv.Program, dir, source string, args []string) (report bench.Report, err error) {
	program := filepath.Join(tb.TempDir(), "program")
	build := exec.CommandContext(tb.Context(), "go", "build", "-o", program, source)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return report, fmt.Errorf("%w\n%s", err, out)
	}
	cmd := exec.Command(program, args...) // a signal reaches it too
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if len(out) == 0 {
		return report, fmt.Errorf("%v: %w", args, err)
	}
	return report, json.Unmarshal(out, &report)
}

// comparePeers writes the tables and plots of one server, each workload below a heading of its own.
func comparePeers(tb *testenv.Program, duration time.Duration, s *testenv.Server) error {
	report, err := measure(tb, peers, ".", []string{"-json", "-duration", duration.String(), s.DirectURL()})
	if err != nil {
		return err
	}
	var content strings.Builder
	fmt.Fprintf(&content, "    cd %s && go run . -duration %v URL\n\n%s.\n", peers, duration, s.Version)
	for _, w := range bench.Workloads() {
		part, err := illustrate(w.ID, report.Results, s.Name+"-")
		if err != nil {
			return err
		}
		fmt.Fprintf(&content, "\n%s: %s\n\n%s", w.ID, strings.ToLower(w.Title[:1])+w.Title[1:], part)
	}
	return edit(map[string]string{"peers-" + s.Name: content.String()})
}

// write puts the tables and plots of the backends.
func write(report bench.Report, command string) error {
	contents := map[string]string{"run": describe(report, command)}
	for _, w := range bench.Workloads() {
		part, err := illustrate(w.ID, report.Results, "")
		if err != nil {
			return err
		}
		contents[w.ID] = part
	}
	return edit(contents)
}

// illustrate returns the table of a workload and below it the plots, of which it writes the files.
func illustrate(workload string, results []bench.Result, prefix string) (string, error) {
	var content strings.Builder
	err := errors.Join(bench.WriteMarkdown(&content, workload, results), os.MkdirAll(pictures, 0o755))
	for _, p := range bench.Plots(results) {
		if p.Workload != workload {
			continue
		}
		file := prefix + p.Name + ".svg"
		err = errors.Join(err, os.WriteFile(filepath.Join(pictures, file), []byte(p.File()), 0o644))
		fmt.Fprintf(&content, "\n![%s](%s/%s)\n", p.Title, filepath.Base(pictures), file)
	}
	return content.String(), err
}

// edit puts each content between the marks of its name.
func edit(contents map[string]string) error {
	text, err := os.ReadFile(page)
	for name, content := range contents {
		if err == nil {
			text, err = replace(text, name, content)
		}
	}
	if err != nil {
		return err
	}
	return os.WriteFile(page, text, 0o644)
}

func describe(r bench.Report, command string) string {
	var subjects []string
	for _, row := range r.Results {
		if !slices.Contains(subjects, row.Subject) {
			subjects = append(subjects, row.Subject)
		}
	}
	return fmt.Sprintf("    %s\n\n%s, %s/%s, %d CPUs, %s. Servers and clients share the machine: %s.\n",
		command, r.Started.UTC().Format("2006-01-02"), r.Machine.OS, r.Machine.Arch, r.Machine.CPUs, r.Machine.Go,
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
