package bench

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Plots are SVG pictures with their own style, which follows the reader's choice of light or dark.
// One unit of the coordinates is one pixel on a wide screen. The plots are narrow, because a phone
// shrinks them with their text.
const (
	plotWidth   = 400
	plotHeight  = 300
	marginLeft  = 64
	marginRight = 16
	marginTop   = 34
	axisHeight  = 40 // below the plot
	lineHeight  = 18
)

const plotStyle = `<style>
.dl-plot{font:13px system-ui,sans-serif;--dl-ink:#222;--dl-grid:#ddd}
@media(prefers-color-scheme:dark){.dl-plot{--dl-ink:#ddd;--dl-grid:#444}}
.dl-plot text{fill:var(--dl-ink)}
.dl-plot .title{font-weight:600}
.dl-plot .grid{stroke:var(--dl-grid)}
.dl-plot .line{fill:none;stroke-width:2}
</style>`

// palette has colours that differ on white and on black, also for most
// readers with colour blindness.
var palette = []string{
	"#3b82c4", "#e8883a", "#46a06b", "#d0557a", "#9a77d0", "#2aa9b0", "#b59a2f", "#8a8f98",
}

func colour(i int) string { return palette[i%len(palette)] }

type point struct{ x, y float64 }

type series struct {
	name   string
	colour int
	dashed bool
	points []point
}

// tick is a mark on an axis.
type tick struct {
	at   float64
	text string
}

// lineChart has a logarithmic y-axis; its x-axis goes over the ticks.
type lineChart struct {
	title, x, y string
	xTicks      []tick
	series      []series
	format      func(float64) string // of y
}

// svg returns nothing for a chart without points.
func (c lineChart) svg() string {
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range c.series {
		for _, p := range s.points {
			low, high = min(low, p.y), max(high, p.y)
		}
	}
	if low > high {
		return ""
	}
	yTicks := logTicks(low, high, c.format)
	low, high = min(low, yTicks[0].at), max(high, yTicks[len(yTicks)-1].at)
	first, last := c.xTicks[0].at, c.xTicks[len(c.xTicks)-1].at
	scaleX := func(x float64) float64 {
		return marginLeft + share(x, first, last)*(plotWidth-marginLeft-marginRight)
	}
	scaleY := func(y float64) float64 {
		return plotHeight - share(math.Log(y), math.Log(low), math.Log(high))*(plotHeight-marginTop)
	}
	var b strings.Builder
	for _, t := range yTicks {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1[3]f"/>`,
			marginLeft, plotWidth-marginRight, scaleY(t.at))
		text(&b, marginLeft-6, scaleY(t.at)+4, "end", t.text)
	}
	for _, t := range c.xTicks {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1[1]f" y1="%d" y2="%d"/>`,
			scaleX(t.at), marginTop, plotHeight)
		text(&b, scaleX(t.at), plotHeight+16, "middle", t.text)
	}
	text(&b, (marginLeft+plotWidth-marginRight)/2, plotHeight+34, "middle", c.x+" · "+c.y)
	for i, s := range c.series {
		c.draw(&b, s, scaleX, scaleY)
		legend(&b, i, s)
	}
	return frame(c.title, plotHeight+axisHeight+len(c.series)*lineHeight+4, b.String())
}

