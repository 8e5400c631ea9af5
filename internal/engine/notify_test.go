package engine

import (
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// TestDroppedNotesAreReported checks that a handler which is always too slow receives the number of
// the notes that were dropped.
func TestDroppedNotesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports atomic.Int64 // Close does not wait for a slow handler
		e := New(Config{
			Driver: &willing{}, Kinds: Attempt | Message,
			Notify: func(n *Note) {
				if n.Kind == Message {
					reports.Add(1)
				}
				time.Sleep(10 * time.Millisecond)
			},
		})
		for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(time.Millisecond) {
			e.NoteAttempt(t.Context(), &Lock{Settings: &Settings{}})
		}
		_ = e.Close()
		if n := reports.Load(); n == 0 || n > 60 {
			t.Errorf("%d reports in a minute, want up to one a second", n)
		}
		time.Sleep(time.Hour)
	})
}

// TestRenewalBeforeTheBeginningIsNotNoted checks that no renewal of a lease is noted before its
// beginning: a grant with a short term is renewed at once.
func TestRenewalBeforeTheBeginningIsNotNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds []Kind
		e := New(Config{
			Driver: &willing{}, Kinds: Acquired | Renewed,
			Notify: func(n *Note) { kinds = append(kinds, n.Kind) },
		})
		ref, l := new(Ref), &Lock{"x", "x", &Settings{TTL: time.Minute}}
		if err := e.Acquire(t.Context(), l, true, ref); err != nil {
			t.Fatal(err)
		}
		note := func() {
			e.mu.Lock()
			defer e.unlock()
			e.noteRenewed(ref.lease.tenure, nil)
		}
		note()
		e.NoteAcquired(t.Context(), l, ref, nil, time.Now())
		note()
		synctest.Wait()
		if !slices.Equal(kinds, []Kind{Acquired, Renewed}) {
			t.Errorf("the notes are %v", kinds)
		}
		_ = e.Close()
	})
}
