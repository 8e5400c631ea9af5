package dlock

import (
	"context"
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Observer is told what happens to leases; any of its functions may be nil. They
// are called from many goroutines and must not block.
type Observer struct {
	// Attempt: Lock or TryLock begins.
	Attempt func(context.Context, Event)
	// Acquired: it has ended, with a lease or with Event.Err.
	Acquired func(context.Context, Event)
	// Renewed: a renewal was answered, or failed: with Event.Err the lease is in
	// danger but not lost yet.
	Renewed func(Event)
	// Ended: a lease has ended: unlocked (Err is nil), lost or closed.
	Ended func(Event)
}

// Event is what an Observer is told.
type Event struct {
	Backend, Name, Owner string
	Mode                 backend.Mode
	Fence                uint64
	Waited, Held         time.Duration
	Local                bool // handed over inside this process
	Deadline             time.Time
	Err                  error
}

func (m *mutex) event() Event {
	return Event{Backend: m.client.backend, Name: m.name, Mode: backend.Exclusive}
}

// observeAttempt returns when the attempt began, if anybody wants to know.
func (m *mutex) observeAttempt(ctx context.Context) (began time.Time) {
	if f := m.client.config.observer.Attempt; f != nil {
		f(ctx, m.event())
	}
	if m.client.config.observer.Acquired != nil {
		began = time.Now()
	}
	return began
}

func (m *mutex) observeAcquired(ctx context.Context, lease *Lease, err error, began time.Time) {
	f := m.client.config.observer.Acquired
	if f == nil {
		return
	}
	event := m.event()
	if lease != nil {
		event = lease.handle.hold.event()
	}
	event.Waited, event.Err = time.Since(began), err
	f(ctx, event)
}

// event describes a hold that has been granted.
func (h *hold) event() Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	event := h.mutex.event()
	event.Owner, event.Fence, event.Local = h.owner(), h.fence(), h.passes > 0
	event.Deadline, event.Held = h.deadline(), time.Since(h.start)
	return event
}

func (h *hold) observeRenewed(err error) {
	if err != nil {
		h.log(slog.LevelInfo, "dlock: renewal failed, the lease is in danger", err)
	}
	if f := h.mutex.client.config.observer.Renewed; f != nil {
		event := h.event()
		event.Err = err
		f(event)
	}
}

func (h *hold) observeEnded(err error) {
	if f := h.mutex.client.config.observer.Ended; f != nil {
		event := h.event()
		event.Err = err
		f(event)
	}
}

func (h *hold) log(level slog.Level, message string, err error) {
	logger := h.mutex.client.config.logger
	if !logger.Enabled(context.Background(), level) {
		return
	}
	attrs := []slog.Attr{slog.String("name", h.mutex.name), slog.String("backend", h.mutex.client.backend)}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	logger.LogAttrs(context.Background(), level, message, attrs...)
}
