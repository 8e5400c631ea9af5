package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/bench"
	"github.com/dlock-go/dlock/internal/testenv"
)

// comparison is a comparison of a commit with this tree.
type comparison struct {
	commit string
	rounds int
	only   string   // the only server; empty for all
	args   []string // of dlock bench, without a URL
}

// compare builds the dlock of the commit and the dlock of this tree, and lets them measure each
// server in turns. A server that one of them does not know is left out. compare prints the table at
// its end, also after an interrupt.
func compare(tb *testenv.Program, c comparison) {
	before, err := buildCommit(tb, c.commit)
	if err != nil {
		tb.Fatalf("%s: %v", c.commit, err)
	}
	after, err := build(tb, ".", "./cmd/dlock")
	if err != nil {
		tb.Fatalf("this tree: %v", err)
	}
	places := placesOf(tb, c.only)
	if len(places) == 0 {
		tb.Fatalf("there is no server %q", c.only)
	}
	rows := make(pairs)
	for round := range c.rounds {
		places = slices.DeleteFunc(places, func(p place) bool {
			if tb.Context().Err() != nil {
				return true
			}
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, c.rounds, p.name)
			err := c.turn(rows, p, before, after, round%2 == 1)
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s is left out: %v\n", p.name, err)
			}
			return err != nil
		})
	}
	rows.write(os.Stdout)
}

var errNothing = errors.New("one of the two has measured nothing")

// turn lets both programs measure one place. The first one has the better caches, so each of them
// is the first one in every second round.
func (c comparison) turn(rows pairs, p place, before, after string, isReversed bool) error {
	programs := []string{before, after}
	order := []int{0, 1}
	if isReversed {
		slices.Reverse(order)
	}
	var reports [2]bench.Report
	for _, i := range order {
		var err error
		args := append(slices.Concat([]string{"bench", "--json"}, c.args), p.urls[i])
		if reports[i], err = runProgram(programs[i], args); err != nil {
			return err
		}
		if len(reports[i].Results) == 0 {
			return errNothing
		}
	}
	rows.add(p.name, reports[0].Results, reports[1].Results)
	return nil
}

