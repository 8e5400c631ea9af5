package etcdbackend

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/dlock-go/dlock/backend/batch"
)

// maxUnderWay limits the requests for locks that are under way: single requests and batches. It is
// large, because one connection carries all of them. Requests to a silent member must not hold up
// requests to the other members.
const maxUnderWay = 1024

// call is one request for a lock, which can be sent in a batch with requests for other locks. It
// has either txn or del.
type call struct {
	prefix string                 // of the lock's keys
	txn    *pb.TxnRequest         // an attempt
	del    *pb.DeleteRangeRequest // a removal
}

// reply is the answer to a call: txn or del, as in the call.
type reply struct {
	txn *pb.TxnResponse
	del *pb.DeleteRangeResponse
}

// transact executes a transaction on the keys of one lock.
func (d *driver) transact(
	ctx context.Context, prefix string, txn *pb.TxnRequest,
) (*pb.TxnResponse, error) {
	r, err := d.do(ctx, call{prefix: prefix, txn: txn})
	return r.txn, err
}

// removeKey removes the key of an acquisition, and reports whether the key existed. The key has the
// name of its creator, so a removal that is repeated, or executed late, frees no lock of another
// owner. After an Adopt the name proves nothing: see releaseOwned.
func (d *driver) removeKey(ctx context.Context, k keys) (removed bool, err error) {
	r, err := d.do(ctx, call{prefix: k.prefix, del: &pb.DeleteRangeRequest{Key: []byte(k.key)}})
	return r.del.GetDeleted() > 0, err
}

// do sends a call and returns its answer. It sends the call singly while few requests are under
// way, and otherwise in a batch. If ctx ends first, do returns at once; the server may execute the
// call even then. Its errors are not interpreted.
func (d *driver) do(ctx context.Context, c call) (reply, error) {
	if q := d.batcher.Enter(ctx, c); q != nil {
		return q.Await()
	}
	defer d.batcher.Leave()
	return d.send(ctx, c)
}

// send sends a call singly.
func (d *driver) send(ctx context.Context, c call) (r reply, err error) {
	if c.txn != nil {
		r.txn, err = d.sendTxn(ctx, c.txn)
		return r, err
	}
	begin(ctx)
	r.del, err = d.kv.DeleteRange(ctx, c.del)
	return r, err
}

// sendBatch is the Send of the batcher: it sends one transaction, and each call that is not in it
// singly at the same time. If the server refuses the transaction because of one call, each of its
// calls follows singly. It repeats no call that the server may have executed.
func (d *driver) sendBatch(
	ctx context.Context, calls []call, answer func(i int, a batch.Answer[reply]),
) {
	together, apart := split(calls)
	var singles sync.WaitGroup
	defer singles.Wait()
	sendEach := func(indices []int) {
		for _, i := range indices {
			singles.Go(func() { answer(i, d.sendSingly(ctx, calls[i])) })
		}
	}
	sendEach(apart)
	answers, err := d.sendTogether(ctx, calls, together)
	if isRefusedForOne(err) {
		sendEach(together)
		return
	}
	for n, i := range together {
		answer(i, answers[n])
	}
}

// newRequest returns the context of a request of a batch, which ctx limits. It has no parent with
// the values of a caller.
func (d *driver) newRequest(ctx context.Context) *request {
	return &request{Context: ctx, parent: d.values, values: d.values}
}

// split divides calls into those of one transaction and the other ones, and returns their indices.
// The server makes all comparisons of a transaction before its first change. So the transaction has
// only the first call for a lock, or several removals if the first is a removal: they compare
// nothing.
func split(calls []call) (together, apart []int) {
	first := make(map[string]*call, len(calls)) // by prefix
	for i, c := range calls {
		switch f := first[c.prefix]; {
		case f == nil:
			first[c.prefix] = &calls[i]
		case f.txn != nil || c.txn != nil:
			apart = append(apart, i)
			continue
		}
		together = append(together, i)
	}
	return together, apart
}

// sendSingly sends a call of a batch singly, and returns its answer.
func (d *driver) sendSingly(ctx context.Context, c call) (a batch.Answer[reply]) {
	defer batch.Rescue(&a.Err)
	a.Reply, a.Err = d.send(d.newRequest(ctx), c)
	return a
}

// sendTogether sends the calls with the given indices in one transaction, and returns their
// answers. err is the error of the transaction, which each of the answers has, too.
func (d *driver) sendTogether(
	ctx context.Context, calls []call, indices []int,
) (answers []batch.Answer[reply], err error) {
	ops := make([]*pb.RequestOp, len(indices))
	for n, i := range indices {
		ops[n] = calls[i].part()
	}
	resp, err := d.sendTxn(d.newRequest(ctx), &pb.TxnRequest{Success: ops})
	answers = make([]batch.Answer[reply], len(indices))
	for n := range answers {
		if answers[n].Err = err; err == nil {
			answers[n].Reply = part(resp, n)
		}
	}
	return answers, err
}

// part returns c as a part of a transaction.
func (c call) part() *pb.RequestOp {
	if c.txn != nil {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: c.txn}}
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: c.del}}
}

// part returns the answer to the part n of a transaction. All parts of a transaction change keys
// with the same revision, which only the transaction's own answer has.
func part(resp *pb.TxnResponse, n int) reply {
	if deleted := resp.Responses[n].GetResponseDeleteRange(); deleted != nil {
		return reply{del: deleted}
	}
	txn := resp.Responses[n].GetResponseTxn()
	txn.Header = resp.Header
	return reply{txn: txn}
}
