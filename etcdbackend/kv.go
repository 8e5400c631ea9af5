package etcdbackend

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// kv sends the requests for locks. They are the server's own messages, into which the client would
// convert its operations, with copies. The methods return the client's error as it is.
type kv interface {
	Txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error)
	DeleteRange(ctx context.Context, req *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error)
	// LeaseKeys reads the keys of a lease. limit is the limit of the answer in bytes, unless the
	// client has its own.
	LeaseKeys(
		ctx context.Context, id clientv3.LeaseID, limit int,
	) (*pb.LeaseTimeToLiveResponse, error)
}

// ownKV is the kv of a client that the driver has made. It sends the same requests as the client,
// by the same interceptors, but saves 48 of 309 allocations of an uncontended pair of Acquire and
// Release.
type ownKV struct {
	remote pb.KVClient
	leases pb.LeaseClient
}

// newOwnKV returns the kv of a client that connect has made.
func newOwnKV(client *clientv3.Client) ownKV {
	return ownKV{clientv3.RetryKVClient(client), clientv3.RetryLeaseClient(client)}
}

// callOptions are the options that the client adds to each call.
var callOptions = []grpc.CallOption{
	grpc.MaxCallSendMsgSize(maxSend), grpc.MaxCallRecvMsgSize(maxMessage),
}

// Txn implements kv.
func (k ownKV) Txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := k.remote.Txn(ctx, req, callOptions...)
	return resp, clientv3.ContextError(ctx, err)
}

// DeleteRange implements kv.
func (k ownKV) DeleteRange(
	ctx context.Context, req *pb.DeleteRangeRequest,
) (*pb.DeleteRangeResponse, error) {
	resp, err := k.remote.DeleteRange(ctx, req, callOptions...)
	return resp, clientv3.ContextError(ctx, err)
}

// LeaseKeys implements kv.
func (k ownKV) LeaseKeys(
	ctx context.Context, id clientv3.LeaseID, limit int,
) (*pb.LeaseTimeToLiveResponse, error) {
	resp, err := k.leases.LeaseTimeToLive(ctx,
		&pb.LeaseTimeToLiveRequest{ID: int64(id), Keys: true},
		grpc.MaxCallSendMsgSize(maxSend), grpc.MaxCallRecvMsgSize(limit))
	return resp, clientv3.ContextError(ctx, err)
}

// lentKV is the kv of a client of New's caller. The options of that client are unknown. Its KV may
// be a wrapper, for example of a namespace, which accepts only the client's operations.
type lentKV struct{ client *clientv3.Client }

// Txn implements kv.
func (k lentKV) Txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := k.client.Do(ctx, txnOp(req))
	return (*pb.TxnResponse)(resp.Txn()), err
}

// DeleteRange implements kv.
func (k lentKV) DeleteRange(
	ctx context.Context, req *pb.DeleteRangeRequest,
) (*pb.DeleteRangeResponse, error) {
	resp, err := k.client.Do(ctx, deleteOp(req))
	return (*pb.DeleteRangeResponse)(resp.Del()), err
}

// LeaseKeys implements kv. The limit is the client's own.
func (k lentKV) LeaseKeys(
	ctx context.Context, id clientv3.LeaseID, _ int,
) (*pb.LeaseTimeToLiveResponse, error) {
	resp, err := k.client.TimeToLive(ctx, id, clientv3.WithAttachedKeys())
	if err != nil {
		return nil, err
	}
	return &pb.LeaseTimeToLiveResponse{Header: resp.ResponseHeader, Keys: resp.Keys}, nil
}

// txnOp converts a message to the client's operation. It converts only the parts of messages that
// this package uses.
func txnOp(req *pb.TxnRequest) clientv3.Op {
	cmps := make([]clientv3.Cmp, len(req.Compare))
	for i, c := range req.Compare {
		cmps[i] = clientv3.FromCompare(c)
	}
	return clientv3.OpTxn(cmps, clientOps(req.Success), clientOps(req.Failure))
}

// clientOps converts the operations of a transaction. The order stays, because the answers to them
// have the same order.
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

// putOp converts the creation of a key.
func putOp(r *pb.PutRequest) clientv3.Op {
	lease := clientv3.WithLease(clientv3.LeaseID(r.Lease))
	return clientv3.OpPut(string(r.Key), string(r.Value), lease)
}