// buildCommit builds the dlock of a commit, and returns its path.
func buildCommit(tb *testenv.Program, commit string) (string, error) {
	dir := tb.TempDir()
	script := `set -o pipefail; git archive --format=tar "$0" | tar -xf - -C "$1"`
	cmd := exec.CommandContext(tb.Context(), "bash", "-c", script, commit, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return build(tb, dir, "./cmd/dlock")
}

// place is something to measure, with a URL for each program.
type place struct {
	name string
	urls [2]string
}

// placesOf returns the places without a server and the servers. A table of locks can change its
// shape, so that each program has its own table.
func placesOf(tb *testenv.Program, only string) (places []place) {
	file := "file:" + tb.TempDir()
	places = []place{{"mem", [2]string{"mem:", "mem:"}}, {"file", [2]string{file, file}}}
	places = slices.DeleteFunc(places, func(p place) bool { return only != "" && only != p.name })
	for _, s := range startServers(tb, only) {
		p := place{s.Name, [2]string{s.DirectURL(), s.DirectURL()}}
		if s.Name == "mysql" || s.Name == "postgres" {
			for i, table := range []string{"before", "after"} {
				p.urls[i] = withParameter(p.urls[i], "table=dlock_"+table)
			}
		}
		places = append(places, p)
	}
	return places
}

// figure is a figure of a row. A rate is the better, the higher it is; all other figures are costs.
type figure struct {
	name   string
	isRate bool
	value  func(*bench.Result) *float64
}

// figures has the figures of each workload that the comparison shows.
var figures = map[string][]figure{
	"W1": {
		{"p50, µs", false, median50},
		{"× floor", false, floorRatio},
		{"allocations", false, func(r *bench.Result) *float64 { return r.Allocs }},
	},
	"W2": {{"pairs/s", true, perSecond}, {"× floor", false, floorRatio}},
	"W3": {{"changes/s", true, changes}, {"pairs/s", true, perSecond}},
	"W4": {{"changes/s", true, changes}, {"pairs/s", true, perSecond}},
	"W5": {{"drain, ms", false, drain}, {"bytes/waiter", false, bytesEach}},
	"W6": {{"bytes/lock", false, bytesEach}},
	"W7": {{"pairs/s", true, perSecond}, {"p50, µs", false, median50}},
	"W8": {{"changes/s", true, changes}, {"p50, µs", false, median50}},
	"W9": {{"pairs/s", true, perSecond}, {"p50, µs", false, median50}},
}

func perSecond(r *bench.Result) *float64 { return r.PerSecond }
func changes(r *bench.Result) *float64   { return r.Changes }
func bytesEach(r *bench.Result) *float64 { return r.Bytes }

func median50(r *bench.Result) *float64 {
	if r.Latency == nil {
		return nil
	}
	return new(float64(r.Latency.P50) / 1e3)
}

func floorRatio(r *bench.Result) *float64 {
	if r.Floor == nil {
		return nil
	}
	return &r.Floor.Ratio
}

func drain(r *bench.Result) *float64 {
	if r.Drain == 0 {
		return nil
	}
	return new(float64(r.Drain) / 1e6)
}

// pairs has the pairs of figures of each row, one of each round.
type pairs map[row][]pair

// row is a row of the table.
type row struct {
	workload, place, load, figure string
	isRate                        bool
}

// pair has the figures of the same round.
type pair struct{ before, after float64 }

// cost returns the costs after the change, in costs before it.
func (p pair) cost(isRate bool) float64 {
	if isRate {
		return p.before / p.after
	}
	return p.after / p.before
}

// add adds the figures of one round. A row that one of the two programs does not have, or in which
// a figure is missing, is left out.
func (p pairs) add(place string, before, after []bench.Result) {
	for i := range after {
		load := loadOf(&after[i])
		j := slices.IndexFunc(before, func(r bench.Result) bool {
			return r.Workload == after[i].Workload && loadOf(&r) == load
		})
		if j < 0 {
			continue
		}
		for _, f := range figures[after[i].Workload] {
			b, a := f.value(&before[j]), f.value(&after[i])
			if b == nil || a == nil || *b <= 0 || *a <= 0 {
				continue
			}
			r := row{after[i].Workload, place, load, f.name, f.isRate}
			p[r] = append(p[r], pair{*b, *a})
		}
	}
}

// loadOf describes the load of a row.
func loadOf(r *bench.Result) string {
	words := []string{fmt.Sprint(r.Contenders)}
	if r.Locks > 1 {
		words = append(words, fmt.Sprintf("%d locks", r.Locks))
	}
	if r.Processes > 1 {
		words = append(words, fmt.Sprintf("in %d processes", r.Processes))
	}
	if r.Handoff {
		words = append(words, "local")
	}
	return strings.Join(words, ", ")
}

// write prints a table with the medians. The costs of a pair are compared with each other: the
// speed of the machine changes from one round to the next one.
func (p pairs) write(w io.Writer) {
	fmt.Fprintln(w, "| | server | load | figure | before | after | cost | quartiles | rounds |")
	fmt.Fprintln(w, "|---|---|---|---|--:|--:|--:|---|--:|")
	for _, r := range slices.SortedFunc(maps.Keys(p), compareRows) {
		var before, after, costs []float64
		for _, pair := range p[r] {
			before, after = append(before, pair.before), append(after, pair.after)
			costs = append(costs, pair.cost(r.isRate))
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %.4g | %.4g | %.3f | %.2f–%.2f | %d |\n",
			r.workload, r.place, r.load, r.figure, quantile(before, 2), quantile(after, 2),
			quantile(costs, 2), quantile(costs, 1), quantile(costs, 3), len(costs))
	}
}

func compareRows(a, b row) int {
	return cmp.Or(cmp.Compare(a.workload, b.workload), cmp.Compare(a.place, b.place),
		cmp.Compare(a.load, b.load), cmp.Compare(a.figure, b.figure))
}

// quantile returns a quartile of the values, or their median for 2.
func quantile(values []float64, quarters int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := float64(len(sorted)-1) * float64(quarters) / 4
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (sorted[high]-sorted[low])*(at-float64(low))
}
