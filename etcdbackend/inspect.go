package etcdbackend

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
)

const (
	// listPage is the maximum number of keys that one request of List reads.
	listPage = 1000
	// breakAttempts limits how often Break tries again because the lock has got another holder.
	breakAttempts = 5
)

// Inspect implements backend.Inspector. It sends two requests for a lock that is taken, and one
// otherwise. Since is the time at which the holder entered the queue, by its own clock.
func (d *driver) Inspect(ctx context.Context, name string) (*backend.Info, error) {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	resp, err := d.client.Get(ctx, d.prefix(name), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return nil, interpretError(ctx, err)
	}
	info := &backend.Info{Key: name, Mode: backend.Exclusive}
	if len(resp.Kvs) == 0 {
		return info, nil
	}
	r, err := decode(resp.Kvs[0], name)
	if err != nil {
		return nil, err
	}
	ttl, err := d.timeLeft(ctx, resp.Kvs[0].Lease)
	if err != nil {
		return nil, err
	}
	info.Holders, info.Waiters = []backend.Holder{r.holder(ttl)}, len(resp.Kvs)-1
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
	left   map[int64]time.Duration // the remaining times of leases, by id
	prefix string                  // of the present lock
	holder *mvccpb.KeyValue        // the key of the present lock that was created first
	keys   int                     // of the present lock, so far
}

// add adds a key. If it begins another lock, add yields the one before it. It returns false if the
// listing has to end.
func (l *listing) add(
	ctx context.Context, kv *mvccpb.KeyValue, yield func(*backend.Info, error) bool,
) bool {
	prefix := strings.TrimSuffix(string(kv.Key), ownerOf(kv.Key))
	if prefix != l.prefix {
		if !l.flush(ctx, yield) {
			return false
		}
		l.prefix, l.holder, l.keys = prefix, kv, 0
	}
	if l.keys++; kv.CreateRevision < l.holder.CreateRevision {
		l.holder = kv
	}
	return true
}

// flush yields the present lock, unless its first key is not dlock's. It returns false if the
// listing has to end.
func (l *listing) flush(ctx context.Context, yield func(*backend.Info, error) bool) bool {
	if l.holder == nil {
		return true
	}
	r, err := decode(l.holder, "")
	if err != nil || l.d.prefix(r.name) != l.prefix {
		return true
	}
	left, ok := l.left[l.holder.Lease]
	if !ok {
		reading, cancel := l.d.bound(ctx)
		defer cancel()
		if left, err = l.d.timeLeft(reading, l.holder.Lease); err != nil {
			yield(nil, err)
			return false
		}
		l.left[l.holder.Lease] = left
	}
	return yield(&backend.Info{
		Key: r.name, Mode: backend.Exclusive,
		Holders: []backend.Holder{r.holder(left)}, Waiters: l.keys - 1,
	}, nil)
}

// Break implements backend.Breaker. It reads the first key and removes it with a second request. If
// the lock has changed hands in between, it begins again.
func (d *driver) Break(ctx context.Context, name, owner string) error {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	for range breakAttempts {
		resp, err := d.client.Get(ctx, d.prefix(name), clientv3.WithFirstCreate()...)
		if err != nil {
			return interpretError(ctx, err)
		}
		if len(resp.Kvs) == 0 {
			return backend.ErrNotHeld
		}
		kv := resp.Kvs[0]
		r, err := decode(kv, name)
		if err != nil {
			return err
		}
		if owner != "" && owner != r.owner {
			return backend.ErrNotHeld
		}
		done, err := d.removeHolder(ctx, kv, r)
		if done || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: the lock keeps changing hands", backend.ErrUnavailable)
}

// removeHolder removes the key of a holder. The same transaction writes the owner to the inbox of
// the holder's driver. That message belongs to the holder's lease, so it does not outlive the
// lease. done is false if the key or its lease was gone already: the lock then has another holder,
// or none.
func (d *driver) removeHolder(
	ctx context.Context, kv *mvccpb.KeyValue, r record,
) (done bool, err error) {
	lease := clientv3.WithLease(clientv3.LeaseID(kv.Lease))
	resp, err := d.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(string(kv.Key)), "=", kv.CreateRevision)).
		Then(
			clientv3.OpDelete(string(kv.Key)),
			clientv3.OpPut(d.inboxOf(r.client), r.owner, lease),
		).Commit()
	switch {
	case isLeaseGone(err):
		return false, nil
	case err != nil:
		return false, interpretError(ctx, err)
	}
	return resp.Succeeded, nil
}
