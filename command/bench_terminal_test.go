//go:build linux

package command

import (
	"strings"
	"syscall"
	"testing"
)

// On a terminal bench shows a progress bar, and erases it before it writes the table.
func TestBenchBar(t *testing.T) {
	t.Parallel()
	p := onTerminal(t, "", benchTiny("--workloads", "W1", "mem:")...)
	line := p.line()
	if !strings.Contains(line, "%") ||
		!strings.HasSuffix(line, "\r\x1b[KW1: One lock, uncontended") {
		t.Errorf("the terminal shows %q", line)
	}
	p.code(0)
}

// Ctrl-C also reaches the processes that bench has started. They ignore it, and bench ends them.
func TestBenchCtrlC(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := onTerminal(t, "", benchForever("file:"+dir)...)
	awaitLock(t, "file:"+dir)
	p.keys(ctrlC)
	p.shows(`"complete":false`)
	p.code(exitSignal + int(syscall.SIGINT))
	checkEmpty(t, dir)
}
