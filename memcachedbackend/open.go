package memcachedbackend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
)

func init() { backend.Register("memcached", open) }

// openTimeout bounds an opening whose context has no earlier end.
const openTimeout = 8 * time.Second

// New makes a driver of a list of servers, each host:port or the absolute path of a
// unix socket. It asks each of them, for at most eight seconds, whether it can keep
// locks. It fails if one of them cannot, or if none can be reached. A *memcache.Client is not taken: how many connections it opens and which server
// it sends a name to are its own, and it knows no contexts.
func New(servers []string, opts *Options) (backend.Driver, error) {
	return opened(context.Background(), servers, opts)
}

func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	servers, opts, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	return opened(ctx, servers, &opts)
}

func opened(ctx context.Context, servers []string, opts *Options) (backend.Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	list, err := normalise(servers)
	if err != nil {
		return nil, err
	}
	settings := opts.withDefaults()
	if settings.Timeout < 0 || settings.Conns < 0 {
		return nil, errors.New("dlock: memcachedbackend: a negative Timeout or Conns")
	}
	d := newDriver(list, settings)
	if err := d.probe(ctx); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// probe asks all servers at once. Some of them may be dead, but not all: the names of a dead server
// cannot be locked, and need not keep a client from the others.
func (d *driver) probe(ctx context.Context) error {
	errs := make([]error, len(d.servers))
	var wg sync.WaitGroup
	for i, s := range d.servers {
		wg.Go(func() {
			if err := s.main.do(ctx, probe); err != nil {
				errs[i] = fmt.Errorf("dlock: memcached at %s: %w", s.pool.address, unavailable(err))
			}
		})
	}
	wg.Wait()
	if living := slices.DeleteFunc(slices.Clone(errs), isDead); len(living) > 0 {
		return errors.Join(living...)
	}
	return errors.Join(errs...)
}

// isDead reports whether err says that a server cannot be reached, rather than that it refuses.
func isDead(err error) bool {
	if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "dial" {
		return true
	}
	_, slow := errors.AsType[*memcache.ConnectTimeoutError](err)
	return slow || errors.Is(err, context.DeadlineExceeded)
}

// probe takes and frees a lock that nobody else knows: the server must let us in, have room for
// it, and compare and swap.
func probe(c *memcache.Client) error {
	req := &backend.Request{Key: "probe", Owner: rand.Text(), TTL: minTTL, Meta: "dlock"}
	lock := "dlock-probe:" + req.Owner
	// First a request of one line: what is not memcached may answer each line of a value.
	if _, err := c.Get(lock); !errors.Is(err, memcache.ErrCacheMiss) {
		return err
	}
	err := c.Add(&memcache.Item{
		Key: lock, Value: newRecord(req, "", 0, time.Now()).encode(), Expiration: seconds(req.TTL),
	})
	if err != nil {
		return err
	}
	_, err = rewrite(c, lock, expired, ownedBy(req.Owner), nil)
	if errors.Is(err, errContended) {
		return fmt.Errorf("%w: compare and swap is turned off", backend.ErrUnsupported)
	}
	if err != nil {
		return err
	}
	if _, err = c.Get(lock); !errors.Is(err, memcache.ErrCacheMiss) {
		return fmt.Errorf("%w: an expiry in the past frees no lock", backend.ErrUnsupported)
	}
	return nil
}
