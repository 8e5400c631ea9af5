//go:build unix

package command

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
)

// The table of README.md that the test checks stands between these lines.
const kindsBegin, kindsEnd = "<!-- kinds: TestKindsTable -->\n", "<!-- end of kinds -->\n"

// The table of docs/suite.md with the cases that prove the cells stands between these lines.
const proofsBegin, proofsEnd = "<!-- proofs: TestProofsTable -->\n", "<!-- end of proofs -->\n"

// kindRows are the rows of the table: what a backend with these capabilities has. The cases of
// proof prove a cell that is not "no", the cases of refusal the other cells.
var kindRows = []struct {
	name           string
	has            func(c backend.Capabilities) string
	proof, refusal []string
}{
	{
		"`Mutex`, `LockAll`, `Elect`", mode(backend.Exclusive),
		[]string{
			"OneHolderAtATime", "OneHolderAcrossDeaths", "AllOrNothing",
			"OppositeOrdersDoNotDeadlock", "OneLeaderAtATime", "SilentLeaderStopsFirst",
		},
		nil,
	},
	{
		"`RWMutex`, `Downgrade`", mode(backend.Shared),
		[]string{
			"OneWriterOrManyReaders", "WriterAmongFiftyReadersIsPrompt",
			"FiftyReadersAfterAWriterArePrompt", "DowngradeLeavesNoGap",
		},
		[]string{"UnclaimedModesAreRefused", "UnclaimedMovesAreRefused"},
	},
	{
		"`Semaphore`", mode(backend.Permit),
		[]string{"NoPermitTooMany", "OtherLimitIsAConflict", "KilledPermitsComeBack"},
		[]string{"UnclaimedModesAreRefused"},
	},
	{
		"`Export`, `Adopt`", func(c backend.Capabilities) string { return mark(c.Move) },
		[]string{"ExportedLockIsKept", "HandleIsAdoptedOnce"},
		[]string{"UnclaimedMovesAreRefused"},
	},
	{
		"`Inspect`, `Observe`", func(c backend.Capabilities) string { return mark(c.Inspect) },
		[]string{"InspectShowsTheHolder", "ObserveShowsEachHolder"},
		[]string{"InspectShowsTheHolder", "ObserveShowsEachHolder"},
	},
	{
		"`List`", func(c backend.Capabilities) string { return mark(c.List) },
		[]string{"ListShowsHeldLocks"},
		[]string{"ListShowsHeldLocks"},
	},
	{
		"`Break`", func(c backend.Capabilities) string { return mark(c.Break) },
		[]string{"BreakEndsTheLease", "BreakNamesItsOwner"},
		[]string{"BreakEndsTheLease"},
	},
	{
		"waiters in order", func(c backend.Capabilities) string {
			return []string{"no", "`fair=1`", "yes"}[c.Fair]
		},
		[]string{"FairWaitersAreServedInOrder"},
		[]string{"UnclaimedFairnessIsRefused"},
	},
	{
		"fence", func(c backend.Capabilities) string {
			return []string{"no", "volatile", "durable"}[c.Fencing]
		},
		[]string{"FenceFollowsTheOrderOfGrants", "RestartKeepsExclusion"},
		nil,
	},
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
	skipInMemory(t)
	columns := []struct {
		names string
		urls  []string
	}{
		{"redis", []string{testenv.Redis(t).URL, testenv.Valkey(t).URL}},
		{"etcd", []string{testenv.Etcd(t).URL}},
		{"zk", []string{testenv.ZooKeeper(t).URL}},
		{"mysql", []string{testenv.MySQL(t).URL, testenv.MariaDB(t).URL}},
		{"postgres", []string{testenv.Postgres(t).URL}},
		{"`lock=session`", []string{
			testenv.Postgres(t).URL + "?lock=session", testenv.MySQL(t).URL + "&lock=session",
			testenv.MariaDB(t).URL + "&lock=session",
		}},
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
	compareTable(t, "../README.md", kindsBegin, kindsEnd, lines)
}

// skipInMemory skips the test if the temporary directory is in memory, where the fences of file:
// are volatile.
func skipInMemory(t *testing.T) {
	t.Helper()
	d, err := testenv.Open(t.Context(), fileURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if d.Capabilities().Fencing == backend.FenceVolatile {
		t.Skip("does not apply: the temporary directory is in memory")
	}
}

// TestProofsTable compares docs/suite.md with the cases that prove the cells of that table. The
// suite runs a case on each backend that claims what the case needs. So a proof may need only what
// the row is about, and a refusal nothing.
func TestProofsTable(t *testing.T) {
	t.Parallel()
	lines := []string{
		tableLine([]string{"row", "the backend has it", "it does not"}),
		tableLine([]string{"---", "---", "---"}),
	}
	for _, row := range kindRows {
		for _, name := range row.proof {
			c := caseOf(t, name)
			if isSpecial(c) && row.has(backend.Capabilities{Modes: c.Mode, Move: c.Move}) == "no" {
				t.Errorf("%s: the case %s needs another capability", row.name, name)
			}
		}
		for _, name := range row.refusal {
			if isSpecial(caseOf(t, name)) {
				t.Errorf("%s: the case %s does not run without the capability", row.name, name)
			}
		}
		lines = append(lines, tableLine([]string{
			row.name, strings.Join(row.proof, ", "), strings.Join(row.refusal, ", "),
		}))
	}
	compareTable(t, "../docs/suite.md", proofsBegin, proofsEnd, lines)
}

// caseOf returns the case with that name.
func caseOf(t *testing.T, name string) conformance.Case {
	t.Helper()
	cases := conformance.Cases()
	i := slices.IndexFunc(cases, func(c conformance.Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no case %s", name)
	}
	return cases[i]
}

// isSpecial reports whether the suite runs the case only on backends that claim a capability.
func isSpecial(c conformance.Case) bool { return c.Mode&^backend.Exclusive != 0 || c.Move }

// compareTable compares the table between two lines of a file.
func compareTable(t *testing.T, file, begin, end string, lines []string) {
	t.Helper()
	want := strings.Join(lines, "")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), begin)
	if got, _, found := strings.Cut(after, end); !found || got != want {
		t.Errorf("the table between %q and %q in %s is\n%s\nwant\n%s", begin, end, file, got, want)
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
