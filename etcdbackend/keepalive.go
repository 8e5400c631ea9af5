package etcdbackend

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxIdle is how many streams are kept for the next keep-alives. One is enough unless leases of
// several TTLs are renewed at the same time.
const maxIdle = 4

// stream carries keep-alives, one at a time: each answer belongs to the request before it. A stream
// whose answer did not come is never used again, so an old answer proves nothing.
//
// The client's own KeepAliveOnce opens a stream for each request. With a password each stream costs a
// token, for which the server hashes the password: 80 to 150 ms against 0.4 ms. It also repeats requests
// without a pause while members have no leader. KeepAlive has one stream, but does not return the
// times of sending. A server of version 3.5.30 checks the token of the stream with each request, and
// each request prolongs the token's life of 5 minutes.
type stream struct {
	client pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc
}

// touch is one keep-alive. It returns the time of sending and the term in the answer. A stream that
// is in use already gets half of the time: if it has ended or is silent, a new stream is opened, as
// a rule to another member.
func (d *driver) touch(ctx context.Context, id clientv3.LeaseID) (sent time.Time, ttl time.Duration, err error) {
	if s := d.takeStream(); s != nil {
		half, cancel := halfOf(ctx)
		defer cancel()
		if sent, ttl, err = d.exchange(half, s, id); err == nil || isLeaseGone(err) || ctx.Err() != nil {
			return sent, ttl, err
		}
	}
	s, err := d.openStream(ctx)
	if err != nil {
		return time.Time{}, 0, err
	}
	return d.exchange(ctx, s, id)
}

// halfOf returns a context with half of the time that is left.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

// openStream opens a stream that ends with the driver.
func (d *driver) openStream(ctx context.Context) (*stream, error) {
	life, cancel := context.WithCancel(d.life)
	defer context.AfterFunc(ctx, cancel)() // without effect once it is open
	client, err := d.keepAlives.LeaseKeepAlive(life)
	if err != nil {
		cancel()
		return nil, clientv3.ContextError(ctx, err)
	}
	return &stream{client, cancel}, nil
}

// exchange sends a keep-alive and waits for the answer. It keeps the stream for the next one if that has come.
func (d *driver) exchange(
	ctx context.Context, s *stream, id clientv3.LeaseID,
) (sent time.Time, ttl time.Duration, err error) {
	stop := context.AfterFunc(ctx, s.cancel)
	sent = time.Now()
	_ = s.client.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}) // Recv returns what went wrong
	resp, err := s.client.Recv()
	if !stop() || err != nil {
		s.cancel()
	} else {
		d.keepStream(s)
	}
	switch {
	case err != nil:
		return time.Time{}, 0, clientv3.ContextError(ctx, err)
	case resp.TTL <= 0:
		return time.Time{}, 0, rpctypes.ErrLeaseNotFound
	}
	return sent, time.Duration(resp.TTL) * time.Second, nil
}

// takeStream returns a stream that is not in use, or nil.
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

func (d *driver) keepStream(s *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.streams) == maxIdle {
		s.cancel()
		return
	}
	d.streams = append(d.streams, s)
}
