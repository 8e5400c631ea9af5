package bench

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock"
)

const (
	readersEach               = 4     // W7: in each process
	permits, permitContenders = 8, 16 // W8: of the semaphore, and in each process
	severalNames              = 8     // W9
)

// kind is a kind of lock. A crew has one kind.
type kind int

const (
	exclusive kind = iota // a mutex
	reader
	writer // a mutex in one process, while the other processes are readers
	permit
	several
	leader
)

// mutexes returns a Mutex for each name, or one for all names if the kind is several.
func (k kind) mutexes(p Process, names []string) ([]Mutex, error) {
	if k == exclusive || k == writer {
		return mutexOfEach(names, p.Mutex)
	}
	kinds, ok := p.(Kinds)
	if !ok {
		return nil, dlock.ErrUnsupported
	}
	switch k {
	case reader:
		return mutexOfEach(names, kinds.Reader)
	case permit:
		return mutexOfEach(names, func(name string) (Mutex, error) {
			return kinds.Permit(name, permits)
		})
	case leader:
		return mutexOfEach(names, kinds.Leader)
	}
	m, err := kinds.All(names)
	return []Mutex{m}, err
}

func mutexOfEach(names []string, of func(string) (Mutex, error)) (mutexes []Mutex, err error) {
	for _, name := range names {
		m, err := of(name)
		if err != nil {
			return nil, err
		}
		mutexes = append(mutexes, m)
	}
	return mutexes, nil
}

// holders returns how many contenders can hold a lock at once.
func (k kind) holders() int {
	if k == permit {
		return permits
	}
	return 1
}

// readers runs W7. Readers of one process share a grant of the server, which needs the permission
// for hand-offs. The mutexes have none, so each of their pairs takes a grant of the server.
func readers(ctx context.Context, r *run) {
	r.compare(ctx, contentionTurns, func(s Subject) *row {
		name := r.names(s, "readers", 3)
		w := r.newKind(s, reader, spread(name[0], readersEach))
		w.mutex = r.newKind(s, exclusive, spread(name[1], readersEach))
		w.writer = r.newKind(s, writer,
			append(spread(name[2], readersEach), same(name[2], 1)))
		w.Handoff, w.writer.Handoff = s.Handoff, s.Handoff
		return w
	})
}

// semaphore runs W8.
func semaphore(ctx context.Context, r *run) {
	r.compare(ctx, contentionTurns, func(s Subject) *row {
		name := r.names(s, "permits", 2)
		w := r.newKind(s, permit, spread(name[0], permitContenders))
		w.mutex = r.newKind(s, exclusive, spread(name[1], permitContenders))
		return w
	})
}

// lockAll runs W9.
func lockAll(ctx context.Context, r *run) {
	r.compare(ctx, pairTurns, func(s Subject) *row {
		w := r.newKind(s, several, [][][]string{{r.names(s, "several", severalNames)}})
		w.Locks = severalNames
		w.mutex = r.newKind(s, exclusive, [][][]string{{r.names(s, "one-of-several", 1)}})
		return w
	})
}

// newKind returns a row of one lock, or of one contender for several.
func (r *run) newKind(s Subject, k kind, names [][][]string) *row {
	w := r.newRow(s, 1)
	w.kind, w.names = k, names
	return w
}

// compare lets the row of each subject take turns with the rows that it is compared with.
func (r *run) compare(ctx context.Context, turns int, rowOf func(Subject) *row) {
	var rows, all []*row
	for _, s := range r.subjects {
		w := rowOf(s)
		w.Unsupported = !supports(ctx, s, w.kind)
		rows = append(rows, w)
		for _, part := range w.parts() {
			if w.Unsupported {
				part.err = dlock.ErrUnsupported
			}
			all = append(all, part)
		}
	}
	r.measure(ctx, all, turns, false)
	for _, w := range rows {
		w.join()
	}
	r.report(ctx, rows)
}

// supports returns false if the subject has no locks of a kind. Other errors are reported when the
// row is opened.
func supports(ctx context.Context, s Subject, k kind) bool {
	c, err := newCrew(ctx, s.Open, Settings{}, k, same("none", 1))
	if err == nil {
		_ = c.close()
	}
	return !errors.Is(err, dlock.ErrUnsupported)
}

// parts returns w and the rows that it is compared with.
func (w *row) parts() []*row {
	if w.writer == nil {
		return []*row{w, w.mutex}
	}
	return []*row{w, w.mutex, w.writer}
}

// join adds the figures of the other parts to the Result of w.
func (w *row) join() {
	for _, part := range w.parts() {
		if w.err == nil {
			w.err = part.err
		}
	}
	if w.Operations > 0 && w.mutex.Operations > 0 {
		w.Mutex = w.over(w.mutex)
	}
	if w.writer != nil && w.writer.Operations > 0 {
		w.Writer = w.writer.Latency
	}
}

// over returns the figures of the mutex, and the cost of w in mutexes.
func (w *row) over(mutex *row) *FloorResult {
	f := &FloorResult{
		PerSecond: *mutex.PerSecond, Changes: mutex.Changes,
		Latency: mutex.Latency, Allocs: mutex.Allocs,
		Ratio: *mutex.PerSecond / *w.PerSecond,
	}
	switch {
	case w.Contenders == 1:
		f.Ratio = float64(w.Latency.P50) / float64(f.Latency.P50)
	case w.Changes != nil:
		f.Ratio = *f.Changes / *w.Changes
	}
	return f
}

// costOf returns the planned time of so many rows.
func costOf(rows int) func(*run, Subject) time.Duration {
	return func(r *run, _ Subject) time.Duration { return r.Duration * time.Duration(rows) }
}
