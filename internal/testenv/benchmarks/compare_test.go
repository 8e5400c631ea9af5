package main

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/bench"
)

// resultsOf returns the results of one turn: W1 with a latency, and W3 with a rate.
func resultsOf(latency time.Duration, rate float64) []bench.Result {
	return []bench.Result{
		{Workload: "W1", Contenders: 1, Latency: &bench.Latency{P50: latency}},
		{Workload: "W3", Contenders: 16, Handoff: true, Changes: &rate},
	}
}

// A cost above 1 means that the change costs something, for times as well as for rates. The rounds
// are compared one by one: in each of them the machine has another speed.
func TestCompareRounds(t *testing.T) {
	rows := make(pairs)
	for round := range 4 {
		speed := float64(int(1) << round)
		slower := time.Duration(speed * float64(time.Millisecond))
		rows.add("redis", resultsOf(slower, speed), resultsOf(2*slower, speed/2))
	}
	var table strings.Builder
	rows.write(&table)
	for _, want := range []string{
		"| W1 | redis | 1 | p50, µs | 3000 | 6000 | 2.000 | 2.00–2.00 | 4 |\n",
		"| W3 | redis | 16, local | changes/s | 3 | 1.5 | 2.000 | 2.00–2.00 | 4 |\n",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table has no line %q:\n%s", want, &table)
		}
	}
}

// A row is left out if one of the two programs does not have it, or if a figure is missing.
func TestCompareOnlyCommonRows(t *testing.T) {
	rows := make(pairs)
	rows.add("mem", resultsOf(time.Second, 1)[:1], resultsOf(time.Second, 1)) // no W3 before
	rows.add("mem", []bench.Result{{Workload: "W1", Contenders: 1}}, resultsOf(time.Second, 1))
	rows.add("mem", resultsOf(time.Second, 0), resultsOf(time.Second, 1))
	for r, rounds := range rows {
		if r.workload != "W1" || len(rounds) != 2 {
			t.Errorf("%v has %d rounds", r, len(rounds))
		}
	}
	if len(rows) != 1 {
		t.Errorf("%d rows, want 1", len(rows))
	}
}

func TestQuantile(t *testing.T) {
	for quarters, want := range []float64{1, 1.75, 2.5, 3.25, 4} {
		if got := quantile([]float64{4, 1, 3, 2}, quarters); got != want {
			t.Errorf("the quantile %d/4 is %v, want %v", quarters, got, want)
		}
	}
}