func (c lineChart) draw(b *strings.Builder, s series, scaleX, scaleY func(float64) float64) {
	var path []string
	for _, p := range s.points {
		path = append(path, fmt.Sprintf("%.1f,%.1f", scaleX(p.x), scaleY(p.y)))
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s: %s</title></circle>`,
			scaleX(p.x), scaleY(p.y), colour(s.colour), html.EscapeString(s.name), c.format(p.y))
	}
	fmt.Fprintf(b, `<polyline class="line" points="%s" stroke="%s"%s/>`,
		strings.Join(path, " "), colour(s.colour), dash(s.dashed))
}

func dash(dashed bool) string {
	if dashed {
		return ` stroke-dasharray="6 4"`
	}
	return ""
}

// legend draws an entry of the legend, which is below the axis.
func legend(b *strings.Builder, i int, s series) {
	x, y := float64(marginLeft), float64(plotHeight+axisHeight+12+i*lineHeight)
	fmt.Fprintf(b, `<line class="line" x1="%.0f" x2="%.0f" y1="%.0f" y2="%.0[3]f" stroke="%s"%s/>`,
		x, x+22, y-4, colour(s.colour), dash(s.dashed))
	text(b, x+28, y, "start", shorten(s.name, 36))
}

func text(b *strings.Builder, x, y float64, anchor, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`,
		x, y, anchor, html.EscapeString(s))
}

// shorten keeps both ends of a name, because a URL has its parameters at the end.
func shorten(s string, most int) string {
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return string(runes[:most/2]) + "…" + string(runes[len(runes)-most/2+1:])
}

func frame(title string, height int, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="dl-plot" viewBox="0 0 %d %d" role="img" aria-label="%s">%s`,
		plotWidth, height, html.EscapeString(title), plotStyle)
	fmt.Fprintf(&b, `<text class="title" x="0" y="16">%s</text>%s</svg>`,
		html.EscapeString(title), body)
	return b.String()
}

// share returns where v lies between low and high, from 0 to 1.
func share(v, low, high float64) float64 {
	if high <= low {
		return 0.5
	}
	return (v - low) / (high - low)
}

// logTicks returns the powers of ten around low and high. If low and high are close, it also
// returns 2 and 5 times these powers.
func logTicks(low, high float64, format func(float64) string) (ticks []tick) {
	steps := []float64{1}
	if high/low < 1000 {
		steps = []float64{1, 2, 5}
	}
	var marks []float64
	for power := math.Floor(math.Log10(low)); power <= math.Ceil(math.Log10(high)); power++ {
		for _, step := range steps {
			marks = append(marks, step*math.Pow(10, power))
		}
	}
	from, to := 0, len(marks)-1
	for from+1 < to && marks[from+1] <= low {
		from++
	}
	for to-1 > from && marks[to-1] >= high {
		to--
	}
	for _, m := range marks[from : to+1] {
		ticks = append(ticks, tick{m, format(m)})
	}
	return ticks
}

type bar struct {
	name   string
	colour int
	value  float64
}

// barChart compares the values of one number. Its axis begins at zero.
type barChart struct {
	title  string
	bars   []bar
	format func(float64) string
}

// svg returns nothing for a chart without bars.
func (c barChart) svg() string {
	if len(c.bars) == 0 {
		return ""
	}
	const names, values, step = 184, 76, 24
	most := slices.MaxFunc(c.bars, func(a, b bar) int {
		return cmp.Compare(a.value, b.value)
	}).value
	var b strings.Builder
	for i, v := range c.bars {
		y := float64(marginTop + i*step)
		width := 0.0
		if most > 0 {
			width = max(0, v.value) / most * (plotWidth - names - values)
		}
		text(&b, names-8, y+12, "end", shorten(v.name, 25))
		fmt.Fprintf(&b, `<rect x="%d" y="%.0f" width="%.1f" height="%d" rx="2" fill="%s"/>`,
			names, y, max(width, 1), step-8, colour(v.colour))
		text(&b, names+width+6, y+12, "start", c.format(v.value))
	}
	return frame(c.title, marginTop+len(c.bars)*step, b.String())
}

func nanoseconds(f float64) string { return span(time.Duration(f)) }

// thousands formats a number, and shortens it if it is too long for an axis.
func thousands(f float64) string {
	switch size := math.Abs(f); {
	case size >= 999_500:
		return strconv.FormatFloat(f/1e6, 'g', 3, 64) + " M"
	case size >= 9_995:
		return strconv.FormatFloat(f/1e3, 'g', 3, 64) + " k"
	}
	return compact(f)
}
