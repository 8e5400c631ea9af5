package etcdbackend

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/dlock-go/dlock/backend/batch"
)

// maxUnderWay bounds how many requests for locks, alone or in batches, are sent at once. It is large: one connection
// does for all, and a member that does not answer must not hold up those who ask others.
const maxUnderWay = 1024

var errClosed = &unsentError{errors.New("the driver is closed")}

// call is one request for a lock among those for others.
type call struct {
	prefix string // of the lock
	txn    *pb.TxnRequest
	del    *pb.DeleteRangeRequest // where there is no txn
}

// reply is the answer to a call.
type reply struct {
	txn *pb.TxnResponse
	del *pb.DeleteRangeResponse
}

// transact makes a transaction in what belongs to a lock.
func (d *driver) transact(ctx context.Context, prefix string, txn *pb.TxnRequest) (*pb.TxnResponse, error) {
	r, err := d.do(ctx, call{prefix: prefix, txn: txn})
	return r.txn, err
}

// deleteKey deletes a key of a lock and tells whether it was there.
func (d *driver) deleteKey(ctx context.Context, prefix, key string) (bool, error) {
	r, err := d.do(ctx, call{prefix: prefix, del: &pb.DeleteRangeRequest{Key: []byte(key)}})
	return r.del.GetDeleted() > 0, err
}

// do sends a request, by itself or together with others.
func (d *driver) do(ctx context.Context, c call) (reply, error) {
	if q := d.batcher.Enter(ctx, c); q != nil {
		return q.Await()
	}
	defer d.batcher.Leave()
	return d.send(ctx, c)
}

// send sends a request by itself.
func (d *driver) send(ctx context.Context, c call) (r reply, err error) {
	if c.txn != nil {
		r.txn, err = d.kv.Txn(ctx, c.txn)
	} else {
		r.del, err = d.kv.DeleteRange(ctx, c.del)
	}
	return r, err
}

// sendBatch is what the batcher does with a batch: it sends one transaction. As the server makes all comparisons of that
// before the first change, only one request for each lock is in it, and others follow by themselves. So does
// each if the server refuses the transaction as a whole.
func (d *driver) sendBatch(ctx context.Context, calls []call) []batch.Answer[reply] {
	ctx = request{ctx, d.values, d.values}
	together, apart := split(calls)
	answers := make([]batch.Answer[reply], len(calls))
	if err := d.sendTogether(ctx, calls, together, answers); refusedForOne(err) {
		apart = append(together, apart...)
	}
	for _, i := range apart {
		answers[i].Reply, answers[i].Err = d.send(ctx, calls[i])
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
func (d *driver) sendTogether(ctx context.Context, calls []call, which []int, answers []batch.Answer[reply]) error {
	ops := make([]*pb.RequestOp, len(which))
	for n, i := range which {
		ops[n] = calls[i].part()
	}
	resp, err := d.kv.Txn(ctx, &pb.TxnRequest{Success: ops})
	for n, i := range which {
		if answers[i].Err = err; err == nil {
			answers[i].Reply = part(resp, n)
		}
	}
	return err
}

// part makes a request one of a transaction.
func (c call) part() *pb.RequestOp {
	if c.txn != nil {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: c.txn}}
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: c.del}}
}

// part returns the answer to one of the requests of a transaction. What it has changed, it has
// with the others' revision.
func part(resp *pb.TxnResponse, n int) reply {
	if deleted := resp.Responses[n].GetResponseDeleteRange(); deleted != nil {
		return reply{del: deleted}
	}
	txn := resp.Responses[n].GetResponseTxn()
	txn.Header = resp.Header
	return reply{txn: txn}
}
