package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dlock-go/dlock/bench"
)

// progressBar shows on a terminal how far bench is; elsewhere nothing.
type progressBar struct {
	screen io.Writer // nil: there is no terminal
	drawn  time.Time
}

const (
	barWidth    = 24
	barInterval = 100 * time.Millisecond
	eraseLine   = "\r\x1b[K"
)

func newProgressBar(a *app) *progressBar {
	if !isTerminal(a.stderr) {
		return &progressBar{}
	}
	return &progressBar{screen: a.stderr}
}

func (b *progressBar) show(p bench.Progress) {
	if b.screen == nil || time.Since(b.drawn) < barInterval && p.Done < 1 {
		return
	}
	b.drawn = time.Now()
	full := int(p.Done * barWidth)
	// Short enough for a narrow terminal: a line that wraps cannot be erased.
	subject := []rune(printable(p.Subject))
	fmt.Fprintf(b.screen, "%s[%s%s] %3.0f %% %s %s", eraseLine,
		strings.Repeat("#", full), strings.Repeat(".", barWidth-full), 100*p.Done, p.Workload, string(subject[:min(len(subject), 30)]))
}

// clear leaves the terminal as it was.
func (b *progressBar) clear() {
	if b.screen != nil {
		fmt.Fprint(b.screen, eraseLine)
	}
}
