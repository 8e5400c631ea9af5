//go:build unix

package command

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
)

// The table of README.md that the test checks stands between these lines.
const kindsBegin, kindsEnd = "<!-- kinds: TestKindsTable -->\n", "<!-- end of kinds -->\n"

// kindRows are the rows of the table: what a backend with these capabilities has.
var kindRows = []struct {
	name string
	has  func(c backend.Capabilities) string
}{
	{"`Mutex`, `LockAll`, `Elect`", mode(backend.Exclusive)},
	{"`RWMutex`, `Downgrade`", mode(backend.Shared)},
	{"`Semaphore`", mode(backend.Permit)},
	{"`Export`, `Adopt`", func(c backend.Capabilities) string { return mark(c.Move) }},
	{"`Inspect`, `List`, `Observe`", func(c backend.Capabilities) string {
		return mark(c.Inspect && c.List)
	}},
	{"`Break`", func(c backend.Capabilities) string { return mark(c.Break) }},
	{"waiters in order", func(c backend.Capabilities) string {
		return []string{"no", "`fair=1`", "yes"}[c.Fair]
	}},
	{"fence", func(c backend.Capabilities) string {
		return []string{"no", "volatile", "durable"}[c.Fencing]
	}},
}

func mode(m backend.Mode) func(backend.Capabilities) string {
	return func(c backend.Capabilities) string { return mark(c.Modes&m != 0) }
}

func mark(has bool) string {
	if has {
		return "yes"
	}
	return "no"
}

// TestKindsTable compares the table in README.md with the capabilities of each backend. The suite
// proves the capabilities.
func TestKindsTable(t *testing.T) {
	t.Parallel()
	columns := []struct {
		names string
		urls  []string
	}{
		{"redis", []string{testenv.Redis(t).URL, testenv.Valkey(t).URL}},
		{"etcd", []string{testenv.Etcd(t).URL}},
		{"zk", []string{testenv.ZooKeeper(t).URL}},
		{"mysql", []string{testenv.MySQL(t).URL, testenv.MariaDB(t).URL}},
		{"postgres", []string{testenv.Postgres(t).URL}},
		{"memcached", []string{testenv.Memcached(t).URL}},
		{"file", []string{fileURL(t)}},
		{"mem", []string{"mem:"}},
	}
	header, rule := []string{""}, []string{"---"}
	rows := make([][]string, len(kindRows))
	for _, column := range columns {
		header, rule = append(header, column.names), append(rule, "---")
		for i, cell := range kindsOf(t, column.urls) {
			rows[i] = append(rows[i], cell)
		}
	}
	lines := []string{tableLine(header), tableLine(rule)}
	for i, cells := range rows {
		lines = append(lines, tableLine(slices.Insert(cells, 0, kindRows[i].name)))
	}
	want := strings.Join(lines, "")
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), kindsBegin)
	if got, _, found := strings.Cut(after, kindsEnd); !found || got != want {
		t.Errorf("the table between %q and %q in README.md is\n%s\nthe backends have\n%s",
			kindsBegin, kindsEnd, got, want)
	}
}

// kindsOf returns a column of the table. The servers at urls must have the same capabilities.
func kindsOf(t *testing.T, urls []string) (cells []string) {
	t.Helper()
	for _, url := range urls {
		c, err := dlock.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		var own []string
		for _, row := range kindRows {
			own = append(own, row.has(c.Capabilities()))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if cells != nil && !slices.Equal(own, cells) {
			t.Errorf("%v: %v, and %v", urls, cells, own)
		}
		cells = own
	}
	return cells
}

// tableLine returns a line of a table in Markdown.
func tableLine(cells []string) string {
	return strings.ReplaceAll("| "+strings.Join(cells, " | ")+" |\n", "|  |", "| |")
}
