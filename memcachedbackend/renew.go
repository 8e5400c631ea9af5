package memcachedbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
)

// maxBatch is how many locks one gets reads.
const maxBatch = 100

// RenewAll implements backend.BatchRenewer. It sends one gets for many locks, and one cas for each.
// The cas of one connection follow each other, so RenewAll spreads the locks over connections.
func (d *driver) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	answers := make([]backend.Renewal, len(gs))
	byServer := make(map[*server][]int, len(d.servers)) // indexes of gs
	for i, g := range gs {
		s := d.server(g.Key)
		byServer[s] = append(byServer[s], i)
	}
	var wg sync.WaitGroup
	for s, all := range byServer {
		for indexes := range slices.Chunk(all, batchSize(len(all), s.renewals.size())) {
			wg.Go(func() { s.renewBatch(ctx, gs, indexes, answers) })
		}
	}
	wg.Wait()
	return answers
}

// batchSize returns how many of n locks one batch renews if there are as many connections.
func batchSize(n, conns int) int { return min((n+conns-1)/conns, maxBatch) }

// renewBatch renews the grants with these indexes and sets their answers. Several batches run
// concurrently, because they have different indexes.
func (s *server) renewBatch(
	ctx context.Context, gs []*backend.Grant, indexes []int, answers []backend.Renewal,
) {
	err := s.renewals.do(ctx, func(c *memcache.Client) error {
		locks := make([]string, len(indexes))
		for i, n := range indexes {
			locks[i] = newKeys(gs[n].Key).lock
		}
		b := batch{client: c, sent: time.Now()}
		items, err := c.GetMulti(locks)
		if err != nil {
			return err
		}
		for i, n := range indexes {
			answers[n] = b.renew(gs[n], items[locks[i]])
			answers[n].Err = renewalError(interpretError(ctx, answers[n].Err))
		}
		return nil
	})
	if err == nil {
		return
	}
	for _, n := range indexes {
		answers[n].Err = err
	}
}

// batch is a set of grants that are renewed after one gets.
type batch struct {
	client *memcache.Client
	sent   time.Time // before the gets
	// stale means that the connection of the gets has broken. The CAS ids of the items must not be
	// used on the next connection, because a restarted server assigns the same ids again.
	stale bool
}

// renew renews g. item is what the gets returned for g, or nil. If item is stale or has changed,
// renew reads it again.
func (b *batch) renew(g *backend.Grant, item *memcache.Item) backend.Renewal {
	if b.stale {
		return renew(b.client, g)
	}
	err := errGone
	if item != nil {
		err = swap(b.client, item, isGrants(g), prolong(g.TTL))
	}
	answer := newRenewal(g, b.sent, err)
	if errors.Is(err, memcache.ErrCASConflict) {
		answer = renew(b.client, g)
	}
	b.stale = answer.Err != nil && !errors.Is(answer.Err, errGone)
	return answer
}

// renew renews one grant with a gets and a cas.
func renew(c *memcache.Client, g *backend.Grant) backend.Renewal {
	sent, err := rewrite(c, newKeys(g.Key).lock, isGrants(g), prolong(g.TTL))
	return newRenewal(g, sent, err)
}

// newRenewal returns the answer for g: a term from sent, or err.
func newRenewal(g *backend.Grant, sent time.Time, err error) backend.Renewal {
	if err != nil {
		return backend.Renewal{Err: err}
	}
	return backend.Renewal{Term: backend.Term{Sent: sent, TTL: grantedTTL(g.TTL)}}
}

// renewalError returns the error of a renewal: errGone means that the grant is lost.
func renewalError(err error) error {
	if errors.Is(err, errGone) {
		return fmt.Errorf("%w: %w", backend.ErrLost, err)
	}
	return err
}
