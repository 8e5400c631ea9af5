package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Kind is a kind of Note, or a set of them.
type Kind uint8

// The kinds of notes.
const (
	Attempt  Kind = 1 << iota // Lock or TryLock begins
	Acquired                  // it has ended
	Renewed                   // a renewal was answered, or failed
	Ended                     // a lease has ended
	Message                   // for the log
)

// Note is one event for an Observer, or one record for a logger.
type Note struct {
	Kind     Kind
	Context  context.Context //nolint:containedctx // of Attempt and Acquired: the caller's
	Lock     *Lock           // nil: the note is about the client
	Mode     backend.Mode    // not of Message
	Owner    string
	Fence    uint64
	Waited   time.Duration
	Held     time.Duration
	Local    bool
	Deadline time.Time
	Err      error
	Level    slog.Level // of Message
	Text     string     // of Message
	Attrs    []slog.Attr
}

const (
	// maxNotes is how many notes wait for a slow handler. Further notes are dropped and counted.
	maxNotes = 4096
	// reportPause is the minimum pause between two reports of dropped notes while more are dropped.
	reportPause = time.Second
	// flushTimeout is how long Close waits for a handler, which may be the caller of Close.
	flushTimeout = 100 * time.Millisecond
)

// notes is the queue between the engine and a user's handler. One goroutine serves it while it is
// not empty. A handler that blocks, panics or ends the goroutine delays or costs notes, and nothing
// else. mu is locked with and without e.mu, and no other mutex is locked under it.
type notes struct {
	kinds  Kind
	notify func(*Note)

	mu       sync.Mutex
	queue    []*Note
	dropped  int           // since the last report
	reported time.Time     // when their number was last reported
	failed   Kind          // kinds with a handler that panicked, which is logged once
	idle     chan struct{} // closed when the goroutine ends; nil: there is none
}

func (n *notes) init(notify func(*Note), kinds Kind) { n.notify, n.kinds = notify, kinds }

// handles reports whether a handler exists for notes of kind k.
func (n *notes) handles(k Kind) bool { return n.kinds&k != 0 }

// add appends a note to the queue. It does not block. Most callers hold e.mu, so the notes about a
// lock are in the order of its events.
func (n *notes) add(note *Note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) >= maxNotes {
		n.dropped++
		return
	}
	if n.dropped > 0 && time.Since(n.reported) >= reportPause {
		n.queue = append(n.queue, n.report())
	}
	n.queue = append(n.queue, note)
	if n.idle == nil {
		n.idle = make(chan struct{})
		go n.serve()
	}
}

// take returns the next note. It returns nil if there is none; the goroutine then has to end.
func (n *notes) take() *Note {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case len(n.queue) > 0:
		note := n.queue[0]
		n.queue[0] = nil
		n.queue = n.queue[1:]
		return note
	case n.dropped > 0:
		return n.report()
	}
	close(n.idle)
	n.idle = nil
	return nil
}

// report returns a record with the number of notes that were dropped. n.mu must be held.
func (n *notes) report() *Note {
	err := droppedError(n.dropped)
	n.dropped, n.reported = 0, time.Now()
	return &Note{
		Kind: Message, Level: slog.LevelWarn, Err: err,
		Text: "dlock: a slow Observer or logger has cost events",
	}
}

// serve handles notes until there are none. If the handler ends the goroutine, another one
// continues.
func (n *notes) serve() {
	ended := true
	defer func() {
		if ended {
			go n.serve()
		}
	}()
	for note := n.take(); note != nil; note = n.take() {
		n.handle(note)
	}
	ended = false
}

// handle passes one note to the user's code. If the code panics or ends the goroutine, that is
// logged once for each function.
func (n *notes) handle(note *Note) {
	returned := false
	defer func() {
		if !returned {
			n.fail(note, recover())
		}
	}()
	if n.handles(note.Kind) {
		n.notify(note)
	}
	returned = true
}

// fail logs that the handler of a note did not return. value is what it panicked with, or nil.
func (n *notes) fail(note *Note, value any) {
	n.mu.Lock()
	first := n.failed&note.Kind == 0
	n.failed |= note.Kind
	n.mu.Unlock()
	if !first {
		return
	}
	err := errGoexit
	if value != nil {
		err = panicError(value)
	}
	text := "dlock: " + handlers[note.Kind] + " did not return"
	n.add(&Note{Kind: Message, Lock: note.Lock, Level: slog.LevelError, Text: text, Err: err})
}

// handlers are the names of the user's functions that handle notes.
var handlers = map[Kind]string{
	Attempt:  "Observer.Attempt",
	Acquired: "Observer.Acquired",
	Renewed:  "Observer.Renewed",
	Ended:    "Observer.Ended",
	Message:  "the logger",
}

// flush blocks until all notes are handled, for flushTimeout at most.
func (n *notes) flush() {
	n.mu.Lock()
	idle := n.idle
	n.mu.Unlock()
	if idle != nil {
		waitFor(idle, flushTimeout)
	}
}

