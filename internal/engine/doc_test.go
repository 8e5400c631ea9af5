package engine

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDocumentsShowTheTable checks that the tables of states in the documents equal the table of
// the code.
func TestDocumentsShowTheTable(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"doc.go", "../../docs/design.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for line := range strings.Lines(string(text)) {
			cells := strings.FieldsFunc(line, func(r rune) bool {
				return strings.ContainsRune("/| \t\n", r)
			})
			if len(cells) != 1+events || !slices.Contains(stateNames[:], cells[0]) {
				continue
			}
			rows++
			want := tableRow(state(slices.Index(stateNames[:], cells[0])))
			if !slices.Equal(cells, want) {
				t.Errorf("%s shows %q, want %q", file, cells, want)
			}
		}
		if rows != states {
			t.Errorf("%s shows %d states, want %d", file, rows, states)
		}
	}
}

// tableRow returns the cells of a state as the documents show them.
func tableRow(s state) []string {
	cells := []string{s.String()}
	for _, next := range changes[s] {
		if next == none {
			cells = append(cells, ".")
		} else {
			cells = append(cells, next.String())
		}
	}
	return cells
}
