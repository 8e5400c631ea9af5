package mysqlbackend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// renewBatch limits how many rows one statement locks for the time of a commit.
	renewBatch = 500
	// maxRowWait limits how long a batch waits for the rows that were locked at each attempt.
	maxRowWait = time.Second
)

// maxRowWaiters limits how many connections of a driver wait for locked rows. A commit of the
// server that stalls can keep thousands of rows locked. Half of the connections of a driver that is
// opened by URL stay free for acquirers.
const maxRowWaiters = mainConns / 2

// renewals is one call of RenewAll. Functions that fill in answers do so at different indices, so
// that they need no mutex.
type renewals struct {
	grants  []*backend.Grant
	answers []backend.Renewal // of the grants, in their order
}

func newRenewals(gs []*backend.Grant) *renewals {
	return &renewals{grants: gs, answers: make([]backend.Renewal, len(gs))}
}

// together is what the grants of one statement have in common.
type together struct {
	ttl       time.Duration
	hasFences bool
}

// RenewAll implements backend.BatchRenewer. A statement renews up to renewBatch grants with the
// same TTL. Grants in rosters are renewed name by name, also those whose row has become a roster.
// It blocks until all have an answer. Locked rows delay all answers by 21 ms and, if they stay
// locked, by the time of boundRowWait.
func (d *driver) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	plain := make(map[together][]int)
	var inRosters []int
	for i, g := range gs {
		if isPlain(g) {
			alike := together{g.TTL, g.Fence > 0}
			plain[alike] = append(plain[alike], i)
		} else {
			inRosters = append(inRosters, i)
		}
	}
	r := newRenewals(gs)
	var wg sync.WaitGroup
	wg.Go(func() { d.renewRosters(ctx, r, inRosters) })
	for _, indices := range plain {
		nameOf := func(i int) string { return gs[i].Key }
		for batch := range chunks(indices, nameOf, renewBatch, d.maxNames) {
			wg.Go(func() { d.renewBatch(ctx, r, batch) })
		}
	}
	wg.Wait()
	return r.answers
}

// nameRoom is the room in a packet that a statement needs for each name besides the name itself. It
// has the name twice at most, and a byte of it can take two.
const nameRoom = 256

// chunks splits items into parts of at most n, with room for their names in maxBytes.
func chunks[T any](
	items []T, nameOf func(T) string, n, maxBytes int,
) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(items) > 0 {
			size, used := 0, 0
			for size < min(n, len(items)) {
				used += 4*len(nameOf(items[size])) + nameRoom
				if used > maxBytes && size > 0 {
					break
				}
				size++
			}
			if !yield(items[:size:size]) {
				return
			}
			items = items[size:]
		}
	}
}

// renewPauses are the pauses before each attempt to renew the rows that were locked before. Another
// client locks a row for the time of a commit.
var renewPauses = [...]time.Duration{
	0, time.Millisecond, 4 * time.Millisecond, 16 * time.Millisecond,
}

// renewBatch renews the grants at indices, which one statement can renew. It waits for locked rows
// at the end, and not for long: until then the caller has no answers for the other rows. Grants
// whose rows have become rosters do not wait for that.
func (d *driver) renewBatch(ctx context.Context, r *renewals, indices []int) {
	var rosters sync.WaitGroup
	defer rosters.Wait()
	for _, p := range renewPauses {
		if p > 0 && pause(ctx, p) != nil {
			break
		}
		var inRosters []int
		if indices, inRosters = d.renewFree(ctx, r, indices); len(inRosters) > 0 {
			rosters.Go(func() { d.renewRosters(ctx, r, inRosters) })
		}
		if len(indices) == 0 {
			return
		}
	}
	d.renewLocked(ctx, r, slices.Collect(slices.Chunk(indices, 1)))
}

// renewFree renews the grants at indices with rows that are not locked now. It returns the indices
// of the remaining grants. Their rows have become rosters; or they are locked or do not exist: the
// server does not distinguish the two.
//
// A grant may still hold its row with a term that ends earlier than the new terms. Then the
// statement has skipped the row as locked, and the row was unlocked afterwards.
func (d *driver) renewFree(
	ctx context.Context, r *renewals, indices []int,
) (locked, inRosters []int) {
	names, triples := identify(r.grants, indices)
	micros, hasFences := ceilMicros(r.grants[indices[0]].TTL), r.grants[indices[0]].Fence > 0
	sent := time.Now()
	out, err := exec(ctx, d.pools.renewals, withNames(d.text.renewFree, len(indices)),
		slices.Concat(names, []any{len(names), micros, hasFences}, triples)...)
	var holders map[string]holder // nil: the statement has renewed all of them
	if err == nil && out.changed != int64(len(indices)) {
		holders, err = d.holders(ctx, names...)
	}
	for _, i := range indices {
		h, found := holders[r.grants[i].Key]
		has := h.has(r.grants[i])
		switch {
		case err != nil:
			r.answers[i].Err = err
		case holders == nil:
			r.answers[i].Term = termOf(sent, micros)
		case !found || has && (out.id == 0 || h.end < out.id):
			locked = append(locked, i)
		case h.live && h.owner == rosterOwner:
			inRosters = append(inRosters, i)
		case !has:
			r.answers[i].Err = backend.ErrLost
		default:
			r.answers[i].Term = termOf(sent, micros)
		}
	}
	return locked, inRosters
}

