package memcachedbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
)

const (
	// minTTL is the least that whole seconds can tell.
	minTTL = time.Second
	// tickError is by how much less than it is asked for the server may keep something. It adds the
	// seconds to a time that it reads once a second, so that it is up to a second old, and of which
	// it drops the fraction. Its ticks drift, and a pause moves them: then two readings in
	// succession differ by two.
	tickError = 2 * time.Second
	// maxTTL leaves room for the seconds that are added. What is more than 30 days is an instant to
	// the server, not a duration.
	maxTTL = 30*24*time.Hour - tickError
	// expired is the expiry of what shall be gone at once.
	expired = -1
	// controlConns are the connections for renewals and releases that no number of
	// acquirers can take away.
	controlConns = 8
	// rewrites is how often a value is read again that changed before it was written. Only
	// its holder and a Break change it.
	rewrites = 3
	// renewBatch is how many locks are read in one request.
	renewBatch = 100
)

type driver struct {
	servers []*server
	list    string // names the list of servers
	fences  fences
	caps    backend.Capabilities
}

var (
	_ backend.Driver       = (*driver)(nil)
	_ backend.BatchRenewer = (*driver)(nil)
	_ backend.Inspector    = (*driver)(nil)
	_ backend.Breaker      = (*driver)(nil)
)

// server is one of the servers that share the names.
type server struct {
	seed          uint64
	pool          *pool
	main, control lane
}

func newServer(addr string, opts *Options) *server {
	p := &pool{address: address(addr), opts: opts}
	return &server{seed: hash(addr), pool: p, main: newLane(p, opts.Conns), control: newLane(p, controlConns)}
}

// newDriver takes normalised servers. Nothing is dialled yet.
func newDriver(servers []string, opts Options) *driver {
	d := &driver{caps: backend.Capabilities{
		Modes:   backend.Exclusive,
		Fencing: backend.FenceVolatile,
		Inspect: true, Break: true,
		MinTTL: minTTL, MaxTTL: maxTTL,
		// A connection is closed as soon as its call ends; this is for what the network holds
		// back. What comes later still ends with the TTL.
		Late: opts.Timeout,
	}}
	for _, addr := range servers {
		d.servers = append(d.servers, newServer(addr, &opts))
	}
	d.list = listOf(servers)
	return d
}

// listOf names a list of servers. A single one may have several names: it keeps all locks in any
// case.
func listOf(servers []string) string {
	if len(servers) == 1 {
		return "1"
	}
	return strconv.FormatUint(hash(strings.Join(slices.Sorted(slices.Values(servers)), ",")), 36)
}

// server returns the one that keeps a name: of all it has the highest score for it
// (rendezvous hashing). A server more, or fewer, moves no names but its own.
func (d *driver) server(name string) *server {
	if len(d.servers) == 1 {
		return d.servers[0]
	}
	best, most, h := d.servers[0], uint64(0), hash(name)
	for _, s := range d.servers {
		if score := mix(s.seed ^ h); score > most {
			best, most = s, score
		}
	}
	return best
}

// keys are the names of what a server keeps for one lock.
type keys struct{ lock, counter string }

const (
	lockPrefix    = "dlock:"
	counterPrefix = "dlock-fence:"
	maxKey        = 250 - len(counterPrefix)
)

func newKeys(name string) keys {
	e := key.Encode(name, maxKey)
	return keys{lock: lockPrefix + e, counter: counterPrefix + e}
}

