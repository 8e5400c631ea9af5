package bench_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/bench"
)

// hostile is a name that a URL can have.
const hostile = `mem:<script>"&'`

// rows returns a minimal result of a run: one row per workload with few
// figures, a row that failed, and a row that is not supported.
func rows() []bench.Result {
	latency := &bench.Latency{Count: 1, P50: 5, P99: 5, Max: 5, Mean: 5}
	for _, percent := range []float64{0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 100} {
		latency.Quantiles = append(latency.Quantiles, bench.Quantile{Percent: percent, Value: 5})
	}
	rows := []bench.Result{
		{Workload: "W1", Contenders: 1, PerSecond: new(1.5), Latency: latency},
		{Workload: "W2", Contenders: 64, PerSecond: new(0.0), Latency: latency},
		{
			Workload: "W3", Contenders: 2, PerSecond: new(1e7), Changes: new(12345.6),
			Latency: latency, Jain: new(1.0),
		},
		{Workload: "W4", Contenders: 32, Processes: 4, Separate: true, Changes: new(0.0)},
		{Workload: "W5", Contenders: 9, Commands: new(0.0), Bytes: new(-3.0), Drain: time.Second},
		{Workload: "W6", Locks: 7, TTL: time.Second, Lost: new(int64(2))},
		{
			Workload: "W7", Contenders: 16, Processes: 4, PerSecond: new(4.0), Latency: latency,
			Mutex: &bench.FloorResult{PerSecond: 2, Latency: latency, Ratio: 0.5}, Writer: latency,
		},
		{Workload: "W8", Contenders: 64, Processes: 4, Changes: new(4.0), Latency: latency},
		{Workload: "W9", Contenders: 1, Processes: 1, PairCommands: new(2.0), Latency: latency},
		{Workload: "W10", Latency: latency, TTL: 4},
		{Workload: "recovery", Latency: latency},
	}
	for i := range rows {
		rows[i].Subject, rows[i].Operations = hostile, 1
	}
	return append(rows,
		bench.Result{Workload: "W1", Subject: "bad", Error: "it is broken"},
		bench.Result{Workload: "W8", Subject: "plain", Unsupported: true})
}

func TestTable(t *testing.T) {
	t.Parallel()
	var table bytes.Buffer
	if err := bench.WriteTable(&table, rows()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"W1: One lock, uncontended",
		"SUBJECT          SAMPLES  PAIRS/S  P50  P99  FLOOR P50  × FLOOR  ALLOCS  FLOOR ALLOCS",
		hostile + "  1        1.5      5ns  5ns  –          –        –       –",
		"bad              failed: it is broken",
		"",
		"W2: Many locks, uncontended",
	}
	got := strings.Split(table.String(), "\n")
	for i, line := range want {
		if got[i] != line {
			t.Errorf("line %d is %q, want %q", i, got[i], line)
		}
	}
	if err := bench.WriteTable(&table, nil); err != nil {
		t.Error(err)
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	if err := bench.WriteMarkdown(&table, "recovery", rows()); err != nil {
		t.Fatal(err)
	}
	want := "| SUBJECT | KILLS | TTL | P50 | MAX |\n|---|--:|--:|--:|--:|\n" +
		"| " + hostile + " | 1 | 0s | 5ns | 5ns |\n"
	if table.String() != want {
		t.Errorf("%s", table.String())
	}
}

// TestPlotsOnAPhone checks that the text of a plot can be read on a screen of 360 pixels, of which
// the page uses 328.
func TestPlotsOnAPhone(t *testing.T) {
	t.Parallel()
	for _, p := range bench.Plots(rows()) {
		var width, height, size float64
		_, box, _ := strings.Cut(p.SVG, `viewBox="`)
		_, font, _ := strings.Cut(p.SVG, "font:")
		font, _, _ = strings.Cut(font, "px")
		if _, err := fmt.Sscan(font, &size); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(box, "0 0 %f %f", &width, &height); err != nil {
			t.Fatal(err)
		}
		if shown := size * min(328/width, 1); shown < 10 {
			t.Errorf("%s: the text has %.1f pixels on a phone", p.Name, shown)
		}
	}
}

// TestPlots checks that each plot is well-formed, for all names and for few values.
func TestPlots(t *testing.T) {
	t.Parallel()
	plots := bench.Plots(rows())
	if len(plots) < 12 {
		t.Errorf("%d plots", len(plots))
	}
	for _, p := range plots {
		for decoder := xml.NewDecoder(strings.NewReader(p.SVG)); ; {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v\n%s", p.Name, err, p.SVG)
			}
		}
		for _, wrong := range []string{"NaN", "Inf", "%!", "<script"} {
			if strings.Contains(p.SVG, wrong) {
				t.Errorf("%s has a %s: %s", p.Name, wrong, p.SVG)
			}
		}
	}
	if plots := bench.Plots(nil); len(plots) > 0 {
		t.Errorf("%d plots of nothing", len(plots))
	}
}

func TestHTML(t *testing.T) {
	t.Parallel()
	var page bytes.Buffer
	if err := bench.WriteHTML(&page, bench.Report{Results: rows()}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"interrupted", "failed: it is broken", "not supported", "<svg", "&lt;script&gt;",
		"Closed loop",
		// A phone shows the page without zoom: a table scrolls in its own place, a plot shrinks.
		`<meta name="viewport" content="width=device-width`, `.wide { overflow-x: auto }`,
		`<div class="wide"><table>`, `.plots svg { width: 100%; height: auto }`,
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(page.String(), "<script") {
		t.Error("a name is not escaped")
	}
}
