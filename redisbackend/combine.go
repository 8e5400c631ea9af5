package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// AcquireAll implements backend.Combiner with one script. It returns ErrUnsupported in a cluster,
// whose scripts can access the keys of one slot only, and for more locks than one script may have.
// The script grants all locks or none. An attempt that ends without an answer is unknown for all of
// them. The term of each counts from the same time.
func (d *driver) AcquireAll(
	ctx context.Context, reqs []*backend.Request,
) (grants []*backend.Grant, failed int, err error) {
	if len(reqs) > d.perScript {
		return nil, 0, fmt.Errorf("%w: %d locks in one step", backend.ErrUnsupported, len(reqs))
	}
	r := d.newRequestForAll(len(reqs))
	positions := make([]position, len(reqs))
	ttl := reqs[0].TTL
	for i, req := range reqs {
		positions[i] = d.hub.admit(req)
		r.addKeys(d.keys(req.Key))
		ttl = min(ttl, req.TTL)
	}
	for _, req := range reqs {
		r.args = append(r.args, &req.Owner, ceilMillis(req.TTL), encodeTail(d.hub.client, req))
	}
	sent := time.Now()
	reply, err := d.main.run(d.opts.withReplicaWait(ctx, ttl), acquireAllScript, r)
	refusal, refused := decodeRefusal(reply)
	switch {
	case err != nil && (!refused || !isUnreplicated(err)): // a refusal needs no replicas
		return nil, 0, d.handleFailureOfAll(ctx, reqs, err)
	case refused:
		for _, req := range reqs {
			d.hub.forget(req.Owner)
		}
		if refusal.index < 0 || refusal.index >= len(reqs) {
			return nil, 0, errUnexpected(reply)
		}
		return nil, refusal.index, refusal.err(positions[refusal.index], ttl)
	}
	grants, err = grantsOf(reqs, positions, reply, sent)
	return grants, 0, err
}

// newRequestForAll returns a request about n locks, without keys and arguments.
func (d *driver) newRequestForAll(n int) *request {
	r := &request{numKeys: guardedNumKeys{n: 4 * n}}
	r.args = append(make([]any, 0, 3+7*n), nil, nil, &r.numKeys)
	return r
}

// addKeys adds the keys of one of several locks.
func (r *request) addKeys(k keys) {
	r.keys = k
	r.args = append(r.args, k.lock, k.fence, k.queue, k.waiters)
}

// grantsOf returns the grants with the fences in the reply of acquireall.lua.
func grantsOf(
	reqs []*backend.Request, positions []position, reply any, sent time.Time,
) ([]*backend.Grant, error) {
	fences, _ := reply.([]any)
	if len(fences) != len(reqs) {
		return nil, errUnexpected(reply)
	}
	grants := make([]*backend.Grant, len(reqs))
	for i, req := range reqs {
		text, ok := fences[i].(string)
		if !ok {
			return nil, errUnexpected(reply)
		}
		fence, err := parseFence(text)
		if err != nil {
			return nil, err
		}
		positions[i].sent = sent
		grants[i] = positions[i].grant(req, fence, req.TTL)
	}
	return grants, nil
}

// refusal is the reply of acquireall.lua about a lock that its owner cannot have.
type refusal struct {
	index    int
	answer   []any  // as decodeBusy takes it
	conflict string // instead of answer, if it is not empty
}

// decodeRefusal reports whether a reply of acquireall.lua is a refusal: it begins with an index.
func decodeRefusal(reply any) (r refusal, ok bool) {
	parts, _ := reply.([]any)
	if len(parts) < 2 {
		return r, false
	}
	index, ok := parts[0].(int64)
	r.index, r.answer = int(index), parts[1:]
	if len(parts) == 2 {
		r.conflict, _ = parts[1].(string)
	}
	return r, ok
}

// err returns the error that Acquire would return.
func (r refusal) err(p position, ttl time.Duration) error {
	if r.conflict != "" {
		return fmt.Errorf("%w: %s", backend.ErrConflict, r.conflict)
	}
	busy, err := decodeBusy(r.answer, p, ttl)
	if err != nil {
		return err
	}
	return busy
}

// handleFailureOfAll is handleFailure for several requests.
func (d *driver) handleFailureOfAll(
	ctx context.Context, reqs []*backend.Request, err error,
) error {
	if isUnreplicated(err) {
		grants := make([]*backend.Grant, len(reqs))
		for i, req := range reqs {
			grants[i] = &backend.Grant{Request: *req}
		}
		for _, undone := range d.ReleaseAll(ctx, grants) {
			if undone != nil && !errors.Is(undone, backend.ErrNotHeld) {
				return err
			}
		}
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	if isDefinite(err) {
		for _, req := range reqs {
			d.hub.forget(req.Owner)
		}
	}
	return err
}

// ReleaseAll implements backend.Combiner. It sends one script, or one for each lock in a cluster.
// An error is the answer for all of them, although the script may have released some: the core then
// releases each alone.
func (d *driver) ReleaseAll(ctx context.Context, gs []*backend.Grant) []error {
	if len(gs) > d.perScript {
		return d.releaseEach(ctx, gs)
	}
	r := d.newRequestForAll(len(gs))
	for _, g := range gs {
		d.hub.forget(g.Owner)
		r.addKeys(d.keys(g.Key))
	}
	for _, g := range gs {
		r.args = append(r.args, &g.Owner)
	}
	reply, err := d.control.run(ctx, releaseAllScript, r)
	removed, _ := reply.([]any)
	if err == nil && len(removed) != len(gs) {
		err = errUnexpected(reply)
	}
	if err != nil {
		return slices.Repeat([]error{err}, len(gs))
	}
	errs := make([]error, len(gs))
	for i := range gs {
		errs[i] = decodeRemoval(removed[i], nil)
	}
	return errs
}

// releaseEach releases each lock with its own script. All scripts are sent at once, in one request
// to each server, so that a silent master of a cluster delays only its own locks.
func (d *driver) releaseEach(ctx context.Context, gs []*backend.Grant) []error {
	calls := make([]call, len(gs))
	for i, g := range gs {
		d.hub.forget(g.Owner)
		r := d.newRequest(g.Key, g.Owner).with()
		calls[i] = call{releaseScript, r.args, r.keys.lock}
	}
	errs := make([]error, len(gs))
	for i, a := range d.control.runEach(ctx, calls) {
		errs[i] = decodeRemoval(a.Reply, a.Err)
	}
	return errs
}
