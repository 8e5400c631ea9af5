package zkbackend

import (
	"cmp"
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// RenewAll implements backend.BatchRenewer. One proof of the session renews all of gs. It sends no
// request if the last proof is younger than a sixth of the shortest TTL.
func (d *driver) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	if len(gs) == 0 {
		return nil
	}
	age := gs[0].TTL / 6
	for _, g := range gs {
		age = min(age, g.TTL/6)
	}
	return d.renew(ctx, gs, age)
}

// renew proves the session, unless its last proof is younger than age. It sends no request for a
// single node: the server reports a deletion before it answers the proof, or as soon as the session
// is connected again.
func (d *driver) renew(
	ctx context.Context, gs []*backend.Grant, age time.Duration,
) []backend.Renewal {
	acquisitions := make([]*acquisition, len(gs))
	var s *session
	for i, g := range gs {
		if acquisitions[i] = d.find(g); acquisitions[i] != nil {
			s = acquisitions[i].session // all have the present one
		}
	}
	var unwatched map[*acquisition]error
	var err error
	if s != nil {
		unwatched, err = call(ctx, s, func() (map[*acquisition]error, error) {
			if err := s.prove(age); err != nil {
				return nil, err
			}
			return ensureWatches(s, acquisitions), nil
		})
	}
	renewals := make([]backend.Renewal, len(gs))
	for i, a := range acquisitions {
		renewals[i] = d.renewal(a, gs[i].TTL, cmp.Or(err, unwatched[a]))
	}
	return renewals
}

// renewal returns the answer for one grant, after a proof of its session, or a request for its
// watch, that ended with err. a is nil if the driver keeps no such acquisition.
func (d *driver) renewal(a *acquisition, ttl time.Duration, err error) backend.Renewal {
	if a == nil || !a.wasHeld() {
		return backend.Renewal{Err: errNotOfSession}
	}
	if gone := a.gone(); gone != nil {
		d.forget(a)
		return backend.Renewal{Err: gone}
	}
	if err != nil {
		return backend.Renewal{Err: interpretError(err)}
	}
	return backend.Renewal{Term: a.session.term(ttl)}
}

// ensureWatches renews the watches of held nodes that were used up by a write to the node. Without
// a watch the driver would not detect that a node is gone, so the renewal would prove nothing. It
// returns the errors of the nodes that are still not watched, which concern no other lock.
func ensureWatches(s *session, acquisitions []*acquisition) (unwatched map[*acquisition]error) {
	for _, a := range acquisitions {
		if a == nil || a.session != s || !a.wasHeld() {
			continue
		}
		if err := a.tryEnsureWatch(); err != nil {
			if unwatched == nil {
				unwatched = make(map[*acquisition]error)
			}
			unwatched[a] = err
		}
	}
	return unwatched
}
