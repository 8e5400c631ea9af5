package pgbackend

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// AcquireAll implements backend.Combiner. It reads the rows and stores all of them again, with one
// statement, unless one of them has changed meanwhile; then it begins again, until ctx ends. It
// returns ErrUnsupported for more locks than one statement renews. It wakes no waiter: a grant that
// it adds removes no entry in front of a waiter, except entries that have expired, and a waiter
// repeats its attempt at that time by itself.
func (d *driver) AcquireAll(
	ctx context.Context, reqs []*backend.Request,
) (grants []*backend.Grant, failed int, err error) {
	if len(reqs) > maxBatch {
		return nil, 0, fmt.Errorf("%w: %d locks in one step", backend.ErrUnsupported, len(reqs))
	}
	sent := backend.Began(ctx)
	for conflicts := 0; ; conflicts++ {
		s, failed, err := d.prepare(ctx, reqs)
		if err != nil {
			return nil, failed, err
		}
		stored, err := d.exec(ctx, d.main, d.sql.storeAll, s.args()...)
		switch {
		case err != nil:
			return nil, 0, err
		case stored > 0:
			for i, req := range reqs {
				grants = append(grants, d.granted(req, sent, s.granted[i]))
			}
			return grants, 0, nil
		}
		if err := pause(ctx, conflicts); err != nil {
			return nil, 0, err
		}
	}
}

// set has rows to be stored, by column, and the fences of the grants in them. The elements with the
// same index are one row, because storeAllSQL takes an array for each column.
type set struct {
	names            [][]byte
	versions, fences []int64
	owners           []string
	metas, rosters   [][]byte
	since, expires   []time.Time
	granted          []uint64

	readFences  []int64 // as they were read, see isUnchanged
	readOwners  []string
	readExpires []time.Time
	readRosters [][]byte // the digests
}

// add adds a row, and the fence of the grant in it.
func (s *set) add(key string, r *row, granted uint64) {
	s.names = append(s.names, name(key))
	s.versions, s.fences = append(s.versions, r.version), append(s.fences, r.fence)
	s.owners = append(s.owners, r.owner)
	s.metas, s.rosters = append(s.metas, r.meta), append(s.rosters, r.roster)
	s.since, s.expires = append(s.since, r.since), append(s.expires, r.expires)
	s.granted = append(s.granted, granted)
	read := r.read()
	s.readFences = append(s.readFences, read.fence)
	s.readOwners = append(s.readOwners, read.owner)
	s.readExpires = append(s.readExpires, read.expires)
	s.readRosters = append(s.readRosters, digest(read.roster))
}

// args returns the parameters of storeAllSQL.
func (s *set) args() []any {
	return []any{
		s.names, s.versions, s.fences, s.owners, s.metas, s.since, s.expires, s.rosters,
		s.readFences, s.readOwners, s.readExpires, s.readRosters,
	}
}

// prepare returns the rows of reqs with their grants. If one of reqs is refused, failed is its
// index, and no row is changed. A row of a name that had none stays, but it is free.
func (d *driver) prepare(
	ctx context.Context, reqs []*backend.Request,
) (s *set, failed int, err error) {
	keys := make([]string, len(reqs))
	for i, req := range reqs {
		keys[i] = req.Key
	}
	for {
		rows, err := d.readAll(ctx, keys)
		if err != nil {
			return nil, 0, err
		}
		s := new(set)
		for i, req := range reqs {
			r := rows[req.Key]
			if r == nil {
				continue
			}
			next, fence, err := r.acquired(req)
			if err != nil {
				return nil, i, err
			}
			s.add(req.Key, next, fence)
		}
		if len(s.names) == len(reqs) {
			return s, 0, nil
		}
		// Only rows that exist can be locked in order.
		if err := d.settle(ctx, keys...); err != nil {
			return nil, 0, err
		}
	}
}

// readAll is readShort, but reads long rosters one by one.
func (d *driver) readAll(ctx context.Context, keys []string) (map[string]*row, error) {
	rows, err := d.readShort(ctx, d.main, keys)
	for key, r := range rows {
		if err != nil || !r.isCut() {
			continue
		}
		if r, err = d.read(ctx, d.main, key); err == nil && r.found {
			rows[key] = r
		} else {
			delete(rows, key)
		}
	}
	return rows, err
}

// pause waits before another attempt to store rows that many clients change.
func pause(ctx context.Context, conflicts int) error {
	timer := time.NewTimer(pauseAfter(conflicts))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return unsent(ctx.Err())
	}
}

// ReleaseAll implements backend.Combiner. One statement frees the locks that have no waiters. Each
// of the rest is released with its own statements, all at the same time. They skip rows that are
// locked, because ReleaseAll ends with its slowest answer: the answer for such a row is errLocked,
// and the core repeats the release. Only a lock that seems not to be held waits for its row.
func (d *driver) ReleaseAll(ctx context.Context, gs []*backend.Grant) []error {
	keys, owners := make([]string, len(gs)), make([]string, len(gs))
	for i, g := range gs {
		keys[i], owners[i] = g.Key, g.Owner
	}
	freed, err := d.execAll(ctx, d.main, len(gs), d.sql.freeAll, names(keys), owners)
	errs := slices.Repeat([]error{err}, len(gs))
	if err != nil {
		return errs
	}
	var releases sync.WaitGroup
	for i, g := range gs {
		if freed[i] == 0 {
			releases.Go(func() { errs[i] = d.remove(ctx, d.hasty, g) })
		}
	}
	releases.Wait()
	return errs
}
