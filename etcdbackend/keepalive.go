package etcdbackend

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// maxIdle is the maximum number of streams that are kept for later keep-alives. One is enough
// unless leases of several TTLs are renewed at the same time.
const maxIdle = 4

// stream carries keep-alives, one at a time, so that each answer belongs to the request before it.
// A stream with a missing answer is not used again: otherwise an old answer could prove a later
// request.
//
// The client's KeepAliveOnce opens a stream for each request. With a password each stream costs a
// token, for which the server hashes the password: 80 to 150 ms instead of 0.4 ms. It also repeats
// requests without a pause while members have no leader. The client's KeepAlive has one stream, but
// does not return when requests were sent. A server of version 3.5.30 checks the token of the
// stream with each request, and each request prolongs the token's life of 5 minutes.
//
// A stream is idle, in driver.streams, or belongs to the one goroutine that took it from there.
type stream struct {
	client pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc // ends the stream, and Recv with it
}

// proof is the answer to a keep-alive.
type proof struct {
	sent time.Time // when the keep-alive was sent
	ttl  time.Duration
	// reign is the number of the election (the term of Raft) that the member knew before it passed
	// the keep-alive to its leader. 0: a proxy has hidden it.
	reign uint64
}

// sendKeepAlive sends one keep-alive and returns the proof, which confirm has to confirm. It blocks
// for the answer until ctx ends. A stream from earlier keep-alives gets half of the time: if it has
// ended or is silent, a new stream is opened, usually to another member.
//
// It returns rpctypes.ErrLeaseNotFound if the server has no such lease, and otherwise the error of
// the stream or of ctx. A keep-alive may be repeated, so if a second stream is tried, the error of
// the first one is dropped. d.mu must not be held.
func (d *driver) sendKeepAlive(ctx context.Context, id clientv3.LeaseID) (p proof, err error) {
	if s := d.takeStream(); s != nil {
		half, cancel := halfOf(ctx)
		defer cancel()
		p, err = d.exchange(half, s, id)
		if err == nil || isLeaseGone(err) || ctx.Err() != nil {
			return p, err
		}
	}
	s, err := d.openStream(ctx)
	if err != nil {
		return proof{}, err
	}
	return d.exchange(ctx, s, id)
}

// errDeposed is the error of a keep-alive whose leader may not have been the leader any more.
var errDeposed = fmt.Errorf("%w: the cluster has elected a leader meanwhile",
	backend.ErrUnavailable)

// confirm returns an error unless the proof p is from the leader. A leader whose process was
// stopped answers keep-alives from its memory until it learns of its successor, which may have
// ended the lease already. A read that a majority confirms shows that there was no other leader
// before it.
//
// The proof has the number that its member had before it passed the keep-alive on. Later elections
// have higher numbers. A new leader confirms a read only after it has committed an entry of its own
// election, and the member answers a read only after it has executed that entry. So the number in
// the answer is at least the number of the leader that confirmed the read. If it equals the number
// of the proof, that leader was the only one from the keep-alive to the read. One case is not
// covered: a member that received the entry in a snapshot has an older number until its next entry.
//
// The client's reads are linearizable by default. This one counts a single key that does not exist,
// so it costs little. The error is the client's own, or errDeposed.
func (d *driver) confirm(ctx context.Context, p proof) error {
	resp, err := d.client.Get(ctx, d.locks(), clientv3.WithCountOnly())
	switch {
	case err != nil:
		return err
	case p.reign != 0 && resp.Header.GetRaftTerm() != p.reign:
		return errDeposed
	}
	return nil
}

// halfOf returns a context with half of the remaining time of ctx, so that a silent member leaves
// time for another one. Without a deadline it only adds a cancellation.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

// openStream opens a stream, which ends with the driver. ctx limits only the opening.
func (d *driver) openStream(ctx context.Context) (*stream, error) {
	life, cancel := context.WithCancel(d.life)
	defer context.AfterFunc(ctx, cancel)() // the deferred call detaches the stream from ctx
	client, err := d.keepAlives.LeaseKeepAlive(life)
	if err != nil {
		cancel()
		return nil, clientv3.ContextError(ctx, err)
	}
	return &stream{client, cancel}, nil
}

// exchange sends a keep-alive and waits for the answer. With the answer it keeps the stream for
// later keep-alives, and otherwise it ends the stream. Recv ignores ctx, so the end of ctx ends the
// stream. The server answers for a lease that is gone with a TTL of 0. This answer is not
// confirmed: if it comes from a former leader, it can end locks too early, but not too late.
func (d *driver) exchange(
	ctx context.Context, s *stream, id clientv3.LeaseID,
) (p proof, err error) {
	stop := context.AfterFunc(ctx, s.cancel)
	sent := time.Now()
	_ = s.client.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}) // Recv returns what went wrong
	resp, err := s.client.Recv()
	if !stop() || err != nil {
		s.cancel()
	} else {
		d.keepStream(s)
	}
	switch {
	case err != nil:
		return proof{}, clientv3.ContextError(ctx, err)
	case resp.TTL <= 0:
		return proof{}, rpctypes.ErrLeaseNotFound
	}
	return proof{sent, time.Duration(resp.TTL) * time.Second, resp.Header.GetRaftTerm()}, nil
}

// takeStream removes a stream from the idle streams and returns it, or returns nil if there is
// none.
func (d *driver) takeStream() *stream {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := len(d.streams) - 1
	if last < 0 {
		return nil
	}
	s := d.streams[last]
	d.streams = d.streams[:last]
	return s
}

// keepStream adds a stream to the idle streams, or ends it if there are enough.
func (d *driver) keepStream(s *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.streams) == maxIdle {
		s.cancel()
		return
	}
	d.streams = append(d.streams, s)
}
