package bench

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is a run, with the facts that are needed to understand its figures.
type Report struct {
	Started time.Time `json:"started"`
	Machine Machine   `json:"machine"`
	// Duration is Config.Duration.
	Duration time.Duration `json:"duration_ns"`
	// Complete is false if the run was interrupted.
	Complete bool     `json:"complete"`
	Results  []Result `json:"results"`
}

// Machine is the machine and the program of a run.
type Machine struct {
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	CPUs    int    `json:"cpus"`
	Go      string `json:"go"`
	Version string `json:"version"` // of the main module; (devel) if it has none
}

// ThisMachine describes the machine and the program.
func ThisMachine() Machine {
	m := Machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		m.Version = info.Main.Version
	}
	return m
}

// none is shown for a value that is unknown or does not apply.
const none = "–"

// column is one column of a workload's table.
type column struct {
	head string
	cell func(*Result) string
}

// columns has the columns of each workload, after the column of the subject.
var columns = map[string][]column{
	"W1": {
		{"SAMPLES", samples},
		{"PAIRS/S", perSecond},
		{"P50", p50},
		{"P99", p99},
		{"FLOOR P50", floorCell(func(f *FloorResult) string { return latencyText(f.Latency, 50) })},
		{"× FLOOR", ratio},
		{"ALLOCS", func(r *Result) string { return number(r.Allocs) }},
		{"FLOOR ALLOCS", floorCell(func(f *FloorResult) string { return number(f.Allocs) })},
	},
	"W2": {
		{"SAMPLES", samples},
		{"PAIRS/S", perSecond},
		{"FLOOR PAIRS/S", floorCell(func(f *FloorResult) string { return number(&f.PerSecond) })},
		{"× FLOOR", ratio},
		{"P50", p50},
		{"P99", p99},
	},
	"W3": {
		{"CONTENDERS", contenders},
		{"HAND-OFF", handoff},
		{"SAMPLES", samples},
		{"CHANGES/S", changes},
		{"PAIRS/S", perSecond},
		{"P50", p50},
		{"P99", p99},
		{"JAIN", jainText},
	},
	"W4": {
		{"PROCESSES", processes},
		{"HAND-OFF", handoff},
		{"SAMPLES", samples},
		{"CHANGES/S", changes},
		{"PAIRS/S", perSecond},
		{"P50", p50},
		{"P99", p99},
		{"JAIN", jainText},
	},
	"W5": {
		{"WAITERS", contenders},
		{"COMMANDS/S", commands},
		{"CONNECTIONS", connections},
		{"BYTES/WAITER", bytesEach},
		{"GOROUTINES/WAITER", goroutines},
		{"DRAIN", func(r *Result) string { return span(r.Drain) }},
	},
	"W6": {
		{"LOCKS", locks},
		{"TTL", ttl},
		{"COMMANDS/S", commands},
		{"CONNECTIONS", connections},
		{"BYTES/LOCK", bytesEach},
		{"GOROUTINES/LOCK", goroutines},
		{"LOST", func(r *Result) string {
			return optional(r.Lost, func(n int64) string { return strconv.FormatInt(n, 10) })
		}},
	},
	"W7": {
		{"PROCESSES", processes},
		{"SAMPLES", samples},
		{"PAIRS/S", perSecond},
		{"MUTEX PAIRS/S", mutexCell(func(f *FloorResult) string { return number(&f.PerSecond) })},
		{"× MUTEX", mutexRatio},
		{"P50", p50},
		{"P95", p95},
		{"P99", p99},
		{"WRITES", func(r *Result) string { return samplesOf(r.Writer) }},
		{"WRITER P50", func(r *Result) string { return latencyText(r.Writer, 50) }},
		{"WRITER P95", func(r *Result) string { return latencyText(r.Writer, 95) }},
		{"WRITER MAX", func(r *Result) string { return latencyText(r.Writer, 100) }},
	},
	"W8": {
		{"PROCESSES", processes},
		{"SAMPLES", samples},
		{"CHANGES/S", changes},
		{"MUTEX CHANGES/S", mutexCell(func(f *FloorResult) string { return number(f.Changes) })},
		{"× MUTEX", mutexRatio},
		{"P50", p50},
		{"P95", p95},
		{"P99", p99},
		{"JAIN", jainText},
	},
	"W9": {
		{"LOCKS", locks},
		{"SAMPLES", samples},
		{"PAIRS/S", perSecond},
		{"P50", p50},
		{"P95", p95},
		{"P99", p99},
		{"MUTEX P50", mutexCell(func(f *FloorResult) string { return latencyText(f.Latency, 50) })},
		{"× MUTEX", mutexRatio},
		{"COMMANDS/PAIR", func(r *Result) string { return number(r.PairCommands) }},
	},
	"W10": {
		{"KILLS", operations},
		{"TTL", ttl},
		{"P50", p50},
		{"MAX", longestTime},
		{"× TTL", func(r *Result) string {
			return optional(r.Latency, func(l Latency) string {
				return fmt.Sprintf("%.2f", float64(l.P50)/float64(r.TTL))
			})
		}},
	},
	"recovery": {
		{"KILLS", operations},
		{"TTL", ttl},
		{"P50", p50},
		{"MAX", longestTime},
	},
}

