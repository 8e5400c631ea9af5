package etcdbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
	"github.com/dlock-go/dlock/backend/kind"
)

const (
	// listPage is the maximum number of keys that one request of List reads.
	listPage = 1000
	// breakAttempts limits how often Break tries again because the lock has got another holder.
	breakAttempts = 5
)

// Inspect implements backend.Inspector. It sends a request for the keys and one for each lease of a
// holder. Since is the time at which a holder entered the queue, by its own clock.
func (d *driver) Inspect(ctx context.Context, name string) (*backend.Info, error) {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	resp, err := d.client.Get(ctx, d.prefix(name), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return nil, interpretError(ctx, err)
	}
	return d.info(ctx, name, resp.Kvs, make(map[int64]time.Duration))
}

// info returns the state of a lock with these keys, in the order of their creation. left contains
// the remaining times of leases by id, and gets those that info requests.
func (d *driver) info(
	ctx context.Context, name string, kvs []*mvccpb.KeyValue, left map[int64]time.Duration,
) (*backend.Info, error) {
	info := &backend.Info{Key: name, Mode: backend.Exclusive}
	holders, err := holdersOf(kvs, name)
	if err != nil {
		return nil, err
	}
	for i, r := range holders {
		if i == 0 {
			info.Mode, info.Limit = r.kind.Mode(), r.kind.Limit()
		}
		ttl, ok := left[r.lease]
		if !ok {
			if ttl, err = d.timeLeft(ctx, r.lease); err != nil {
				return nil, err
			}
			left[r.lease] = ttl
		}
		info.Holders = append(info.Holders, r.holder(ttl))
	}
	info.Waiters = len(kvs) - len(info.Holders)
	return info, nil
}

// timeLeft returns how long a lease lives without another renewal. It is negative if the lease is
// gone.
func (d *driver) timeLeft(ctx context.Context, id int64) (time.Duration, error) {
	resp, err := d.client.TimeToLive(ctx, clientv3.LeaseID(id))
	if err != nil {
		return 0, interpretError(ctx, err)
	}
	return time.Duration(resp.TTL) * time.Second, nil
}

// List implements backend.Inspector. It reads the keys in pages of listPage, and the remaining time
// of each lease once. It omits a lock whose first key is not dlock's.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		l := listing{d: d, left: make(map[int64]time.Duration)}
		begin := d.locks() + key.Encode(prefix, maxKey)
		end := clientv3.GetPrefixRangeEnd(begin)
		for {
			kvs, more, err := d.page(ctx, begin, end)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, kv := range kvs {
				if !l.add(ctx, kv, yield) {
					return
				}
				begin = string(kv.Key) + "\x00" // the smallest later key
			}
			if !more {
				l.flush(ctx, yield)
				return
			}
		}
	}
}

// page reads the next keys of a listing, from begin up to end. more means that it is not the last
// page. The request has its own timeout, because the caller of List may take long for each lock.
func (d *driver) page(
	ctx context.Context, begin, end string,
) (kvs []*mvccpb.KeyValue, more bool, err error) {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	resp, err := d.client.Get(ctx, begin, clientv3.WithRange(end), clientv3.WithLimit(listPage))
	if err != nil {
		return nil, false, interpretError(ctx, err)
	}
	return resp.Kvs, resp.More, nil
}

// listing combines keys to locks. The keys come in their order on the server, in which the keys of
// a lock follow each other.
type listing struct {
	d      *driver
	left   map[int64]time.Duration // see info
	prefix string                  // of the present lock
	kvs    []*mvccpb.KeyValue      // of the present lock, so far
}

// add adds a key. If it begins another lock, add yields the one before it. It returns false if the
// listing has to end.
func (l *listing) add(
	ctx context.Context, kv *mvccpb.KeyValue, yield func(*backend.Info, error) bool,
) bool {
	prefix := strings.TrimSuffix(string(kv.Key), creatorOf(kv.Key))
	if prefix != l.prefix {
		if !l.flush(ctx, yield) {
			return false
		}
		l.prefix, l.kvs = prefix, nil
	}
	l.kvs = append(l.kvs, kv)
	return true
}

