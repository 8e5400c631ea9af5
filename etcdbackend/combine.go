package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
)

// maxTogether is how many operations a server accepts in one transaction by default.
const maxTogether = 128

// AcquireAll implements backend.Combiner. It sends one transaction, and more if an earlier attempt
// of the same owners has created some of the keys. The transaction is not sent in a batch, because
// the server makes all comparisons of a batch before its first change. Locks with different TTLs
// have different leases, and are not supported.
func (d *driver) AcquireAll(
	ctx context.Context, reqs []*backend.Request,
) (grants []*backend.Grant, failed int, err error) {
	ttl := reqs[0].TTL
	if len(reqs) > maxTogether ||
		slices.ContainsFunc(reqs, func(r *backend.Request) bool { return r.TTL != ttl }) {
		return nil, 0, fmt.Errorf("%w: these locks in one step", backend.ErrUnsupported)
	}
	b := bound.Within(ctx, d.timeoutFor(ttl))
	defer b.Cancel()
	ctx = &request{Context: b, parent: ctx, values: d.values}
	l, err := d.freshLease(ctx, ttl)
	if err != nil {
		return nil, 0, asUnavailable(ctx, err)
	}
	all := make([]*acquisition, len(reqs))
	for i, req := range reqs {
		all[i] = d.admit(req, l, req.Owner)
	}
	answers, failed, err := d.createAll(ctx, all)
	switch {
	case err == nil:
		return d.applyAnswers(ctx, all, reqs, answers)
	case errors.Is(err, backend.ErrNotAcquired), errors.Is(err, backend.ErrConflict):
		return nil, failed, d.stepBackAll(ctx, all, answers, err)
	case isLeaseGone(err):
		d.endLease(l)
	}
	d.applyErrors(all, err)
	return nil, failed, err
}

// createAll creates the missing keys of all if no lock has a key in front of the own one. Otherwise
// it creates none, and failed is the index of the first lock that has another key. answers has the
// keys of all in any case.
func (d *driver) createAll(
	ctx context.Context, all []*acquisition,
) (answers []answer, failed int, err error) {
	answers = make([]answer, len(all))
	for range maxAdmissions {
		r, err := d.send(ctx, call{txn: d.ifAllFree(all, answers)})
		switch {
		case errors.Is(err, rpctypes.ErrTooManyOps):
			return answers, 0, fmt.Errorf("%w: %w", backend.ErrUnsupported, err)
		case err != nil:
			return answers, 0, interpretError(ctx, err)
		case r.txn.Succeeded:
			for i, a := range all {
				if answers[i].created == 0 {
					answers[i] = answer{
						created: r.txn.Header.Revision, lease: a.lease.id, first: true,
					}
				}
			}
			return answers, 0, nil
		}
		if failed, err := readFronts(all, answers, r.txn); err != nil {
			return answers, failed, err
		}
	}
	return answers, 0, &backend.Busy{} // keys come and go
}

// ifAllFree returns a transaction that creates the keys that answers does not have, if no other key
// of their locks exists, and if the keys that answers has still exist. Otherwise it reads the first
// key of each lock.
func (d *driver) ifAllFree(all []*acquisition, answers []answer) *pb.TxnRequest {
	txn := &pb.TxnRequest{}
	for i, a := range all {
		key, prefix, end := a.bytes()
		compare := &pb.Compare{
			Key: prefix, RangeEnd: end, Target: pb.Compare_CREATE, TargetUnion: never,
		}
		if created := answers[i].created; created > 0 {
			compare.Key, compare.RangeEnd = key, nil
			compare.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: created}
		} else {
			txn.Success = append(txn.Success, a.put(key, d.id))
		}
		txn.Compare = append(txn.Compare, compare)
		txn.Failure = append(txn.Failure, getFirst(prefix, end))
	}
	return txn
}

// readFronts reads the first key of each lock into answers. It returns the error about the first
// lock with another key in front of the own one, and its index.
func readFronts(
	all []*acquisition, answers []answer, resp *pb.TxnResponse,
) (failed int, first error) {
	for i, a := range all {
		answers[i] = answer{revision: resp.Header.Revision}
		kvs := resp.Responses[i].GetResponseRange().Kvs
		if len(kvs) == 0 {
			continue
		}
		err := a.readFront(&answers[i], kvs)
		if err == nil && !answers[i].first {
			err = &backend.Busy{Holder: answers[i].holder}
		}
		if first == nil && err != nil {
			failed, first = i, err
		}
	}
	return failed, first
}