// identify returns the names of the grants at indices, and each name with its owner and fence, as
// parameters.
func identify(gs []*backend.Grant, indices []int) (names, triples []any) {
	for _, i := range indices {
		name := []byte(gs[i].Key)
		names = append(names, name)
		triples = append(triples, name, []byte(gs[i].Owner), int64(gs[i].Fence))
	}
	return names, triples
}

// holder is a row of holders.sql.
type holder struct {
	owner string
	token int64
	live  bool  // its term has not ended
	end   int64 // of its term, in the unit of renew-free.sql's insert id
}

// has reports whether g is still held.
func (h *holder) has(g *backend.Grant) bool {
	return h.live && h.owner == g.Owner && (g.Fence == 0 || h.token == int64(g.Fence))
}

// holders returns the present owners by name. It omits locked rows.
func (d *driver) holders(ctx context.Context, names ...any) (map[string]holder, error) {
	holders := make(map[string]holder, len(names))
	_, err := query(ctx, d.pools.renewals, func(rows *sql.Rows) (_ any, err error) {
		var name string
		var h holder
		err = rows.Scan(&name, &h.owner, &h.token, &h.live, &h.end)
		holders[name] = h
		return nil, err
	}, withNames(d.text.holders, len(names)), names...)
	return holders, err
}

// renewRosters renews the grants at indices, which stand in rosters, those of a key together. Like
// renewBatch it waits for locked rows at the end.
func (d *driver) renewRosters(ctx context.Context, r *renewals, indices []int) {
	byKey := make(map[string][]int)
	for _, i := range indices {
		key := r.grants[i].Key
		byKey[key] = append(byKey[key], i)
	}
	locked := make(chan []int, len(byKey))
	free := make(chan struct{}, maxRowWaiters)
	var wg sync.WaitGroup
	for _, of := range byKey {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			bounded, cancel := boundRowWait(ctx) // the row may be locked after it was read
			defer cancel()
			err := d.renewEntries(bounded, d.pools.renewals, true, r, of)
			if errors.Is(err, errRowLocked) {
				locked <- of
			}
		})
	}
	wg.Wait()
	close(locked)
	var keys [][]int
	for of := range locked {
		keys = append(keys, of)
	}
	d.renewLocked(ctx, r, keys)
}

// boundRowWait returns a context for statements that wait for locked rows. It leaves half of the
// time in which the answers for other rows are useful.
func boundRowWait(ctx context.Context) (context.Context, context.CancelFunc) {
	bound := maxRowWait
	if deadline, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(deadline)/2)
	}
	return context.WithTimeout(ctx, bound)
}

// renewLocked renews grants key by key; keys has the indices of each. Their rows were locked at
// each attempt, or do not exist. A contended row passes from one statement to the next and is never
// seen unlocked: only a statement that waits for it gets its turn.
func (d *driver) renewLocked(ctx context.Context, r *renewals, keys [][]int) {
	if len(keys) == 0 {
		return
	}
	ctx, cancel := boundRowWait(ctx)
	defer cancel()
	next := make(chan []int, len(keys))
	for _, indices := range keys {
		next <- indices
	}
	close(next)
	var wg sync.WaitGroup
	for range min(maxRowWaiters, len(keys)) {
		wg.Go(func() { d.renewWaiting(ctx, r, next) })
	}
	wg.Wait()
	for indices := range next { // all connections have given up before
		for _, i := range indices {
			r.answers[i].Err = fmt.Errorf("%w: no connection was free to wait for the row",
				backend.ErrUnavailable)
		}
	}
}

// renewWaiting renews the grants of the next keys on one connection, until there are none or a
// statement was not answered.
func (d *driver) renewWaiting(ctx context.Context, r *renewals, next <-chan []int) {
	select {
	case d.rowWaiters <- struct{}{}:
		defer func() { <-d.rowWaiters }()
	case <-ctx.Done():
		return
	}
	q, discard, err := d.pools.rowWaiter(ctx)
	if err != nil {
		return
	}
	defer discard()
	for indices := range next {
		err := d.renewKey(ctx, q, r, indices)
		isAnswer := isReply(err) || errors.Is(err, backend.ErrLost) ||
			errors.Is(err, backend.ErrConflict)
		if err != nil && !isAnswer {
			return
		}
	}
}

// renewKey renews the grants at indices, which have one key, on q. It returns the last error.
func (d *driver) renewKey(ctx context.Context, q querier, r *renewals, indices []int) error {
	if len(indices) > 1 { // they stand in a roster
		return d.renewEntries(ctx, q, false, r, indices)
	}
	a := &r.answers[indices[0]]
	a.Term, a.Err = d.renewOn(ctx, q, r.grants[indices[0]])
	return a.Err
}
