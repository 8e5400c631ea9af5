package dlock

import (
	"testing"
	"time"
)

// A Lock rouses no goroutine because the one before was unlocked before that had looked at it.
func TestUnlockedBeforeItIsLookedAt(t *testing.T) {
	t.Parallel()
	s, h, now := newScheduler(), new(hold), time.Now()
	s.set(h, now.Add(time.Minute), 0)
	if len(s.rouse) != 1 {
		t.Fatal("nobody looks at the first one")
	}
	<-s.rouse
	s.remove(h)
	due, next := s.due(now)
	if len(due) != 0 || !next.Equal(now.Add(time.Minute)) {
		t.Errorf("due: %v, next: %v", due, next)
	}
	s.set(h, now.Add(2*time.Minute), 0)
	if len(s.rouse) != 0 {
		t.Error("roused for what is later than the time that is armed")
	}
	s.remove(h)
	if _, next = s.due(now.Add(time.Minute)); !next.IsZero() {
		t.Errorf("next: %v, of nothing", next)
	}
	s.set(h, now.Add(3*time.Minute), 0)
	if len(s.rouse) != 1 {
		t.Error("nobody looks at one that comes after a time without any")
	}
}
