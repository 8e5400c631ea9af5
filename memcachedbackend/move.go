package memcachedbackend

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
)

// Export implements backend.Mover. It stores a secret in the record. The ticket has the owner, too.
// A late renewal keeps the secret.
func (d *driver) Export(ctx context.Context, g *backend.Grant) (ticket string, err error) {
	secret := rand.Text()
	err = d.server(g.Key).control.do(ctx, func(c *memcache.Client) error {
		_, err := rewrite(c, newKeys(g.Key).lock, isGrants(g), storeTicket(secret, g.TTL))
		return err
	})
	if err != nil {
		return "", renewalError(err)
	}
	return g.Owner + "." + secret, nil
}

// Adopt implements backend.Mover. The fence stays the same, so no counter is needed.
func (d *driver) Adopt(
	ctx context.Context, ticket string, req *backend.Request,
) (*backend.Grant, error) {
	if req.Mode != backend.Exclusive {
		return nil, unsupported(req.Mode)
	}
	a := &adoption{req: req, list: d.list}
	a.former, a.secret, _ = strings.Cut(ticket, ".")
	err := d.server(req.Key).control.do(ctx, func(c *memcache.Client) error {
		sent, err := rewrite(c, newKeys(req.Key).lock, a.isAllowed, a.adopt)
		a.grant.Term = backend.Term{Sent: sent, TTL: grantedTTL(req.TTL)}
		return err
	})
	if errors.Is(err, errGone) && a.isOtherList {
		err = errOtherList
	}
	if err != nil {
		return nil, renewalError(err)
	}
	return &a.grant, nil
}

// adoption is the change of a record by Adopt.
type adoption struct {
	req            *backend.Request
	list           string // of this driver
	former, secret string // the ticket

	isOtherList bool // the record has another list
	grant       backend.Grant
}

// isAllowed reports whether a record belongs to the ticket, or, for a repetition, to the new owner
// already. As for Acquire, a holder with another list of servers is an error.
func (a *adoption) isAllowed(r *record) bool {
	if r.owner == a.req.Owner {
		return true
	}
	isTickets := r.owner == a.former && r.ticket == a.secret && a.secret != noTicket
	a.isOtherList = isTickets && r.list != a.list
	return isTickets && !a.isOtherList
}

// adopt is the edit that makes the new owner the holder. A repetition finds the record of the first
// adoption, and keeps its since. The ticket is used up.
func (a *adoption) adopt(r *record) ([]byte, int32) {
	if r.owner != a.req.Owner {
		*r = *newRecord(a.req, a.list, r.fence, time.Now())
	}
	a.grant = backend.Grant{Request: *a.req, Fence: r.fence, State: r.since.UnixMicro()}
	return prolong(a.req.TTL)(r)
}
