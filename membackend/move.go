package membackend

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Downgrade implements backend.Downgrader. The new grant has a new term, so a Downgrade is also a
// renewal.
func (d *driver) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	if err := d.checkOpen(); err != nil {
		return nil, err
	}
	now := backend.Began(ctx)
	d.space.mu.Lock()
	defer d.space.mu.Unlock()
	return d.space.downgrade(g, now)
}

// downgrade makes the exclusive grant g a shared one. A repetition finds it shared. There is no
// moment without a holder, so no writer can come in between; readers at the front of the queue are
// admitted in the same step. s.mu must be held.
func (s *space) downgrade(g *backend.Grant, now time.Time) (*backend.Grant, error) {
	l := s.current(g.Key, now)
	if l == nil {
		return nil, backend.ErrLost
	}
	a := find(l.holders, g.Owner)
	if a == nil || l.mode() == backend.Permit {
		return nil, backend.ErrLost
	}
	shared := a.grant
	shared.Mode = backend.Shared
	next := l.replace(a, shared)
	next.grant.Term = next.prolong(g.TTL, now)
	s.settle(l, now)
	s.tell(l.key())
	return &next.grant, nil
}

// replace puts a holder with another grant in the place of a, and returns it. The grant of a stays
// as it is, because it was returned.
func (l *lock) replace(a *acquisition, grant backend.Grant) *acquisition {
	next := &acquisition{
		state: held, grant: grant, since: a.since, expires: a.expires, secret: a.secret,
	}
	l.holders[slices.Index(l.holders, a)] = next
	return next
}

// Export implements backend.Mover. A grant belongs to no connection, so it is only prolonged. The
// ticket has its owner and a secret, because every client can read the owner with Inspect. A second
// Export of the same grant makes the first ticket invalid.
func (d *driver) Export(_ context.Context, g *backend.Grant) (ticket string, err error) {
	if err := d.checkOpen(); err != nil {
		return "", err
	}
	d.space.mu.Lock()
	defer d.space.mu.Unlock()
	now := time.Now()
	if _, err := d.space.renew(g, now); err != nil {
		return "", err
	}
	a := find(d.space.current(g.Key, now).holders, g.Owner)
	a.secret = new(rand.Text())
	return g.Owner + "." + *a.secret, nil
}

// Adopt implements backend.Mover.
func (d *driver) Adopt(
	ctx context.Context, ticket string, req *backend.Request,
) (*backend.Grant, error) {
	if err := d.checkOpen(); err != nil {
		return nil, err
	}
	now := backend.Began(ctx)
	d.space.mu.Lock()
	defer d.space.mu.Unlock()
	return d.space.adopt(ticket, req, now)
}

// adopt makes req.Owner the holder instead of the owner of the ticket, with the same fence. A
// second adoption finds no holder with the former owner, so it returns ErrLost. A repetition by the
// new owner needs no ticket: it finds its own grant. s.mu must be held.
func (s *space) adopt(
	ticket string, req *backend.Request, now time.Time,
) (*backend.Grant, error) {
	l := s.current(req.Key, now)
	if l == nil {
		return nil, backend.ErrLost
	}
	if err := l.conflict(req); err != nil {
		return nil, err
	}
	a := find(l.holders, req.Owner) // a repetition
	if a == nil {
		former, secret, _ := strings.Cut(ticket, ".")
		a = find(l.holders, former)
		if a == nil || a.secret == nil || *a.secret != secret || a.grant.Mode != req.Mode {
			return nil, backend.ErrLost
		}
	}
	next := l.replace(a, backend.Grant{Request: *req, Fence: a.grant.Fence})
	next.secret = nil // the ticket is used up
	next.grant.Term = next.prolong(req.TTL, now)
	s.tell(l.key())
	return &next.grant, nil
}
