package etcdbackend

import (
	"context"
	"errors"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// errMalformed is the error of an answer that does not fit its request, for example because another
// program answers in place of a server. The outcome is unknown.
var errMalformed = errors.New("the answer does not fit the request")

// sendTxn sends a transaction, and returns its answer or the client's error. It checks that the
// answer has all parts that the driver reads: a panic would end the process, because the goroutines
// of the driver do not recover.
func (d *driver) sendTxn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	begin(ctx)
	resp, err := d.kv.Txn(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case resp.Header == nil || !fits(req, resp):
		return nil, errMalformed
	}
	return resp, nil
}

// fits reports whether resp has an answer to each operation that the server has executed.
func fits(req *pb.TxnRequest, resp *pb.TxnResponse) bool {
	executed := req.Failure
	if resp.Succeeded {
		executed = req.Success
	}
	return slices.EqualFunc(executed, resp.Responses, isAnswered)
}

// isAnswered reports whether resp is of the type of the operation op. The driver does not read the
// answers to puts.
func isAnswered(op *pb.RequestOp, resp *pb.ResponseOp) bool {
	switch r := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		return resp.GetResponseRange() != nil
	case *pb.RequestOp_RequestDeleteRange:
		return resp.GetResponseDeleteRange() != nil
	case *pb.RequestOp_RequestTxn:
		txn := resp.GetResponseTxn()
		return txn != nil && fits(r.RequestTxn, txn)
	}
	return true
}
