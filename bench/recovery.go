package bench

import (
	"cmp"
	"context"
	"time"
)

const (
	recoveryTTL = 2 * time.Second
	kills       = 3 // at most, and no more after killBudget
	killBudget  = 5 * time.Second
	// termPrecision is the precision of a term in results. It is coarser than the margin that a
	// lease with recoveryTTL keeps.
	termPrecision = 100 * time.Millisecond
)

// recovery kills a child that holds a lock. It skips subjects without a Command.
func recovery(ctx context.Context, r *run) {
	for _, s := range r.subjects {
		if s.Command == nil || ctx.Err() != nil {
			continue
		}
		r.step(s, 0)
		row := Result{
			Workload: r.workload, Subject: s.Name, Contenders: 2, Processes: 2, Separate: true,
			Locks: 1, TTL: recoveryTTL,
		}
		if err := r.killHolders(ctx, s, &row); err != nil && ctx.Err() == nil {
			r.fail(row, err)
		} else if row.Operations > 0 {
			r.results = append(r.results, row)
		}
		r.step(s, costOfRecovery(r, s))
	}
}

func costOfRecovery(_ *run, s Subject) time.Duration {
	if s.Command == nil {
		return 0
	}
	return kills * recoveryTTL
}

func (r *run) killHolders(ctx context.Context, s Subject, row *Result) error {
	name := same(r.names(s, "recovery", 1)[0], 1)
	settings := Settings{TTL: row.TTL}
	waiter, err := newCrew(ctx, s.Open, settings, name)
	if err != nil {
		return err
	}
	defer waiter.close()
	times := newHistogram()
	for row.Operations < kills && row.Elapsed < killBudget {
		took, term, err := kill(ctx, s, settings, name, waiter)
		if err != nil {
			return err
		}
		row.TTL = cmp.Or(term.Round(termPrecision), row.TTL)
		record(times, int64(took))
		row.Operations++
		row.Elapsed += took
		row.Latency = latencyOf(times)
	}
	return nil
}

// kill kills a holder. It returns how long the waiter then waits for the lock,
// and the term of the holder.
func kill(
	ctx context.Context, s Subject, settings Settings, name [][]string, waiter *localCrew,
) (took, term time.Duration, err error) {
	holder, err := startChild(ctx, s.Command(), settings, name)
	if err != nil {
		return 0, 0, err
	}
	if term, err = holder.hold(ctx); err != nil {
		holder.kill()
		return 0, 0, err
	}
	done := waiter.enqueue(ctx)
	killed := clock()
	holder.kill()
	granted, err := done()
	if err != nil {
		return 0, 0, err
	}
	return time.Duration(granted[0] - killed), term, nil
}