func perSecond(r *Result) string   { return number(r.PerSecond) }
func changes(r *Result) string     { return number(r.Changes) }
func commands(r *Result) string    { return number(r.Commands) }
func connections(r *Result) string { return number(r.Connections) }
func bytesEach(r *Result) string   { return number(r.Bytes) }
func goroutines(r *Result) string  { return number(r.Goroutines) }
func p50(r *Result) string         { return latencyText(r.Latency, 50) }
func p95(r *Result) string         { return latencyText(r.Latency, 95) }
func p99(r *Result) string         { return latencyText(r.Latency, 99) }
func longestTime(r *Result) string { return latencyText(r.Latency, 100) }
func contenders(r *Result) string  { return strconv.Itoa(r.Contenders) }
func locks(r *Result) string       { return strconv.Itoa(r.Locks) }
func operations(r *Result) string  { return strconv.FormatInt(r.Operations, 10) }
func ttl(r *Result) string         { return r.TTL.String() }

// samples returns the number of durations behind the percentiles.
func samples(r *Result) string { return samplesOf(r.Latency) }

func samplesOf(l *Latency) string {
	return optional(l, func(l Latency) string { return strconv.FormatInt(l.Count, 10) })
}

func ratio(r *Result) string {
	return floorCell(func(f *FloorResult) string { return fmt.Sprintf("%.2f", f.Ratio) })(r)
}

func jainText(r *Result) string {
	return optional(r.Jain, func(f float64) string { return fmt.Sprintf("%.3f", f) })
}

func handoff(r *Result) string {
	if r.Handoff {
		return "local"
	}
	return none
}

// processes returns the numbers of processes and contenders, and whether connections
// took the place of processes.
func processes(r *Result) string {
	if r.Separate {
		return fmt.Sprintf("%d × %d", r.Processes, r.Contenders/r.Processes)
	}
	return fmt.Sprintf("%d × %d, connections of one process", r.Processes, r.Contenders/r.Processes)
}

func floorCell(text func(*FloorResult) string) func(*Result) string {
	return func(r *Result) string {
		if r.Floor == nil {
			return none
		}
		return text(r.Floor)
	}
}

func mutexCell(text func(*FloorResult) string) func(*Result) string {
	return func(r *Result) string {
		if r.Mutex == nil {
			return none
		}
		return text(r.Mutex)
	}
}

// mutexRatio has more digits than ratio, because many readers cost little.
func mutexRatio(r *Result) string {
	return mutexCell(func(f *FloorResult) string { return fmt.Sprintf("%.3f", f.Ratio) })(r)
}

func optional[T any](v *T, text func(T) string) string {
	if v == nil {
		return none
	}
	return text(*v)
}

// number formats a number with three significant digits, but with all digits before the point.
func number(f *float64) string { return optional(f, compact) }

func compact(f float64) string {
	switch size := math.Abs(f); {
	case size >= 100:
		return strconv.FormatFloat(f, 'f', 0, 64)
	case size < 0.005:
		return "0"
	case size < 1:
		return strconv.FormatFloat(f, 'f', 2, 64)
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}

func latencyText(l *Latency, percent float64) string {
	if l == nil {
		return none
	}
	i := slices.IndexFunc(l.Quantiles, func(q Quantile) bool { return q.Percent == percent })
	if i < 0 {
		return none
	}
	return span(l.Quantiles[i].Value)
}

// span formats a duration with three digits.
func span(d time.Duration) string {
	if d <= 0 {
		return none
	}
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

// section is the table of one workload.
type section struct {
	Workload
	Columns []column
	Results []*Result
}

// Heads returns the heads of the columns.
func (s section) Heads() []string {
	heads := []string{"SUBJECT"}
	for _, c := range s.Columns {
		heads = append(heads, c.head)
	}
	return heads
}

// Cells returns the cells of one row. A row without figures has its subject and the reason.
func (s section) Cells(r *Result) []string {
	if r.Error != "" {
		return []string{r.Subject, "failed: " + r.Error}
	}
	if r.Unsupported {
		return []string{r.Subject, "not supported"}
	}
	cells := []string{r.Subject}
	for _, c := range s.Columns {
		cells = append(cells, c.cell(r))
	}
	return cells
}

// sections groups results by workload, in the order of the workloads.
func sections(results []Result) (all []section) {
	for _, w := range Workloads() {
		s := section{Workload: w, Columns: columns[w.ID]}
		for i := range results {
			if results[i].Workload == w.ID {
				s.Results = append(s.Results, &results[i])
			}
		}
		if len(s.Results) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// reading explains how the figures were made, and how to read them.
const reading = "Closed loop: a contender sends its next request after its Unlock, " +
	"so a stall of the server delays few requests. " +
	"× FLOOR is the cost in floors: 1 is the floor's, 2 is twice as slow, in every table. " +
	"× MUTEX and × TTL are the same for a mutex without hand-offs, and for the TTL. " +
	"A percentile with no sample beyond it is not shown, except P50."

// WriteTable writes a table for each workload, and an explanation of the figures.
func WriteTable(w io.Writer, results []Result) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, s := range sections(results) {
		if i > 0 {
			fmt.Fprintln(table)
		}
		fmt.Fprintf(table, "%s: %s\n", s.ID, s.Title)
		writeCells(table, s.Heads())
		for _, r := range s.Results {
			writeCells(table, s.Cells(r))
		}
		if err := table.Flush(); err != nil { // each table has its own column widths
			return err
		}
	}
	if len(results) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.ReplaceAll(reading, ". ", ".\n"))
	return err
}

func writeCells(w io.Writer, cells []string) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, cell)
	}
	fmt.Fprintln(w)
}

// WriteMarkdown writes the table of one workload in Markdown, and nothing if it has no results.
func WriteMarkdown(w io.Writer, workload string, results []Result) error {
	var b strings.Builder
	row := func(cells []string) {
		for _, cell := range cells {
			b.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
	}
	for _, s := range sections(results) {
		if s.ID != workload {
			continue
		}
		row(s.Heads())
		b.WriteString("|---|" + strings.Repeat("--:|", len(s.Columns)) + "\n")
		for _, r := range s.Results {
			row(s.Cells(r))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
