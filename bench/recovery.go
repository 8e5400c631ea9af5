package bench

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock"
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
		if s.Command != nil {
			r.recoverFrom(ctx, s, exclusive)
		}
	}
}

// election runs W10: the holder that dies is a leader.
func election(ctx context.Context, r *run) {
	for _, s := range r.subjects {
		r.recoverFrom(ctx, s, leader)
	}
}

func costOfRecovery(r *run, s Subject) time.Duration {
	if s.Command == nil {
		return 0
	}
	return costOfElection(r, s)
}

func costOfElection(*run, Subject) time.Duration { return kills * recoveryTTL }

// recoverFrom measures the deaths of holders of one subject.
func (r *run) recoverFrom(ctx context.Context, s Subject, k kind) {
	if ctx.Err() != nil {
		return
	}
	r.step(s, 0)
	row := Result{
		Workload: r.workload, Subject: s.Name, Contenders: 2, Processes: 2,
		Separate: s.Command != nil, Locks: 1, TTL: recoveryTTL,
	}
	err := r.killHolders(ctx, s, k, &row)
	switch {
	case errors.Is(err, dlock.ErrUnsupported) && k != exclusive:
		row.Unsupported = true
		r.results = append(r.results, row)
	case err != nil && ctx.Err() == nil:
		r.fail(row, err)
	case row.Operations > 0:
		r.results = append(r.results, row)
	}
	r.step(s, kills*recoveryTTL)
}

func (r *run) killHolders(ctx context.Context, s Subject, k kind, row *Result) error {
	name := same(r.names(s, r.workload, 1)[0], 1)
	settings := Settings{TTL: row.TTL}
	waiter, err := newCrew(ctx, s.Open, settings, k, name)
	if err != nil {
		return err
	}
	defer waiter.close()
	times := newHistogram()
	for row.Operations < kills && row.Elapsed < killBudget {
		took, term, err := kill(ctx, s, settings, k, name, waiter)
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

// victim is a process that dies while it holds a lock.
type victim interface {
	hold(ctx context.Context) (term time.Duration, err error)
	kill()
	close() error
}

// silent is a victim in this process. It does not renew its lock.
type silent struct{ *localCrew }

func (silent) kill() {}

func openVictim(
	ctx context.Context, s Subject, settings Settings, k kind, name [][]string,
) (victim, error) {
	if s.Command != nil {
		return startChild(ctx, s.Command(), settings, k, name)
	}
	settings.WithoutRenewal = true
	c, err := newCrew(ctx, s.Open, settings, k, name)
	return silent{c}, err
}

// kill kills a holder. It returns how long the waiter then waits for the lock,
// and the term of the holder.
func kill(
	ctx context.Context, s Subject, settings Settings, k kind, name [][]string, waiter *localCrew,
) (took, term time.Duration, err error) {
	holder, err := openVictim(ctx, s, settings, k, name)
	if err != nil {
		return 0, 0, err
	}
	defer holder.close()
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
