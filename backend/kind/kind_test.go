package kind_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// entry is an entry of a queue that is written as a list of kinds.
type entry kind.Kind

func (e entry) Kind() kind.Kind { return kind.Kind(e) }

func queue(kinds string) (entries []entry) {
	for word := range strings.FieldsSeq(kinds) {
		entries = append(entries, entry(word))
	}
	return entries
}

func TestWords(t *testing.T) {
	t.Parallel()
	for word, want := range map[kind.Kind]backend.Request{
		"w":   {Mode: backend.Exclusive},
		"r":   {Mode: backend.Shared},
		"p1":  {Mode: backend.Permit, Limit: 1},
		"p80": {Mode: backend.Permit, Limit: 80},
	} {
		if got := kind.Of(&want); got != word {
			t.Errorf("Of(%v, %d) = %q, want %q", want.Mode, want.Limit, got, word)
		}
		if !word.Valid() || word.Mode() != want.Mode || word.Limit() != want.Limit {
			t.Errorf("%q is %v, %d", word, word.Mode(), word.Limit())
		}
	}
	for _, word := range []kind.Kind{"", "p", "p0", "p-1", "p+1", "p01", "p1x", "x", "ww"} {
		if word.Valid() {
			t.Errorf("%q is valid", word)
		}
	}
}

// TestQueues checks which entries hold a lock, and for which a new entry waits.
func TestQueues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		queue                  string
		holders                int
		writer, reader, permit int // the numbers of blockers; -1: a conflict; permits are of two
	}{
		{"", 0, 0, 0, 0},
		{"w", 1, 1, 1, -1},
		{"w w r", 1, 3, 2, -1},
		{"r r", 2, 2, 0, -1},
		{"r w r", 1, 3, 1, -1},
		{"p2", 1, -1, -1, 0},
		{"p2 p2", 2, -1, -1, 2},
		{"p2 p2 p2", 2, -1, -1, 3},
		{"p3", 1, -1, -1, -1},
		{"p2 p3 p2", 1, -1, -1, 3},
		{"p2 p3", 1, -1, -1, 2},
		{"r p2", 1, 2, 1, -1},
		{"w p2", 1, 2, 2, -1},
		{"r w p2 r", 1, 4, 2, -1},
	} {
		entries := queue(tt.queue)
		if got := len(kind.Holders(entries)); got != tt.holders {
			t.Errorf("%q has %d holders, want %d", tt.queue, got, tt.holders)
		}
		for k, want := range map[kind.Kind]int{
			"w": tt.writer, "r": tt.reader, "p2": tt.permit,
		} {
			got := len(kind.Blockers(k, entries))
			if err := kind.Conflict(k, entries); err != nil {
				if got = -1; !errors.Is(err, backend.ErrConflict) {
					t.Errorf("%q: %v", tt.queue, err)
				}
			}
			if got != want {
				t.Errorf("%s behind %q has %d blockers, want %d", k, tt.queue, got, want)
			}
		}
	}
}

func TestConflictNamesBoth(t *testing.T) {
	t.Parallel()
	text := fmt.Sprint(kind.Kind("p8").Conflict("p3"))
	if !strings.Contains(text, "limit 3") || !strings.Contains(text, "limit 8") {
		t.Errorf("%s, want both limits", text)
	}
}
