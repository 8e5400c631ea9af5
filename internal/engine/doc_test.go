package engine

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// table is a table of states, as the documents show it: a row for each state with the names of the
// next states. A dot marks an event without effect.
type table struct {
	states, events []string
	rows           [][]string
}

// tables are the tables of the code: of acquisitions, of tenures and of leases.
var tables = [...]table{
	newTable(stateNames[:], eventNames[:], func(s, ev int) uint8 {
		return uint8(changes[s][ev])
	}),
	newTable(tenureStateNames[:], tenureEventNames[:], func(s, ev int) uint8 {
		return uint8(tenureChanges[s][ev])
	}),
	newTable(leaseStateNames[:], leaseEventNames[:], func(s, ev int) uint8 {
		return uint8(leaseChanges[s][ev])
	}),
}

func newTable(states, events []string, next func(s, ev int) uint8) table {
	t := table{states: states, events: events}
	for s, name := range states {
		row := []string{name}
		for ev := range events {
			if n := next(s, ev); n == none {
				row = append(row, ".")
			} else {
				row = append(row, states[n])
			}
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// TestDocumentsShowTheTable checks that the tables of states in the documents equal the tables of
// the code.
func TestDocumentsShowTheTable(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"doc.go", "../../docs/design.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rows := rowsOf(string(text))
		for _, table := range tables {
			begin := slices.IndexFunc(rows, func(row []string) bool {
				return slices.Equal(row, table.events) ||
					slices.Equal(row, append([]string{"state"}, table.events...))
			})
			if begin < 0 {
				t.Errorf("%s shows no table with the events %v", file, table.events)
				continue
			}
			for i, want := range table.rows {
				if got := rows[begin+1+i]; !slices.Equal(got, want) {
					t.Errorf("%s shows %q, want %q", file, got, want)
				}
			}
		}
	}
}

// rowsOf returns the words of each line of text, without the marks of a comment or a table.
func rowsOf(text string) (rows [][]string) {
	for line := range strings.Lines(text) {
		cells := strings.FieldsFunc(line, func(r rune) bool {
			return strings.ContainsRune("/| \t\n", r)
		})
		if line = strings.Join(cells, ""); strings.Trim(line, "-") != "" {
			rows = append(rows, cells)
		}
	}
	return rows
}
