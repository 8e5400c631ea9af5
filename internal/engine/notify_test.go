package engine

import (
	"errors"
	"log/slog"
	"testing"
	"time"
)

// TestNotesWithoutAHandler checks that notes without a handler cost nothing: no allocation and no
// goroutine for notes.
func TestNotesWithoutAHandler(t *testing.T) {
	e, l := newLock(t, &willing{})
	lease, err := acquire(t, e, l), errors.New("failed")
	for name, note := range map[string]func(){
		"Log":          func() { e.Log(slog.LevelWarn, "text") },
		"Warn":         func() { lease.Warn("text", err) },
		"NoteAttempt":  func() { e.NoteAttempt(t.Context(), l) },
		"NoteAcquired": func() { e.NoteAcquired(t.Context(), l, nil, err, time.Time{}) },
		"noteRenewed":  func() { e.noteRenewed(lease.tenure, err) },
		"noteUnlocked": func() { lease.tenure.acq.noteUnlocked(err) },
	} {
		if n := testing.AllocsPerRun(100, note); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if began := e.NoteAttempt(t.Context(), l); !began.IsZero() {
		t.Errorf("NoteAttempt read the clock: %v", began)
	}
}