// flush yields the present lock, unless its first key is not dlock's. It returns false if the
// listing has to end.
func (l *listing) flush(ctx context.Context, yield func(*backend.Info, error) bool) bool {
	if len(l.kvs) == 0 {
		return true
	}
	slices.SortFunc(l.kvs, func(a, b *mvccpb.KeyValue) int {
		return cmp.Compare(a.CreateRevision, b.CreateRevision)
	})
	r, err := decode(l.kvs[0], "")
	if err != nil || l.d.prefix(r.name) != l.prefix {
		return true
	}
	reading, cancel := l.d.bound(ctx)
	defer cancel()
	info, err := l.d.info(reading, r.name, l.kvs, l.left)
	return yield(info, err) && err == nil
}

// Break implements backend.Breaker. It reads the keys and removes those of the holders, or of one
// of them, with one more request each. If the lock has changed hands in between, it begins again.
// If a request fails, the holders before it are broken already.
func (d *driver) Break(ctx context.Context, name, owner string) error {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	for range breakAttempts {
		holders, err := d.holders(ctx, name)
		if err != nil {
			return err
		}
		if owner != "" {
			holders = slices.DeleteFunc(holders, func(r record) bool { return r.owner != owner })
		}
		if len(holders) == 0 {
			return backend.ErrNotHeld
		}
		broken := false
		for _, r := range holders {
			done, err := d.removeHolder(ctx, name, r)
			if err != nil {
				return err
			}
			broken = broken || done
		}
		if broken {
			return nil
		}
	}
	return fmt.Errorf("%w: the lock keeps changing hands", backend.ErrUnavailable)
}

// holders returns the records of the holders of a lock.
func (d *driver) holders(ctx context.Context, name string) ([]record, error) {
	resp, err := d.client.Get(ctx, d.prefix(name), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return nil, interpretError(ctx, err)
	}
	return holdersOf(resp.Kvs, name)
}

// holdersOf returns the records of the holders among the keys of a lock, which are in the order of
// their creation. A first key that is not dlock's is ErrConflict; another one ends the holders.
func holdersOf(kvs []*mvccpb.KeyValue, name string) ([]record, error) {
	var records []record
	for _, kv := range kvs {
		r, err := decode(kv, name)
		switch {
		case err == nil:
			records = append(records, r)
			continue
		case len(records) == 0:
			return nil, err
		}
		return kind.Holders(records), nil //nolint:nilerr // the holders are in front of it
	}
	return kind.Holders(records), nil
}

// errBrokenWithoutSpace is an unknown outcome: the server executes the request that exceeds its
// quota, and refuses it nevertheless. Another attempt could break the next holder.
var errBrokenWithoutSpace = errors.New("the server is full, and the lock may have been broken")

// removeHolder removes the key of a holder. The same transaction writes the owner to the inbox of
// the holder's driver. That message belongs to the holder's lease, so it does not outlive the
// lease. done is false if the key or its lease was gone already.
func (d *driver) removeHolder(ctx context.Context, name string, r record) (done bool, err error) {
	key := newKeys(d.root, name, r.creator).key
	lease := clientv3.WithLease(clientv3.LeaseID(r.lease))
	present := clientv3.Compare(clientv3.ModRevision(key), "=", r.modified)
	resp, err := d.client.Txn(ctx).If(present).
		Then(clientv3.OpDelete(key), clientv3.OpPut(d.inboxOf(r.client), r.owner, lease)).
		Commit()
	if isFull(err) { // without the message, the next renewal finds out
		resp, err = d.client.Txn(ctx).If(present).Then(clientv3.OpDelete(key)).Commit()
		if err == nil && !resp.Succeeded {
			return false, errBrokenWithoutSpace
		}
	}
	switch {
	case isLeaseGone(err):
		return false, nil
	case err != nil:
		return false, interpretError(ctx, err)
	}
	return resp.Succeeded, nil
}