// applyAnswers is applyAnswer for all, which have their keys. If one of the keys is of no use, none
// of them stays.
func (d *driver) applyAnswers(
	ctx context.Context, all []*acquisition, reqs []*backend.Request, answers []answer,
) (grants []*backend.Grant, failed int, err error) {
	for i, a := range all {
		g, err := d.applyAnswer(a, reqs[i], answers[i])
		if err != nil {
			return nil, i, d.stepBackAll(ctx, all, answers, err)
		}
		grants = append(grants, g)
	}
	return grants, 0, nil
}

// stepBackAll removes the keys that all have by answers, and forgets all. A key that another owner
// has adopted stays. It returns the reason, or an error of unknown outcome if the keys may have
// stayed.
func (d *driver) stepBackAll(
	ctx context.Context, all []*acquisition, answers []answer, reason error,
) error {
	var keys [][]byte
	for i, a := range all {
		if answers[i].created > 0 && answers[i].lease != clientv3.NoLease {
			keys = append(keys, []byte(a.key))
		}
	}
	if len(keys) > 0 {
		if _, err := d.removeKeys(ctx, keys); err != nil {
			for _, a := range all { // the server may still remove their keys
				d.expectRemoval(a)
			}
			// Whatever the reason, the keys may have stayed.
			err = fmt.Errorf("%v, and the other locks were not released: %v",
				reason, err) //nolint:errorlint // neither is an answer to the attempt
			d.applyErrors(all, err)
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range all {
		d.forget(a)
	}
	return reason
}

// applyErrors is applyError for all.
func (d *driver) applyErrors(all []*acquisition, err error) {
	for _, a := range all {
		d.applyError(a, err)
	}
}

// removeKeys removes keys in one transaction, and reports which of them existed.
func (d *driver) removeKeys(ctx context.Context, keys [][]byte) (removed []bool, err error) {
	txn := &pb.TxnRequest{}
	for _, key := range keys {
		txn.Success = append(txn.Success, call{del: &pb.DeleteRangeRequest{Key: key}}.part())
	}
	r, err := d.send(ctx, call{txn: txn})
	if err != nil {
		return nil, err
	}
	for n := range keys {
		removed = append(removed, r.txn.Responses[n].GetResponseDeleteRange().GetDeleted() > 0)
	}
	return removed, nil
}

// ReleaseAll implements backend.Combiner. It sends one transaction. If the server refuses that
// because of one of its operations, or if a key may have been adopted, each lock is released alone.
// A refused transaction has removed nothing, so nothing is released twice.
func (d *driver) ReleaseAll(ctx context.Context, gs []*backend.Grant) []error {
	removed, err := d.releaseTogether(ctx, gs)
	if errors.Is(err, errAlone) || isRefusedForOne(err) {
		return d.releaseEach(ctx, gs)
	}
	errs := make([]error, len(gs))
	for i, g := range gs {
		if errs[i] = err; err == nil {
			d.finishRelease(g.Owner)
			if !removed[i] {
				errs[i] = backend.ErrNotHeld
			}
		}
	}
	return errs
}

// errAlone means that a key may have been adopted, so that its name says nothing about its owner.
var errAlone = errors.New("etcdbackend: a key may have been adopted")

// releaseTogether is the request of ReleaseAll. Its error is errAlone, the client's own if
// isRefusedForOne, or an interpreted one.
func (d *driver) releaseTogether(
	ctx context.Context, gs []*backend.Grant,
) (removed []bool, err error) {
	b := bound.Within(ctx, d.timeoutFor(gs[0].TTL))
	defer b.Cancel()
	ctx = &request{Context: b, parent: ctx, values: d.values}
	keys := make([][]byte, len(gs))
	for i, g := range gs {
		a := d.startRelease(g.Owner)
		if a == nil || a.creator() != g.Owner {
			return nil, errAlone
		}
		keys[i] = []byte(a.key)
	}
	removed, err = d.removeKeys(ctx, keys)
	if isRefusedForOne(err) {
		return nil, err
	}
	return removed, interpretError(ctx, err)
}

// releaseEach releases each lock with its own request, all at the same time. It first sends each
// singly, because the server might refuse a batch of them as it has refused the transaction.
func (d *driver) releaseEach(ctx context.Context, gs []*backend.Grant) []error {
	if len(gs) == 1 {
		return []error{d.Release(ctx, gs[0])}
	}
	errs := make([]error, len(gs))
	var requests sync.WaitGroup
	for i := range gs {
		requests.Go(func() { errs[i] = d.ReleaseAll(ctx, gs[i:i+1])[0] })
	}
	requests.Wait()
	return errs
}
