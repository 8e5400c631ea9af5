package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	manyWorkers, manyNames = 64, 10_000 // W2
	crews, crewSize        = 4, 8       // W4; W7 and W8 have as many processes
	// Pairs and floors take many turns, because their ratio counts. Contenders take few turns,
	// because they need some time to get into each other's way.
	pairTurns, contentionTurns = 25, 4
)

// rows returns a new row for each subject, with one process whose contenders share the locks.
func (r *run) rows(part string, locks, contenders int) (rows []*row) {
	for _, s := range r.subjects {
		w := r.newRow(s, locks)
		w.names = [][][]string{deal(r.names(s, part, locks), contenders)}
		rows = append(rows, w)
	}
	return rows
}

func (r *run) newRow(s Subject, locks int) *row {
	return &row{subject: s, Result: Result{
		Workload: r.workload, Subject: s.Name, Locks: locks,
	}}
}

// uncontended runs W1.
func uncontended(ctx context.Context, r *run) {
	r.takeTurns(ctx, r.rows("one", 1, 1), pairTurns, true)
}

// many runs W2.
func many(ctx context.Context, r *run) {
	r.takeTurns(ctx, r.rows("many", manyNames, manyWorkers), pairTurns, true)
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
	r.contend(ctx, "crossed", func(name string) [][][]string { return spread(name, crewSize) })
}

// spread returns the names of several processes with n contenders each for one name.
func spread(name string, n int) [][][]string {
	return slices.Repeat([][][]string{same(name, n)}, crews)
}

// contend lets the contenders of each subject contend for one name, without and with hand-offs.
func (r *run) contend(ctx context.Context, part string, names func(name string) [][][]string) {
	if ctx.Err() != nil {
		return
	}
	var rows []*row
	for _, s := range r.subjects {
		for _, handoff := range handoffs(s) {
			w := r.newRow(s, 1)
			w.Handoff = handoff
			w.names = names(r.names(s, fmt.Sprint(part, "-", handoff), 1)[0])
			rows = append(rows, w)
		}
	}
	r.takeTurns(ctx, rows, contentionTurns, false)
}

func costOfContended(r *run, s Subject) time.Duration {
	return r.Duration * time.Duration(len(r.Contenders)*len(handoffs(s)))
}
