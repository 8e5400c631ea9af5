// Command benchmarks measures the backends, and other libraries for their servers. It starts the
// servers itself, and writes the tables and plots into the documentation:
//
//	go run ./internal/testenv/benchmarks [flags]
//
// The backends are in docs/benchmarks.md, the other libraries in bench/peers/README.md. In both
// pages it replaces the text between the marks of each table and keeps all other text. The plots
// are in the folder benchmarks next to the page. No other program should use the machine at the
// same time.
//
// With -compare COMMIT it writes no page. It measures the dlock of that commit and the dlock of
// this tree in turns, and prints what the change costs.
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

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
	"github.com/dlock-go/dlock/internal/testenv"
)

const (
	backendsPage document = "docs/benchmarks.md"
	peersPage    document = "bench/peers/README.md"
	peers                 = "bench/peers" // a separate module
)

func main() {
	duration := flag.Duration("duration", time.Second,
		"the time for each row of the backends; 0: do not measure them")
	peersDuration := flag.Duration("peers-duration", 500*time.Millisecond,
		"the time for each row with other libraries; 0: do not measure them")
	only := flag.String("only", "",
		"the only server to measure with other libraries or with -compare: mysql, or mem")
	compared := flag.String("compare", "",
		"compare this tree with a `commit` in turns, and print a table")
	rounds := flag.Int("rounds", 10, "with -compare: the number of turns of each of the two")
	workloads := flag.String("workloads", "W1,W2,W3,W4,W5,W6", "with -compare: the workloads")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	tb := testenv.NewProgram(ctx, "benchmarks")
	code := tb.Run(func() {
		if *compared != "" {
			args := []string{"--duration", duration.String(), "--workloads", *workloads}
			compare(tb, comparison{commit: *compared, rounds: *rounds, only: *only, args: args})
			return
		}
		generate(tb, *duration, *peersDuration, *only)
	})
	os.Exit(code)
}

// startServers starts a server of each kind, or the only one. The servers write to disk as they do
// by default, except ZooKeeper, which does not wait for the disk.
func startServers(tb testenv.TB, only string) (servers []*testenv.Server) {
	for _, s := range []struct {
		name  string
		start func() *testenv.Server
	}{
		{"redis", func() *testenv.Server { return testenv.NewRedis(tb, "--appendonly", "no") }},
		{"memcached", func() *testenv.Server { return testenv.NewMemcached(tb) }},
		{"etcd", func() *testenv.Server { return testenv.NewEtcd(tb, "--unsafe-no-fsync=false") }},
		{"zookeeper", func() *testenv.Server { return testenv.NewZooKeeper(tb, 2*time.Second) }},
		{"mysql", func() *testenv.Server {
			return testenv.NewMySQL(tb,
				"--innodb-flush-method=O_DIRECT", "--max-connections=1500")
		}},
		{"postgres", func() *testenv.Server {
			return testenv.NewPostgres(tb, "-c", "max_connections=1500")
		}},
	} {
		if only == "" || only == s.name {
			servers = append(servers, s.start())
		}
	}
	return servers
}