// getOp converts a read: of one key, or of the first key of a range.
func getOp(r *pb.RangeRequest) clientv3.Op {
	switch {
	case len(r.RangeEnd) == 0:
		return clientv3.OpGet(string(r.Key))
	case r.Limit == 1:
		return clientv3.OpGet(string(r.Key), clientv3.WithFirstCreate()...) // as in getFirst
	}
	return clientv3.OpGet(string(r.Key), clientv3.WithRange(string(r.RangeEnd)), // as in getAll
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
}

// deleteOp converts a removal.
func deleteOp(r *pb.DeleteRangeRequest) clientv3.Op { return clientv3.OpDelete(string(r.Key)) }

// putRequest, getRequest and txnRequest contain a message and its parts, so that these share one
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

// putKey returns the operation that creates a key of a lease.
func putKey(key, value []byte, lease clientv3.LeaseID) *pb.RequestOp {
	r := &putRequest{}
	r.put.Key, r.put.Value, r.put.Lease = key, value, int64(lease)
	r.is.RequestPut = &r.put
	r.Request = &r.is
	return &r.RequestOp
}

// getKey returns the operation that reads a key.
func getKey(key []byte) *pb.RequestOp {
	r := &getRequest{}
	r.get.Key = key
	r.is.RequestRange = &r.get
	r.Request = &r.is
	return &r.RequestOp
}

// deleteKey returns the operation that removes a key.
func deleteKey(key []byte) *pb.RequestOp {
	return call{del: &pb.DeleteRangeRequest{Key: key}}.part()
}

// getFirst returns the operation that reads the key of a range that was created first. Among the
// keys of a lock it is the holder's.
func getFirst(begin, end []byte) *pb.RequestOp {
	op := getKey(begin)
	r := op.GetRequestRange()
	r.RangeEnd, r.Limit = end, 1
	r.SortTarget, r.SortOrder = pb.RangeRequest_CREATE, pb.RangeRequest_ASCEND
	return op
}

// getAll returns the operation that reads all keys of a range, in the order of their creation.
func getAll(begin, end []byte) *pb.RequestOp {
	op := getFirst(begin, end)
	op.GetRequestRange().Limit = 0
	return op
}

// ifOlder returns a transaction that does then if no key from begin up to end was created after a
// revision, and otherwise if there is such a key.
func ifOlder(
	begin, end []byte, revision int64, then, otherwise []*pb.RequestOp,
) *pb.TxnRequest {
	r := &txnRequest{}
	r.compare.Key, r.compare.RangeEnd = begin, end
	r.compare.Target, r.compare.Result = pb.Compare_CREATE, pb.Compare_LESS
	r.compare.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: revision + 1}
	r.compares[0] = &r.compare
	r.Compare, r.Success, r.Failure = r.compares[:], then, otherwise
	return &r.TxnRequest
}

// ifUnchanged returns a transaction that does then if the last change of a key has the revision.
func ifUnchanged(key []byte, revision int64, then *pb.RequestOp) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Key: key, Target: pb.Compare_MOD,
			TargetUnion: &pb.Compare_ModRevision{ModRevision: revision},
		}},
		Success: []*pb.RequestOp{then},
	}
}

// ifNew returns a transaction that does then if a key exists and was never written again, and
// otherwise if not.
func ifNew(key []byte, then, otherwise *pb.RequestOp) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Key: key, Target: pb.Compare_VERSION,
			TargetUnion: &pb.Compare_Version{Version: 1},
		}},
		Success: []*pb.RequestOp{then},
		Failure: []*pb.RequestOp{otherwise},
	}
}

// never is the create revision of a key that does not exist.
var never = &pb.Compare_CreateRevision{CreateRevision: 0}

// ifNone returns a transaction that does then if the key begin does not exist, and otherwise if it
// does. If end is not nil, it checks all keys from begin up to end.
func ifNone(begin, end []byte, then, otherwise []*pb.RequestOp) *pb.TxnRequest {
	r := &txnRequest{}
	r.compare.Key, r.compare.RangeEnd = begin, end
	r.compare.Target, r.compare.TargetUnion = pb.Compare_CREATE, never // EQUAL is the zero value
	r.compares[0] = &r.compare
	r.Compare, r.Success, r.Failure = r.compares[:], then, otherwise
	return &r.TxnRequest
}
