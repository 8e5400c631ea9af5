package etcdbackend

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
)

// listPage is how many keys one step of a listing reads.
const listPage = 1000

// breakAttempts bounds how often Break follows a lock that changes hands meanwhile.
const breakAttempts = 5

// Inspect implements backend.Inspector. Since is when the holder entered the queue, by its clock.
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
	r, err := decodeRecord(resp.Kvs[0], name)
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

// timeLeft asks how long a lease lives on if nobody renews it.
func (d *driver) timeLeft(ctx context.Context, lease int64) (time.Duration, error) {
	resp, err := d.client.TimeToLive(ctx, clientv3.LeaseID(lease))
	if err != nil {
		return 0, interpretError(ctx, err)
	}
	return time.Duration(resp.TTL) * time.Second, nil // -1 s: it is gone
}

// List implements backend.Inspector.
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
				begin = string(kv.Key) + "\x00"
			}
			if !more {
				l.flush(ctx, yield)
				return
			}
		}
	}
}

func (d *driver) page(ctx context.Context, begin, end string) (kvs []*mvccpb.KeyValue, more bool, err error) {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	resp, err := d.client.Get(ctx, begin, clientv3.WithRange(end), clientv3.WithLimit(listPage))
	if err != nil {
		return nil, false, interpretError(ctx, err)
	}
	return resp.Kvs, resp.More, nil
}

// listing makes locks of keys, which come lock by lock.
type listing struct {
	d      *driver
	left   map[int64]time.Duration // by lease
	prefix string                  // of the lock that is being read
	holder *mvccpb.KeyValue        // the oldest of its keys
	keys   int
}

// add reads a key. It reports whether to go on.
func (l *listing) add(ctx context.Context, kv *mvccpb.KeyValue, yield func(*backend.Info, error) bool) bool {
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

// flush shows the lock that has been read, unless it is not ours. It reports whether to go on.
func (l *listing) flush(ctx context.Context, yield func(*backend.Info, error) bool) bool {
	if l.holder == nil {
		return true
	}
	r, err := decodeRecord(l.holder, "")
	if err != nil || l.d.prefix(r.name) != l.prefix {
		return true
	}
	left, ok := l.left[l.holder.Lease]
	if !ok {
		bound, cancel := l.d.bound(ctx)
		defer cancel()
		if left, err = l.d.timeLeft(bound, l.holder.Lease); err != nil {
			yield(nil, err)
			return false
		}
		l.left[l.holder.Lease] = left
	}
	return yield(&backend.Info{
		Key: r.name, Mode: backend.Exclusive, Holders: []backend.Holder{r.holder(left)}, Waiters: l.keys - 1,
	}, nil)
}

// Break implements backend.Breaker. With the key's removal it writes to the inbox of the
// holder's client, where that stays no longer than the holder's lease.
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
		r, err := decodeRecord(kv, name)
		if err != nil {
			return err
		}
		if owner != "" && owner != r.owner {
			return backend.ErrNotHeld
		}
		done, err := d.remove(ctx, kv, r)
		if done || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: the lock keeps changing hands", backend.ErrUnavailable)
}

// remove removes a holder's key unless that has been done already.
func (d *driver) remove(ctx context.Context, kv *mvccpb.KeyValue, r record) (done bool, err error) {
	resp, err := d.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(string(kv.Key)), "=", kv.CreateRevision)).
		Then(
			clientv3.OpDelete(string(kv.Key)),
			clientv3.OpPut(d.root+"/client/"+r.client, r.owner, clientv3.WithLease(clientv3.LeaseID(kv.Lease))),
		).Commit()
	switch {
	case isLeaseGone(err):
		return false, nil
	case err != nil:
		return false, interpretError(ctx, err)
	}
	return resp.Succeeded, nil
}

// record is the value of a key, with what the key itself tells.
type record struct {
	client, name, meta string
	since              time.Time
	owner              string
	created            int64
}

const recordMark = "dlock1"

// encodeRecord makes the value of a key. Only meta can contain a line break.
func encodeRecord(client, name, meta string, since time.Time) []byte {
	const numbers = 24 // and the breaks
	b := make([]byte, 0, len(recordMark)+len(client)+numbers+len(name)+len(meta))
	b = append(append(append(b, recordMark+"\n"...), client...), '\n')
	b = append(strconv.AppendInt(b, since.UnixMicro(), 10), '\n')
	return append(append(append(b, name...), '\n'), meta...)
}

// decodeRecord is ErrConflict for a value that is not dlock's, or another lock's than name, ""
// being any.
func decodeRecord(kv *mvccpb.KeyValue, name string) (record, error) {
	lines := strings.SplitN(string(kv.Value), "\n", 5)
	if len(lines) != 5 || lines[0] != recordMark || name != "" && lines[3] != name {
		return record{}, fmt.Errorf("%w: the value under the key is not dlock's", backend.ErrConflict)
	}
	micros, err := strconv.ParseInt(lines[2], 10, 64)
	if err != nil {
		return record{}, fmt.Errorf("%w: the value under the key is not dlock's", backend.ErrConflict)
	}
	return record{
		client: lines[1], name: lines[3], meta: lines[4], since: time.UnixMicro(micros),
		owner: ownerOf(kv.Key), created: kv.CreateRevision,
	}, nil
}

func (r record) holder(ttl time.Duration) backend.Holder {
	return backend.Holder{Owner: r.owner, Meta: r.meta, Fence: uint64(r.created) << 12, Since: r.since, TTL: ttl}
}
