package command

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dlock-go/dlock/bench"
)

// progressBar shows on a terminal how far bench is. Without a terminal it shows nothing.
type progressBar struct {
	screen *os.File // nil: there is no terminal
	drawn  time.Time
}

const (
	barCells    = 20
	barInterval = 100 * time.Millisecond
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
	full := int(p.Done * barCells)
	line := fmt.Sprintf("[%s%s] %.0f %%: %s %s",
		strings.Repeat("=", full), strings.Repeat(" ", barCells-full),
		100*p.Done, p.Workload, printable(p.Subject))
	fmt.Fprintf(b.screen, "\r%s\x1b[K", cut(line, width(b.screen)-1))
}

// clear erases the bar.
func (b *progressBar) clear() {
	if b.screen != nil {
		fmt.Fprint(b.screen, "\r\x1b[K")
	}
}
