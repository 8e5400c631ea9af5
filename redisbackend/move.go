package redisbackend

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// Downgrade implements backend.Downgrader. The script is idempotent by owner and fence: a
// repetition after an unknown outcome finds a reader, renews it and returns the same answer.
func (d *driver) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	r := d.newRequest(g.Key, g.Owner)
	r.ttl = ceilMillis(g.TTL)
	r.with(backend.FenceEpoch+g.Fence, &r.ttl)
	sent := time.Now()
	reply, err := d.control.run(d.opts.withReplicaWait(ctx, g.TTL), downgradeScript, r)
	err = ignoreIfRefused(reply, err)
	switch {
	case err != nil:
		return nil, err
	case reply == int64(0):
		d.hub.forget(g.Owner)
		return nil, backend.ErrLost
	case reply != int64(1):
		return nil, errUnexpected(reply)
	}
	shared := *g
	shared.Mode, shared.Term = backend.Shared, newTerm(g.TTL, sent)
	return &shared, nil
}

// Export implements backend.Mover. The ticket has the owner, by which the server finds the grant,
// and a secret: a client that may inspect the lock knows its owner. From then on the grant ends
// with its term unless it is adopted, and this driver ignores messages about it.
func (d *driver) Export(ctx context.Context, g *backend.Grant) (ticket string, err error) {
	secret := rand.Text()
	reply, err := d.move(ctx, g.TTL, exportScript, g.Key, g.Owner,
		g.Owner, backend.FenceEpoch+g.Fence, ceilMillis(g.TTL), secret)
	switch {
	case err != nil:
		return "", err
	case reply == int64(0):
		d.hub.forget(g.Owner)
		return "", backend.ErrLost
	case reply != int64(1):
		return "", errUnexpected(reply)
	}
	d.hub.forget(g.Owner)
	return g.Owner + "." + secret, nil
}

// Adopt implements backend.Mover. An adoption without its replicas has an unknown outcome. It is
// not undone as an Acquire is, because the ticket is gone.
func (d *driver) Adopt(
	ctx context.Context, ticket string, req *backend.Request,
) (*backend.Grant, error) {
	owner, secret, ok := strings.Cut(ticket, ".")
	if !ok {
		return nil, backend.ErrLost
	}
	p := d.hub.admit(req)
	p.sent = time.Now()
	reply, err := d.move(ctx, req.TTL, adoptScript, req.Key, owner, req.Owner,
		ceilMillis(req.TTL), encodeTail(d.hub.client, req), owner, secret, string(kind.Of(req)))
	if err != nil {
		if isDefinite(err) {
			d.hub.forget(req.Owner)
		}
		return nil, err
	}
	text, ok := reply.(string)
	if !ok {
		d.hub.forget(req.Owner)
		return nil, backend.ErrLost
	}
	fence, err := parseFence(text)
	if err != nil {
		return nil, err
	}
	return p.grant(req, fence, req.TTL), nil
}

// move evaluates a script with the five keys of an exported grant. owner is the exporter's. The
// script proves a term of ttl. It is not sent after ctx has ended.
func (d *driver) move(
	ctx context.Context, ttl time.Duration, s script, name, owner string, args ...any,
) (any, error) {
	k := d.keys(name)
	all := []any{
		nil, nil, &guardedNumKeys{n: 5, ctx: ctx},
		k.lock, k.fence, k.queue, k.waiters, k.lock + ":ticket:" + owner,
	}
	ctx = d.opts.withReplicaWait(ctx, ttl)
	reply, err := d.control.runSeparately(ctx, s, append(all, args...))
	return reply, ignoreIfRefused(reply, err)
}
