package bench

import (
	"context"
	"fmt"
	"time"
)

const (
	manyWorkers, manyNames = 64, 10_000 // W2
	crews, crewSize        = 4, 8       // W4
	// Pairs and floors take many turns, because their ratio counts. Contenders take few turns,
	// because they need some time to get into each other's way.
	pairTurns, contentionTurns = 25, 4
)

// rows returns a new row for each subject.
func (r *run) rows(locks int) (rows []*row) {
	for _, s := range r.subjects {
		rows = append(rows, r.newRow(s, locks, false))
	}
	return rows
}

func (r *run) newRow(s Subject, locks int, handoff bool) *row {
	return &row{subject: s, Result: Result{
		Workload: r.workload, Subject: s.Name, Locks: locks, Handoff: handoff,
	}}
}

// uncontended runs W1.
func uncontended(ctx context.Context, r *run) {
	r.takeTurns(ctx, r.rows(1), pairTurns, func(w *row) [][][]string {
		return [][][]string{same(r.names(w.subject, "one", 1)[0], 1)}
	}, true)
}

// many runs W2.
func many(ctx context.Context, r *run) {
	r.takeTurns(ctx, r.rows(manyNames), pairTurns, func(w *row) [][][]string {
		return [][][]string{deal(r.names(w.subject, "many", manyNames), manyWorkers)}
	}, true)
}

// contended runs W3: all subjects take turns, for each number of contenders.
func contended(ctx context.Context, r *run) {
	for _, n := range r.Contenders {
		r.contend(ctx, fmt.Sprint("contended-", n), func(name string) [][][]string {
			return [][][]string{same(name, n)}
		})
	}
}

// crossed runs W4.
func crossed(ctx context.Context, r *run) {
	r.contend(ctx, "crossed", func(name string) (names [][][]string) {
		for range crews {
			names = append(names, same(name, crewSize))
		}
		return names
	})
}

// contend lets the contenders of each subject contend for one name, without and with hand-offs.
func (r *run) contend(ctx context.Context, part string, names func(name string) [][][]string) {
	if ctx.Err() != nil {
		return
	}
	var rows []*row
	for _, s := range r.subjects {
		for _, handoff := range handoffs(s) {
			rows = append(rows, r.newRow(s, 1, handoff))
		}
	}
	r.takeTurns(ctx, rows, contentionTurns, func(w *row) [][][]string {
		return names(r.names(w.subject, fmt.Sprint(part, "-", w.Handoff), 1)[0])
	}, false)
}

func costOfContended(r *run, s Subject) time.Duration {
	return r.Duration * time.Duration(len(r.Contenders)*len(handoffs(s)))
}
