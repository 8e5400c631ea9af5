//go:build unix

package campaign

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// LockKind is a kind of lock. All locks of a round have the same kind.
type LockKind string

// The kinds of locks.
const (
	Mutex   LockKind = "mutex"
	Readers LockKind = "readers" // an RWMutex, with readers and writers
	Permits LockKind = "permits" // a Semaphore
	All     LockKind = "all"     // LockAll of some of the names
	Leader  LockKind = "leader"  // Elect
	Moved   LockKind = "moved"   // a mutex that passes between processes by Export and Adopt
)

// permits is the limit of the semaphores.
const permits = 2

// lock has everything that distinguishes one kind of lock from the other kinds: how a worker
// acquires it, and which holders the judge accepts at the same time.
type lock struct {
	kind    LockKind
	needs   backend.Mode // that the backend must have
	moves   bool         // leases pass between processes, which the backend must have, too
	isSet   bool         // one attempt takes several names
	isSole  bool         // a name has one holder, and a waiter waits for no other name
	request func(context.Context, *loop, []string, []dlock.Option) (*holding, error)

	limit  int                    // the largest number of holders that do not share the lock
	shares func(a, b *grant) bool // reports whether the limit does not apply to the two
}

// locks are all kinds of locks.
var locks = []*lock{
	{
		kind: Mutex, needs: backend.Exclusive, isSole: true, request: mutex,
		limit: 1, shares: never,
	},
	{
		kind: Readers, needs: backend.Exclusive | backend.Shared, request: readers,
		limit: 1, shares: func(a, b *grant) bool { return a.reader && b.reader },
	},
	{kind: Permits, needs: backend.Permit, request: permit, limit: permits, shares: never},
	{kind: All, needs: backend.Exclusive, isSet: true, request: set, limit: 1, shares: never},
	{
		kind: Leader, needs: backend.Exclusive, isSole: true, request: leader,
		limit: 1, shares: never,
	},
	{
		kind: Moved, needs: backend.Exclusive, moves: true, request: mutex,
		limit: 1, shares: never,
	},
}

func never(_, _ *grant) bool { return false }

// lock returns the description of k. Histories of older builds have no kinds, but only mutexes.
func (k LockKind) lock() *lock {
	i := slices.IndexFunc(locks, func(l *lock) bool { return l.kind == k })
	return locks[max(i, 0)]
}

// IsCarriedBy reports whether a backend with these capabilities has locks of the kind k.
func (k LockKind) IsCarriedBy(c backend.Capabilities) bool {
	l := k.lock()
	return c.Modes&l.needs == l.needs && (c.Move || !l.moves)
}

// LockKinds returns all kinds of locks.
func LockKinds() []LockKind {
	kinds := make([]LockKind, len(locks))
	for i, l := range locks {
		kinds[i] = l.kind
	}
	return kinds
}

// ParseLockKinds parses a comma-separated list of kinds of locks. An empty list means all kinds.
func ParseLockKinds(list string) ([]LockKind, error) {
	if list == "" {
		return LockKinds(), nil
	}
	var parsed []LockKind
	for word := range strings.SplitSeq(list, ",") {
		k := LockKind(word)
		if !slices.Contains(LockKinds(), k) {
			return nil, fmt.Errorf("unknown kind %q; the kinds are %s", word, join(LockKinds()))
		}
		if !slices.Contains(parsed, k) {
			parsed = append(parsed, k)
		}
	}
	return parsed, nil
}

// count returns the number of names of a round. Sets need a second name.
func (l *lock) count(names int) int {
	if l.isSet {
		return names + 1
	}
	return names
}

// choose returns the names of one attempt: at least two names for a set, in any order.
func (l *lock) choose(random *rand.Rand, names []string) []string {
	names = slices.Clone(names)
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	if l.isSet {
		return names[:2+random.IntN(len(names)-1)]
	}
	return names[:1]
}

// isGuard reports whether the lock protects a resource. A semaphore does not.
func (l *lock) isGuard() bool { return l.limit == 1 }

// holding is the result of one successful attempt.
type holding struct {
	leases []*dlock.Lease // one for each name
	reader bool
	lost   <-chan struct{} // closed when the holder must stop its work
	err    func() error
	unlock func(context.Context) error

	downgrade    func(context.Context) error // nil: a writer stays one
	isDowngraded bool
}

// hold returns the holding of one lease.
func hold(lease *dlock.Lease, err error) (*holding, error) {
	if err != nil {
		return nil, err
	}
	return &holding{
		leases: []*dlock.Lease{lease}, lost: lease.Lost(), err: lease.Err, unlock: lease.Unlock,
	}, nil
}

func mutex(
	ctx context.Context, l *loop, names []string, opts []dlock.Option,
) (*holding, error) {
	return hold(l.client.Lock(ctx, names[0], opts...))
}

// readers acquires the lock for reading in two of three attempts. One of two writers becomes a
// reader later.
func readers(
	ctx context.Context, l *loop, names []string, opts []dlock.Option,
) (*holding, error) {
	m, err := l.client.RWMutex(names[0], opts...)
	if err != nil {
		return nil, err
	}
	if l.random.IntN(3) == 0 {
		h, err := hold(m.Lock(ctx))
		if err == nil && l.random.IntN(2) == 0 {
			h.downgrade = h.leases[0].Downgrade
		}
		return h, err
	}
	h, err := hold(m.RLock(ctx))
	if err == nil {
		h.reader = true
	}
	return h, err
}

func permit(
	ctx context.Context, l *loop, names []string, opts []dlock.Option,
) (*holding, error) {
	s, err := l.client.Semaphore(names[0], permits, opts...)
	if err != nil {
		return nil, err
	}
	return hold(s.Acquire(ctx))
}

func set(
	ctx context.Context, l *loop, names []string, opts []dlock.Option,
) (*holding, error) {
	m, err := l.client.LockAll(ctx, names, opts...)
	if err != nil {
		return nil, err
	}
	return &holding{leases: m.Leases(), lost: m.Lost(), err: m.Err, unlock: m.Unlock}, nil
}