// generate measures and writes.
func generate(tb *testenv.Program, duration, peersDuration time.Duration, only string) {
	servers := startServers(tb, "")
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

// subject is a URL to measure, and the name of its rows.
type subject struct{ url, name string }

// subjectsOf returns the locks of a server, and its locks of a session if it has them. The names of
// their rows are short: a table wraps at spaces, and a phone has room for few letters.
func subjectsOf(s *testenv.Server) []subject {
	url := s.DirectURL()
	all := []subject{{url, s.Version}}
	if s.Name != "mysql" && s.Name != "postgres" {
		return all
	}
	return append(all, subject{withParameter(url, "lock=session"), s.Version + ", session"})
}

func withParameter(url, parameter string) string {
	separator := "?"
	if strings.Contains(url, separator) {
		separator = "&"
	}
	return url + separator + parameter
}

func compareBackends(tb *testenv.Program, duration time.Duration, servers []*testenv.Server) error {
	names := make(map[string]string)
	var versions []string
	args := []string{"bench", "--json", "--duration", duration.String()}
	for _, s := range servers {
		versions = append(versions, s.Version)
		for _, subject := range subjectsOf(s) {
			u, err := backend.ParseURL(subject.url)
			if err != nil {
				return err
			}
			names[u.String()] = subject.name // without the password, as in the report
			args = append(args, subject.url)
		}
	}
	report, err := measure(tb, ".", "./cmd/dlock", args)
	if err != nil {
		return err
	}
	for i, r := range report.Results {
		report.Results[i].Subject = names[r.Subject]
	}
	command := fmt.Sprintf("dlock bench --duration %v URL…", duration)
	return write(report, describe(report, command, versions))
}

// measure builds a program and runs it.
func measure(
	tb *testenv.Program, dir, source string, args []string,
) (report bench.Report, err error) {
	program, err := build(tb, dir, source)
	if err != nil {
		return report, err
	}
	return runProgram(program, args)
}

// build builds the program of a module in dir, and returns its path.
func build(tb *testenv.Program, dir, source string) (program string, err error) {
	program = filepath.Join(tb.TempDir(), "program")
	cmd := exec.CommandContext(tb.Context(), "go", "build", "-o", program, source)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
}

// runProgram runs a program that writes a report. It ignores the exit code, which has no more
// information than the rows.
func runProgram(program string, args []string) (report bench.Report, err error) {
	cmd := exec.Command(program, args...) // a signal reaches it, too
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if len(out) == 0 {
		return report, fmt.Errorf("%v: %w", args, err)
	}
	return report, json.Unmarshal(out, &report)
}

// comparePeers writes the tables and plots of one server. Each workload has its own heading.
func comparePeers(tb *testenv.Program, duration time.Duration, s *testenv.Server) error {
	args := []string{"-json", "-duration", duration.String(), s.DirectURL()}
	report, err := measure(tb, peers, ".", args)
	if err != nil {
		return err
	}
	var content strings.Builder
	fmt.Fprintf(&content, "    cd %s && go run . -duration %v URL\n\n%s.\n",
		peers, duration, s.Version)
	for _, w := range bench.Workloads() {
		part, err := peersPage.illustrate(w.ID, report.Results, s.Name+"-")
		if err != nil {
			return err
		}
		title := strings.ToLower(w.Title[:1]) + w.Title[1:]
		fmt.Fprintf(&content, "\n%s: %s\n\n%s", w.ID, title, part)
	}
	return peersPage.edit(map[string]string{"peers-" + s.Name: content.String()})
}

// write writes the tables and plots of the backends, and how they were made.
func write(report bench.Report, run string) error {
	contents := map[string]string{"run": run}
	for _, w := range bench.Workloads() {
		part, err := backendsPage.illustrate(w.ID, report.Results, "")
		if err != nil {
			return err
		}
		contents[w.ID] = part
	}
	return backendsPage.edit(contents)
}

// document is the file of a page with tables and plots.
type document string

// pictures returns the folder of the plots.
func (d document) pictures() string { return filepath.Join(filepath.Dir(string(d)), "benchmarks") }

// illustrate returns the table of a workload, followed by its plots. It also writes the files of
// the plots.
func (d document) illustrate(
	workload string, results []bench.Result, prefix string,
) (string, error) {
	var content strings.Builder
	folder := d.pictures()
	err := errors.Join(bench.WriteMarkdown(&content, workload, results), os.MkdirAll(folder, 0o755))
	for _, p := range bench.Plots(results) {
		if p.Workload != workload {
			continue
		}
		file := prefix + p.Name + ".svg"
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, file), []byte(p.File()), 0o644))
		fmt.Fprintf(&content, "\n![%s](%s/%s)\n", p.Title, filepath.Base(folder), file)
	}
	return content.String(), err
}

// edit replaces the text between the marks of each name by its content.
func (d document) edit(contents map[string]string) error {
	text, err := os.ReadFile(string(d))
	for name, content := range contents {
		if err == nil {
			text, err = d.replace(text, name, content)
		}
	}
	if err != nil {
		return err
	}
	return os.WriteFile(string(d), text, 0o644)
}

// replace replaces the text between the marks of that name by content.
func (d document) replace(text []byte, name, content string) ([]byte, error) {
	begin := fmt.Appendf(nil, "<!-- begin %s -->\n", name)
	end := fmt.Appendf(nil, "<!-- end %s -->\n", name)
	before, rest, found := bytes.Cut(text, begin)
	_, after, ended := bytes.Cut(rest, end)
	if !found || !ended {
		return nil, fmt.Errorf("%s has no marks %q", d, name)
	}
	return slices.Concat(before, begin, []byte("\n"+content+"\n"), end, after), nil
}

func describe(r bench.Report, command string, servers []string) string {
	m := r.Machine
	machine := fmt.Sprintf("%s/%s, %d CPUs, %s", m.OS, m.Arch, m.CPUs, m.Go)
	return fmt.Sprintf("    %s\n\n%s, %s.\nServers and clients share the machine:\n%s.\n",
		command, r.Started.UTC().Format("2006-01-02"), machine, strings.Join(servers, ", "))
}
