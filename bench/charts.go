package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Plot is a picture of the results of a workload. It follows the reader's choice of
// a light or a dark screen.
type Plot struct {
	Workload string
	Name     string // usable as the name of a file
	Title    string
	SVG      string // an element for an HTML page
}

// File returns the plot as the content of an SVG file.
func (p Plot) File() string {
	return strings.Replace(p.SVG, "<svg ", `<svg xmlns="http://www.w3.org/2000/svg" `, 1) + "\n"
}

// Plots returns the plots for which there are results.
func Plots(results []Result) (all []Plot) {
	p := plotter{results: slices.DeleteFunc(slices.Clone(results), func(r Result) bool {
		return r.Error != "" || r.Operations == 0
	})}
	p.rank()
	for _, plot := range []Plot{
		{"W1", "latency", "Latency of an uncontended pair", ""},
		{"W2", "throughput", "Pairs per second, 64 goroutines on many locks", ""},
		{"W3", "contention", "Changes of holder per second inside a process", ""},
		{"W3", "handoff", "Median of a hand-off inside a process", ""},
		{"W4", "processes", "Changes of holder per second across processes", ""},
		{"W5", "waiting-commands", "Commands per second while all wait", ""},
		{"W5", "waiting-bytes", "Bytes per waiter", ""},
		{"W5", "waiting-drain", "Time until all waiters had their turn", ""},
		{"W6", "holding-commands", "Commands per second for held locks", ""},
		{"W6", "holding-bytes", "Bytes per held lock", ""},
		{"W7", "readers", "Pairs per second of readers of one lock", ""},
		{"W8", "permits", "Changes of holder per second of a semaphore", ""},
		{"W9", "several", "Median of LockAll and Unlock of eight names", ""},
		{"W10", "election", "Median time from the death of a leader to the next one", ""},
		{"recovery", "recovery", "Median time from kill -9 to the next holder", ""},
	} {
		if plot.SVG = p.draw(plot); plot.SVG != "" {
			all = append(all, plot)
		}
	}
	return all
}

func (p *plotter) draw(plot Plot) string {
	switch plot.Name {
	case "latency":
		return p.distribution(plot)
	case "contention":
		return p.contention(plot)
	case "throughput", "readers":
		return p.bars(plot, thousands, func(r *Result) *float64 { return r.PerSecond })
	case "processes", "permits":
		return p.bars(plot, thousands, func(r *Result) *float64 { return r.Changes })
	case "waiting-commands", "holding-commands":
		return p.bars(plot, thousands, func(r *Result) *float64 { return r.Commands })
	case "waiting-bytes", "holding-bytes":
		return p.bars(plot, thousands, func(r *Result) *float64 { return r.Bytes })
	case "waiting-drain":
		return p.bars(plot, nanoseconds, func(r *Result) *float64 { return new(float64(r.Drain)) })
	}
	return p.bars(plot, nanoseconds, median) // handoff, several, election, recovery
}

func median(r *Result) *float64 {
	if r.Latency == nil {
		return nil
	}
	return new(float64(r.Latency.P50))
}

// plotter gives each subject one colour in all plots.
type plotter struct {
	results  []Result
	subjects []string
}

func (p *plotter) rank() {
	for _, r := range p.results {
		if !slices.Contains(p.subjects, r.Subject) {
			p.subjects = append(p.subjects, r.Subject)
		}
	}
}

func (p *plotter) colour(r *Result) int { return slices.Index(p.subjects, r.Subject) }

// of returns the results of a workload.
func (p *plotter) of(workload string) (found []*Result) {
	for i := range p.results {
		if p.results[i].Workload == workload {
			found = append(found, &p.results[i])
		}
	}
	return found
}

// distribution draws latencies over quantiles. The distance of two quantiles on the axis is the
// number of nines between them.
func (p *plotter) distribution(plot Plot) string {
	c := lineChart{title: plot.Title, x: "percentile", y: "time", format: nanoseconds}
	for _, percent := range percents[1 : len(percents)-1] {
		c.xTicks = append(c.xTicks, tick{nines(percent), fmt.Sprintf("%g", percent)})
	}
	line := func(name string, colour int, dashed bool, l *Latency) {
		s := series{name: name, colour: colour, dashed: dashed}
		for _, q := range l.Quantiles {
			if q.Percent > 0 && q.Percent < 100 {
				s.points = append(s.points, point{nines(q.Percent), float64(q.Value)})
			}
		}
		c.series = append(c.series, s)
	}
	for _, r := range p.of(plot.Workload) {
		line(r.Subject, p.colour(r), false, r.Latency)
		if r.Floor != nil {
			line("floor of "+r.Subject, p.colour(r), true, r.Floor.Latency)
		}
	}
	return c.svg()
}

// nines returns zero for the median, one more for each nine above it, and one
// less for each zero below it.
func nines(percent float64) float64 {
	if percent <= 50 {
		return math.Log10(percent / 50)
	}
	return -math.Log10((100 - percent) / 50)
}

// contention draws the changes of holder over the number of contenders.
func (p *plotter) contention(plot Plot) string {
	c := lineChart{title: plot.Title, x: "contenders", y: "changes per second", format: thousands}
	for _, r := range p.of(plot.Workload) {
		if r.Changes == nil || *r.Changes <= 0 {
			continue
		}
		x := math.Log2(float64(r.Contenders))
		if !slices.ContainsFunc(c.xTicks, func(t tick) bool { return t.at == x }) {
			c.xTicks = append(c.xTicks, tick{x, fmt.Sprint(r.Contenders)})
		}
		name := labelled(r)
		i := slices.IndexFunc(c.series, func(s series) bool { return s.name == name })
		if i < 0 {
			i = len(c.series)
			c.series = append(c.series, series{name: name, colour: p.colour(r), dashed: r.Handoff})
		}
		c.series[i].points = append(c.series[i].points, point{x, *r.Changes})
	}
	slices.SortFunc(c.xTicks, func(a, b tick) int { return cmp.Compare(a.at, b.at) })
	return c.svg()
}

func labelled(r *Result) string {
	if r.Handoff && (r.Workload == "W3" || r.Workload == "W4") {
		return shorten(r.Subject, 26) + ", local"
	}
	return r.Subject
}

// bars compares a number between the results in which it is known. Of W3 it takes the results with
// the most contenders.
func (p *plotter) bars(
	plot Plot, format func(float64) string, value func(*Result) *float64,
) string {
	c := barChart{title: plot.Title, format: format}
	found := p.of(plot.Workload)
	most := 0
	for _, r := range found {
		most = max(most, r.Contenders)
	}
	for _, r := range found {
		if v := value(r); v != nil && (plot.Workload != "W3" || r.Contenders == most) {
			c.bars = append(c.bars, bar{labelled(r), p.colour(r), *v})
		}
	}
	return c.svg()
}