// NoteAttempt notes the begin of an attempt, and returns its time if NoteAcquired needs it.
func (e *Engine) NoteAttempt(ctx context.Context, l *Lock) (began time.Time) {
	if e.notes.handles(Attempt) {
		e.notes.add(&Note{Kind: Attempt, Context: ctx, Lock: l, Mode: l.mode()})
	}
	if e.notes.handles(Acquired) {
		began = time.Now()
	}
	return began
}

// NoteAcquired notes the end of an attempt.
func (e *Engine) NoteAcquired(ctx context.Context, l *Lock, ref *Ref, err error, began time.Time) {
	if !e.notes.handles(Acquired) {
		return
	}
	e.mu.Lock()
	defer e.unlock()
	note := &Note{Lock: l, Mode: l.mode()}
	if err == nil {
		note = ref.lease.tenure.note()
	}
	note.Kind, note.Context, note.Waited, note.Err = Acquired, ctx, time.Since(began), err
	e.notes.add(note)
	if err == nil {
		ref.lease.announce()
	}
}

// announce lets the end of l be noted, which must not come before its beginning. e.mu must be held.
func (l *Lease) announce() {
	l.announced = true
	if l.state == leaseEnded {
		l.tenure.acq.engine.noteEnded(l.tenure, l.reason)
	}
}

// note describes t. e.mu must be held.
func (t *tenure) note() *Note {
	now := t.acq.engine.now()
	return &Note{
		Lock: t.lock, Mode: t.acq.presentMode(), Owner: t.acq.grant.Owner, Fence: t.fence,
		Local: t != &t.acq.first, Deadline: t.deadline(now), Held: now.Sub(t.start),
	}
}

// presentMode returns the mode of the grant of a, for the user. After a Downgrade without an answer
// the lease goes on as a writer's. e.mu must be held.
func (a *acquisition) presentMode() backend.Mode {
	if a.mode == eitherMode {
		return backend.Exclusive
	}
	return a.mode
}

// noteRenewed notes the answer to a renewal. e.mu must be held.
func (e *Engine) noteRenewed(t *tenure, err error) {
	if err != nil {
		e.log(t.lock, slog.LevelInfo, "dlock: renewal failed, the lease is in danger", err)
	}
	if t.isAnnounced() {
		e.noteTenure(Renewed, t, err)
	}
}

// isAnnounced reports whether the beginning of a lease on t was noted. A grant with a short term is
// renewed at once, and may be before its Lock returns. e.mu must be held.
func (t *tenure) isAnnounced() bool {
	for l := t.leases; l != nil; l = l.next {
		if l.announced || !t.acq.engine.notes.handles(Acquired) {
			return true
		}
	}
	return false
}

// noteEnded notes the end of a lease. e.mu must be held.
func (e *Engine) noteEnded(t *tenure, err error) { e.noteTenure(Ended, t, err) }

// noteTenure notes an event of t, unless the lease on t may not last. e.mu must be held.
func (e *Engine) noteTenure(k Kind, t *tenure, err error) {
	if e.notes.handles(k) && !t.lock.isTrial {
		note := t.note()
		note.Kind, note.Err = k, err
		e.notes.add(note)
	}
}

// noteUnlocked notes the end of a tenure whose Unlock returns before the release has an outcome.
func (a *acquisition) noteUnlocked(err error) {
	e := a.engine
	if e.notes.handles(Ended) {
		e.mu.Lock()
		defer e.unlock()
		a.noteReleased(err)
	}
}

// noteReleased notes the end of a tenure that was unlocked, with the outcome of the release. The
// next waiter of the line has no turn yet, so the events of its lease come later. e.mu must be
// held.
func (a *acquisition) noteReleased(err error) {
	if t := a.tenure; t != nil && t.silent {
		t.silent = false
		a.engine.noteEnded(t, err)
	}
}

func (e *Engine) warn(l *Lock, text string, err error) { e.log(l, slog.LevelWarn, text, err) }

// log adds a record for the logger. It does not block, with or without e.mu.
func (e *Engine) log(l *Lock, level slog.Level, text string, err error) {
	if e.notes.handles(Message) {
		e.notes.add(&Note{Kind: Message, Lock: l, Level: level, Text: text, Err: err})
	}
}

// Log logs a text about the client.
func (e *Engine) Log(level slog.Level, text string, attrs ...slog.Attr) {
	if e.notes.handles(Message) {
		e.notes.add(&Note{Kind: Message, Level: level, Text: text, Attrs: attrs})
	}
}

// Warn logs a failed Unlock inside Do.
func (l *Lease) Warn(text string, err error) { l.tenure.acq.engine.warn(l.tenure.lock, text, err) }

func droppedError(n int) error { return fmt.Errorf("%d events were dropped", n) }
