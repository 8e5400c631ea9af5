package etcdbackend

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// kv sends the requests for locks. They are the server's own messages: the client's operations are
// made into these in the end, with copies.
type kv interface {
	Txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error)
	DeleteRange(ctx context.Context, req *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error)
}

// ownKV is that of a client that the driver has made itself. It sends what the client would send, by
// the same interceptors: 47 fewer allocations for a pair.
type ownKV struct{ remote pb.KVClient }

func newOwnKV(client *clientv3.Client) ownKV { return ownKV{clientv3.RetryKVClient(client)} }

// callOptions are what the client gives to each call.
var callOptions = []grpc.CallOption{grpc.MaxCallSendMsgSize(maxSend), grpc.MaxCallRecvMsgSize(maxMessage)}

func (k ownKV) Txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := k.remote.Txn(ctx, req, callOptions...)
	return resp, clientv3.ContextError(ctx, err)
}

func (k ownKV) DeleteRange(ctx context.Context, req *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	resp, err := k.remote.DeleteRange(ctx, req, callOptions...)
	return resp, clientv3.ContextError(ctx, err)
}

// lentKV is that of a client that was lent. Its options are not known, and its KV may be a wrapper,
// as of a namespace, which wants the client's operations.
type lentKV struct{ client *clientv3.Client }

func (k lentKV) Txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := k.client.Do(ctx, txnOp(req))
	return (*pb.TxnResponse)(resp.Txn()), err
}

func (k lentKV) DeleteRange(ctx context.Context, req *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	resp, err := k.client.Do(ctx, deleteOp(req))
	return (*pb.DeleteRangeResponse)(resp.Del()), err
}

// txnOp makes the client's operation of a message, as far as this package makes them.
func txnOp(req *pb.TxnRequest) clientv3.Op {
	cmps := make([]clientv3.Cmp, len(req.Compare))
	for i, c := range req.Compare {
		cmps[i] = clientv3.FromCompare(c)
	}
	return clientv3.OpTxn(cmps, clientOps(req.Success), clientOps(req.Failure))
}

func clientOps(reqs []*pb.RequestOp) []clientv3.Op {
	ops := make([]clientv3.Op, len(reqs))
	for i, req := range reqs {
		switch r := req.Request.(type) {
		case *pb.RequestOp_RequestPut:
			ops[i] = putOp(r.RequestPut)
		case *pb.RequestOp_RequestRange:
			ops[i] = getOp(r.RequestRange)
		case *pb.RequestOp_RequestDeleteRange:
			ops[i] = deleteOp(r.RequestDeleteRange)
		case *pb.RequestOp_RequestTxn:
			ops[i] = txnOp(r.RequestTxn)
		}
	}
	return ops
}

func putOp(r *pb.PutRequest) clientv3.Op {
	return clientv3.OpPut(string(r.Key), string(r.Value), clientv3.WithLease(clientv3.LeaseID(r.Lease)))
}

func getOp(r *pb.RangeRequest) clientv3.Op {
	if len(r.RangeEnd) == 0 {
		return clientv3.OpGet(string(r.Key))
	}
	return clientv3.OpGet(string(r.Key), clientv3.WithFirstCreate()...) // the one range that there is
}

func deleteOp(r *pb.DeleteRangeRequest) clientv3.Op { return clientv3.OpDelete(string(r.Key)) }

// putRequest, getRequest and txnRequest are messages with the parts that each of them needs, in one
// allocation.
type (
	putRequest struct {
		pb.RequestOp
		is  pb.RequestOp_RequestPut
		put pb.PutRequest
	}
	getRequest struct {
		pb.RequestOp
		is  pb.RequestOp_RequestRange
		get pb.RangeRequest
	}
	txnRequest struct {
		pb.TxnRequest
		compares [1]*pb.Compare
		compare  pb.Compare
	}
)

// putKey makes a key that hangs on a lease.
func putKey(key, value []byte, lease clientv3.LeaseID) *pb.RequestOp {
	r := &putRequest{}
	r.put.Key, r.put.Value, r.put.Lease = key, value, int64(lease)
	r.is.RequestPut = &r.put
	r.Request = &r.is
	return &r.RequestOp
}

// getKey reads a key.
func getKey(key []byte) *pb.RequestOp {
	r := &getRequest{}
	r.get.Key = key
	r.is.RequestRange = &r.get
	r.Request = &r.is
	return &r.RequestOp
}

// getFirst reads the oldest one of a range of keys: of a lock's, the holder's.
func getFirst(begin, end []byte) *pb.RequestOp {
	op := getKey(begin)
	r := op.GetRequestRange()
	r.RangeEnd, r.Limit = end, 1
	r.SortTarget, r.SortOrder = pb.RangeRequest_CREATE, pb.RangeRequest_ASCEND
	return op
}

// never is the revision at which a key was made that there is not.
var never = &pb.Compare_CreateRevision{CreateRevision: 0}

// ifNone makes a transaction that depends on whether there is a key, or one of a range of keys.
func ifNone(begin, end []byte, then, otherwise []*pb.RequestOp) *pb.TxnRequest {
	r := &txnRequest{}
	r.compare.Key, r.compare.RangeEnd = begin, end
	r.compare.Target, r.compare.TargetUnion = pb.Compare_CREATE, never // EQUAL is the zero value
	r.compares[0] = &r.compare
	r.Compare, r.Success, r.Failure = r.compares[:], then, otherwise
	return &r.TxnRequest
}
