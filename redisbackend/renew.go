package redisbackend

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// RenewAll implements backend.BatchRenewer. It sends one request for maxBatch grants, all at once;
// in a cluster one for each master. A single server renews them in one script. In a cluster each
// grant has its own script, because the keys of a script must be in one slot.
func (d *driver) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	renewals := make([]backend.Renewal, len(gs))
	var wg sync.WaitGroup
	done := 0
	for batch := range slices.Chunk(gs, maxBatch) {
		part := renewals[done : done+len(batch)]
		done += len(batch)
		if done == len(gs) {
			d.renewBatch(ctx, batch, part) // the last one, usually the only one, needs no goroutine
			break
		}
		wg.Go(func() { d.renewBatch(ctx, batch, part) })
	}
	wg.Wait()
	return renewals
}

// renewBatch renews at most maxBatch grants, and stores the answers in renewals.
func (d *driver) renewBatch(
	ctx context.Context, gs []*backend.Grant, renewals []backend.Renewal,
) {
	calls, ttl := d.renewCalls(gs)
	sent := time.Now()
	for i, a := range d.control.runEach(d.opts.withReplicaWait(ctx, ttl), calls) {
		first := i * d.perScript
		last := min(first+d.perScript, len(gs))
		d.decodeRenewals(gs[first:last], a, sent, renewals[first:last])
	}
}

// renewCalls returns the calls of the scripts that renew gs, and the shortest of their terms. The
// script compares owner and fence, so it never renews a later grant of the same owner.
func (d *driver) renewCalls(gs []*backend.Grant) (calls []call, ttl time.Duration) {
	ttl = gs[0].TTL
	for part := range slices.Chunk(gs, d.perScript) {
		args := make([]any, 0, 3+4*len(part))
		args = append(args, nil, nil, len(part))
		locks := make([]string, len(part))
		for i, g := range part {
			locks[i] = lockKey(g.Key)
			args = append(args, &locks[i])
		}
		for _, g := range part {
			args = append(args, &g.Owner, backend.FenceEpoch+g.Fence, ceilMillis(g.TTL))
			ttl = min(ttl, g.TTL)
		}
		calls = append(calls, call{renewScript, args, locks[0]})
	}
	return calls, ttl
}

// decodeRenewals stores the answer of one script, which was sent at sent, in renewals. A grant that
// is lost is forgotten. An error is the answer for all grants of the script: none of them is
// proven, and the core renews them again. A malformed element proves neither a term nor a loss.
func (d *driver) decodeRenewals(
	gs []*backend.Grant, a answer, sent time.Time, renewals []backend.Renewal,
) {
	held, _ := a.Reply.([]any)
	if a.Err == nil && len(held) != len(gs) {
		a.Err = errUnexpected(a.Reply)
	}
	for i, g := range gs {
		switch {
		case a.Err != nil:
			renewals[i].Err = a.Err
		case held[i] == int64(1):
			renewals[i].Term = newTerm(g.TTL, sent)
		case held[i] == int64(0):
			renewals[i].Err = backend.ErrLost
			d.hub.forget(g.Owner)
		default:
			renewals[i].Err = errUnexpected(held[i])
		}
	}
}

// newTerm returns the proof that the server keeps a grant for ttl after sent. Its TTL is rounded up
// to ms, as the server's is.
func newTerm(ttl time.Duration, sent time.Time) backend.Term {
	return backend.Term{Sent: sent, TTL: time.Duration(ceilMillis(ttl)) * time.Millisecond}
}
