package mysqlbackend

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
)

// Downgrade implements backend.Downgrader. It is a change of the roster: the row of a plain writer
// becomes a roster with one reader.
func (d *driver) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	if !d.caps.Move {
		return nil, d.unsupported("a downgrade")
	}
	shared := *g
	shared.Mode, shared.State = backend.Shared, inRoster{}
	apply := func(r *roster.Roster, row *rosterRow) error {
		if isOther(r.Find(g.Owner), g) {
			return backend.ErrLost
		}
		shared.Term = termOf(row.sent, ceilMicros(g.TTL))
		return r.Downgrade(g.Owner, g.TTL, row.now)
	}
	err := d.change(ctx, g.Key, &change{q: d.pools.control.of(g.Key), apply: apply})
	if err != nil {
		return nil, err
	}
	d.background.Go(func() { d.passSignal(g.Owner) }) // the next waiter enters the roster
	return &shared, nil
}

// Export implements backend.Mover. The ticket has the owner and a secret: a client that may inspect
// the lock knows its owner. The signal is given away, because this process will not release the
// lock.
func (d *driver) Export(ctx context.Context, g *backend.Grant) (ticket string, err error) {
	if !d.caps.Move {
		return "", d.unsupported("an export")
	}
	d.background.Go(func() { d.passSignal(g.Owner) })
	secret := rand.Text()
	apply := func(r *roster.Roster, row *rosterRow) error {
		if isOther(r.Find(g.Owner), g) {
			return backend.ErrLost
		}
		return r.Export(g.Owner, secret, g.TTL, row.now)
	}
	err = d.change(ctx, g.Key, &change{q: d.pools.control.of(g.Key), apply: apply})
	return g.Owner + "." + secret, err
}

// Adopt implements backend.Mover.
func (d *driver) Adopt(
	ctx context.Context, ticket string, req *backend.Request,
) (*backend.Grant, error) {
	if !d.caps.Move {
		return nil, d.unsupported("an adoption")
	}
	former, secret, _ := strings.Cut(ticket, ".")
	c := &change{q: d.pools.control.of(req.Key)}
	c.apply = func(r *roster.Roster, row *rosterRow) error {
		e, err := r.Adopt(former, secret, req, row.now)
		if err == nil {
			c.grant = grantOf(req, e, row.sent)
		}
		return err
	}
	if err := d.change(ctx, req.Key, c); err != nil {
		return nil, err // c may be under way, so c.grant must not be read
	}
	return c.grant, nil
}
