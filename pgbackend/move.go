package pgbackend

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
)

// These methods store a row only over the version that they have read. So a statement of theirs
// that is executed late, after another change of the row, changes nothing.

// Downgrade implements backend.Downgrader. It wakes the readers that wait next. The former term
// never ends earlier by it.
func (d *driver) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	reader := *g
	reader.Mode = backend.Shared
	reader.Term = backend.Term{Sent: backend.Began(ctx), TTL: g.TTL}
	err := d.edit(ctx, d.main, g.Key, func(entries *roster.Roster, _ uint64, now int64) error {
		if isOther(entries.Find(g.Owner), g) {
			return backend.ErrLost
		}
		return entries.Downgrade(g.Owner, g.TTL, now)
	})
	if err != nil {
		return nil, err
	}
	return &reader, nil
}

// Export implements backend.Mover. The ticket has the owner and a secret, which are in the roster.
// The grant stays with its owner until Adopt. A second Export replaces the secret, so that only the
// last ticket is valid.
func (d *driver) Export(ctx context.Context, g *backend.Grant) (ticket string, err error) {
	secret := rand.Text()
	err = d.edit(ctx, d.main, g.Key, func(entries *roster.Roster, _ uint64, now int64) error {
		if isOther(entries.Find(g.Owner), g) {
			return backend.ErrLost
		}
		return entries.Export(g.Owner, secret, g.TTL, now)
	})
	if err != nil {
		return "", err
	}
	return g.Owner + "." + secret, nil
}

// Adopt implements backend.Mover. The fence stays, because the lock is never free in between. From
// then on the former owner's renewals return ErrLost.
func (d *driver) Adopt(
	ctx context.Context, ticket string, req *backend.Request,
) (*backend.Grant, error) {
	sent := backend.Began(ctx)
	former, secret, _ := strings.Cut(ticket, ".")
	var fence uint64
	err := d.edit(ctx, d.main, req.Key, func(entries *roster.Roster, _ uint64, now int64) error {
		e, err := entries.Adopt(former, secret, req, now)
		if err == nil {
			fence = e.Fence
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return d.granted(req, sent, fence), nil
}
