package etcdbackend

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend/batch"
)

// maxUnderWay bounds how many requests for locks, alone or in batches, are sent at once. It is large: one connection
// does for all, and a member that does not answer must not hold up those who ask others.
const maxUnderWay = 1024

var errClosed = &unsentError{errors.New("the driver is closed")}

// call is one request for a lock among those for others.
type call struct {
	prefix string // of the lock
	op     clientv3.Op
}

// transact makes a transaction of one comparison in what belongs to a lock.
func (d *driver) transact(
	ctx context.Context, prefix string, cmp clientv3.Cmp, then, otherwise []clientv3.Op,
) (*clientv3.TxnResponse, error) {
	resp, err := d.do(ctx, call{prefix, clientv3.OpTxn([]clientv3.Cmp{cmp}, then, otherwise)})
	return resp.Txn(), err
}

// deleteKey deletes the key of an owner and tells whether it was there.
func (d *driver) deleteKey(ctx context.Context, prefix, owner string) (bool, error) {
	resp, err := d.do(ctx, call{prefix, clientv3.OpDelete(prefix + owner)})
	if err != nil {
		return false, err
	}
	return resp.Del().Deleted > 0, nil
}

// do sends a request, by itself or together with others.
func (d *driver) do(ctx context.Context, c call) (clientv3.OpResponse, error) {
	if q := d.batcher.Enter(ctx, c); q != nil {
		return q.Await()
	}
	defer d.batcher.Leave()
	return d.client.Do(ctx, c.op)
}

// sendBatch is what the batcher does with a batch: it sends one transaction. As the server makes all comparisons of that
// before the first change, only one request for each lock is in it, and others follow by themselves. So does
// each if the server refuses the transaction as a whole.
func (d *driver) sendBatch(ctx context.Context, calls []call) []batch.Answer[clientv3.OpResponse] {
	ctx = request{ctx, d.values, d.values}
	together, apart := split(calls)
	answers := make([]batch.Answer[clientv3.OpResponse], len(calls))
	if err := d.sendTogether(ctx, calls, together, answers); refusedForOne(err) {
		apart = append(together, apart...)
	}
	for _, i := range apart {
		answers[i].Reply, answers[i].Err = d.client.Do(ctx, calls[i].op)
	}
	return answers
}

// split tells the first calls for each lock from others.
func split(calls []call) (first, others []int) {
	seen := make(map[string]bool, len(calls))
	for i, c := range calls {
		if seen[c.prefix] {
			others = append(others, i)
			continue
		}
		seen[c.prefix] = true
		first = append(first, i)
	}
	return first, others
}

// sendTogether fills in the answers to those calls that it sends in one transaction.
func (d *driver) sendTogether(ctx context.Context, calls []call, which []int, answers []batch.Answer[clientv3.OpResponse]) error {
	ops := make([]clientv3.Op, len(which))
	for n, i := range which {
		ops[n] = calls[i].op
	}
	resp, err := d.client.Txn(ctx).Then(ops...).Commit()
	for n, i := range which {
		if answers[i].Err = err; err == nil {
			answers[i].Reply = part(resp, n)
		}
	}
	return err
}

// part returns the answer to one of the requests of a transaction. What it has changed, it has
// with the others' revision.
func part(resp *clientv3.TxnResponse, n int) clientv3.OpResponse {
	if deleted := resp.Responses[n].GetResponseDeleteRange(); deleted != nil {
		return (*clientv3.DeleteResponse)(deleted).OpResponse()
	}
	txn := resp.Responses[n].GetResponseTxn()
	txn.Header = resp.Header
	return (*clientv3.TxnResponse)(txn).OpResponse()
}