// Acquire implements backend.Driver.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if req.Mode != backend.Exclusive {
		return nil, fmt.Errorf("%w: mode %s", backend.ErrUnsupported, req.Mode)
	}
	var g *backend.Grant
	err := d.server(req.Key).main.do(ctx, func(c *memcache.Client) (err error) {
		g, err = d.acquire(c, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// acquire takes the lock and then, while it is held, draws the fence. The fence is
// written with the lock already where the driver can foresee it; that it was drawn as
// foreseen proves that nobody else drew one meanwhile. Otherwise the lock is
// written once more, which fails if it is not held any more: then a later holder may
// have drawn an earlier fence.
func (d *driver) acquire(c *memcache.Client, req *backend.Request) (*backend.Grant, error) {
	k := newKeys(req.Key)
	foreseen := d.fences.foresee(req.Key)
	sent := time.Now()
	err := c.Add(&memcache.Item{
		Key: k.lock, Value: newRecord(req, d.list, foreseen.fence, sent).encode(), Expiration: seconds(req.TTL),
	})
	again := errors.Is(err, memcache.ErrNotStored)
	if again {
		err = d.recognise(c, k.lock, req)
	}
	if err != nil {
		return nil, err
	}
	g := &backend.Grant{Request: *req, Term: backend.Term{Sent: sent, TTL: term(req.TTL)}}
	fence, sure, err := d.draw(c, k.counter, req.Key, foreseen)
	if err == nil && (again || !sure) {
		g.Term.Sent, err = rewrite(c, k.lock, seconds(req.TTL), ownedBy(req.Owner), func(r *record) {
			r.fence, r.until = fence, time.Now().Add(g.Term.TTL)
		})
	}
	if err != nil {
		return nil, begun(c, k.lock, req, err)
	}
	g.Fence = fence
	return g, nil
}

// begun is the error of an acquisition that failed when it had the lock: unknown, unless
// it is certain that nothing is left.
func begun(c *memcache.Client, lock string, req *backend.Request, err error) error {
	if errors.Is(err, errGone) {
		return fmt.Errorf("%w: it vanished as soon as it was granted", backend.ErrLost)
	}
	if isForeignCounter(err) {
		if _, undone := rewrite(c, lock, expired, ownedBy(req.Owner), nil); undone == nil {
			return fmt.Errorf("%w: %w", errForeign, err)
		}
	}
	return begunError{err}
}

// recognise looks who holds a lock that is taken. It returns nil for req itself, which has
// asked before and did not get the answer. A holder with another list of servers is an error, since
// the two exclude each other for some names only.
func (d *driver) recognise(c *memcache.Client, lock string, req *backend.Request) error {
	item, err := c.Get(lock)
	if errors.Is(err, memcache.ErrCacheMiss) {
		return &backend.Busy{RetryAfter: time.Millisecond} // it has just been freed
	}
	if err != nil {
		return err
	}
	r, ok := decode(item.Value)
	switch {
	case !ok || r.name != req.Key:
		return errForeign
	case r.list != d.list:
		return fmt.Errorf("%w: held by %s", errLists, cmp.Or(r.meta, r.owner))
	case r.owner != req.Owner:
		return &backend.Busy{Holder: cmp.Or(r.meta, r.owner), Fence: r.fence}
	}
	return nil
}

// rewrite changes what is under lock, if it is there and owned, and gives it a new
// expiry; change is nil for what shall be gone. The value is read and written on one
// connection; nothing is written over a value that has changed in between.
func rewrite(
	c *memcache.Client, lock string, expiry int32, owned func(*record) bool, change func(*record),
) (sent time.Time, err error) {
	for range rewrites {
		sent = time.Now()
		item, err := c.Get(lock)
		if errors.Is(err, memcache.ErrCacheMiss) {
			return sent, errGone
		}
		if err != nil {
			return sent, err
		}
		if err = swap(c, item, expiry, owned, change); !errors.Is(err, memcache.ErrCASConflict) {
			return sent, err
		}
	}
	return sent, errContended
}

// swap is the second half of rewrite. The item was read on the same connection.
func swap(
	c *memcache.Client, item *memcache.Item, expiry int32, owned func(*record) bool, change func(*record),
) error {
	r, ok := decode(item.Value)
	if !ok || !owned(r) {
		return errGone
	}
	item.Value, item.Expiration = nil, expiry
	if change != nil {
		change(r)
		item.Value = r.encode()
	}
	err := c.CompareAndSwap(item)
	if errors.Is(err, memcache.ErrCacheMiss) || errors.Is(err, memcache.ErrNotStored) {
		return errGone
	}
	return err
}

func ownedBy(owner string) func(*record) bool {
	return func(r *record) bool { return r.owner == owner }
}

// Renew implements backend.Driver.
func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	var answer backend.Renewal
	err := d.server(g.Key).control.do(ctx, func(c *memcache.Client) error {
		answer = renew(c, g)
		return answer.Err
	})
	return answer.Term, lost(err)
}

func renew(c *memcache.Client, g *backend.Grant) backend.Renewal {
	sent, err := rewrite(c, newKeys(g.Key).lock, seconds(g.TTL), ownedBy(g.Owner), prolong(g))
	return renewal(g, sent, err)
}

func renewal(g *backend.Grant, sent time.Time, err error) backend.Renewal {
	if err != nil {
		return backend.Renewal{Err: err}
	}
	return backend.Renewal{Term: backend.Term{Sent: sent, TTL: term(g.TTL)}}
}

func prolong(g *backend.Grant) func(*record) {
	return func(r *record) { r.until = time.Now().Add(term(g.TTL)) }
}

// lost is what it means to a renewal that there is nothing.
func lost(err error) error {
	if errors.Is(err, errGone) {
		return fmt.Errorf("%w: %w", backend.ErrLost, err)
	}
	return err
}

// RenewAll implements backend.BatchRenewer: one gets for many, and a cas for each.
func (d *driver) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	answers := make([]backend.Renewal, len(gs))
	byServer := make(map[*server][]int, len(d.servers))
	for i, g := range gs {
		s := d.server(g.Key)
		byServer[s] = append(byServer[s], i)
	}
	var wg sync.WaitGroup
	for s, all := range byServer {
		for batch := range slices.Chunk(all, renewBatch) {
			wg.Go(func() { s.renewBatch(ctx, gs, batch, answers) })
		}
	}
	wg.Wait()
	return answers
}

// renewBatch renews those of gs that have the indexes of a batch.
func (s *server) renewBatch(ctx context.Context, gs []*backend.Grant, batch []int, answers []backend.Renewal) {
	err := s.control.do(ctx, func(c *memcache.Client) error {
		locks := make([]string, len(batch))
		for i, n := range batch {
			locks[i] = newKeys(gs[n].Key).lock
		}
		sent := time.Now()
		items, err := c.GetMulti(locks)
		if err != nil {
			return err
		}
		sound := true // the connection is that of the gets
		for i, n := range batch {
			answers[n], sound = renewOne(c, gs[n], items[locks[i]], sent, sound)
			answers[n].Err = lost(interpretError(ctx, answers[n].Err))
		}
		return nil
	})
	for _, n := range batch {
		if err != nil {
			answers[n].Err = err
		}
	}
}

// renewOne renews g from what was read of it, unless the connection that it was read on has
// broken. It reports whether that still stands.
func renewOne(
	c *memcache.Client, g *backend.Grant, item *memcache.Item, sent time.Time, sound bool,
) (backend.Renewal, bool) {
	if !sound {
		return renew(c, g), false
	}
	err := errGone
	if item != nil {
		err = swap(c, item, seconds(g.TTL), ownedBy(g.Owner), prolong(g))
	}
	answer := renewal(g, sent, err)
	if errors.Is(err, memcache.ErrCASConflict) { // it has changed since
		answer = renew(c, g)
	}
	return answer, answer.Err == nil || errors.Is(answer.Err, errGone)
}

// Release implements backend.Driver.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	return d.free(ctx, d.server(g.Key).control, g.Key, ownedBy(g.Owner))
}

// free is a conditional delete, which the protocol lacks: an empty value is written, which
// expires with that. It is small so that a server that is full of locks has room for it.
func (d *driver) free(ctx context.Context, l lane, name string, owned func(*record) bool) error {
	err := l.do(ctx, func(c *memcache.Client) error {
		_, err := rewrite(c, newKeys(name).lock, expired, owned, nil)
		return err
	})
	if errors.Is(err, errGone) {
		return fmt.Errorf("%w: %w", backend.ErrNotHeld, err)
	}
	return err
}

// Capabilities implements backend.Driver.
func (d *driver) Capabilities() backend.Capabilities { return d.caps }

// Close implements backend.Driver.
func (d *driver) Close() error {
	var errs []error
	for _, s := range d.servers {
		errs = append(errs, s.pool.close())
	}
	return errors.Join(errs...)
}

// term is what a TTL is worth: whole seconds.
func term(ttl time.Duration) time.Duration {
	return (ttl + time.Second - 1) / time.Second * time.Second
}

// seconds is what the server is asked for.
func seconds(ttl time.Duration) int32 { return int32((term(ttl) + tickError) / time.Second) }

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum64()
}

// mix spreads a hash over all bits (the finalizer of splitmix64).
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
