package etcdbackend

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// laggard delays what a client receives from its watches: a member that lags, or a slow stream.
type laggard struct {
	mu    sync.Mutex
	pass  int // messages that may still pass, if it lags
	lags  bool
	moved chan struct{} // closed at each change
}

func newLaggard() *laggard { return &laggard{moved: make(chan struct{})} }

// set lets n more messages pass, or all if n < 0.
func (l *laggard) set(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lags, l.pass = n >= 0, n
	close(l.moved)
	l.moved = make(chan struct{})
}

// next returns when a message may pass, or when ctx ends.
func (l *laggard) next(ctx context.Context) {
	for {
		l.mu.Lock()
		moved := l.moved
		if !l.lags || l.pass > 0 {
			l.pass--
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

func (l *laggard) option() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(
		ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s, err := open(ctx, desc, conn, method, opts...)
		if err == nil && strings.HasSuffix(method, "/Watch") {
			s = &laggingStream{s, l}
		}
		return s, err
	})
}

type laggingStream struct {
	grpc.ClientStream
	*laggard
}

func (s *laggingStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.next(s.Context())
	return err
}

// The waiter's place is lost and taken again, behind another waiter, before the driver receives the
// events of it. The first of them makes its old place the head of the copy, which grants nothing.
func TestLostPlaceGrantsNothing(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	lag := newLaggard()
	d, ops := lend(t, admin(t, s, lag.option())), admin(t, s)
	holder, next := openURL(t, s.URL), openURL(t, s.URL)
	held := raw.Acquire(t, holder, newRequest(t))
	mine, theirs := newRequest(t), newRequest(t)
	_ = raw.Busy(t, d, mine)
	granted := waiting(t, next, theirs, raw.Busy(t, next, theirs))
	eventually(t, "the copy has all places", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.queues[d.prefix(mine.Key)].places) == 3
	})

	lag.set(0)
	release(t, holder, held)
	must[*clientv3.LeaseRevokeResponse](t)(ops.Revoke(t.Context(), d.acquisitions[mine.Owner].lease.id))
	theirGrant := await(t, "the next waiter", granted)
	_, err := d.Acquire(t.Context(), mine)
	raw.WantIs(t, "Acquire on a lost lease", err, backend.ErrUnavailable)
	busy := raw.Busy(t, d, mine)

	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan *backend.Grant, 1)
	go func() {
		defer close(waited)
		for ctx.Err() == nil { // a Wait may return for no reason
			g, err := d.Wait(ctx, mine, busy)
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Wait: %v", err)
			}
			if g != nil {
				waited <- g
				return
			}
		}
	}()
	head := func(want string) {
		t.Helper()
		eventually(t, "the copy follows", func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.queues[d.prefix(mine.Key)].head() == want
		})
	}
	lag.set(1) // the holder's release alone
	head(mine.Owner)
	lag.set(-1)
	head(theirs.Owner)
	select {
	case g := <-waited:
		t.Fatalf("granted with fence %d beside the holder with fence %d", g.Fence, theirGrant.Fence)
	default:
	}
	release(t, next, theirGrant)
	g := await(t, "the waiter", waited)
	cancel()
	release(t, d, g)
}

// tardy has the server execute a transaction long after its caller has given it up.
type tardy struct {
	next atomic.Bool // the next one is late
	late chan func(context.Context) error
}

func newTardy() *tardy { return &tardy{late: make(chan func(context.Context) error, 1)} }

func (l *tardy) option() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if !strings.HasSuffix(method, "/Txn") || !l.next.CompareAndSwap(true, false) {
			return invoke(ctx, method, req, reply, conn, opts...)
		}
		l.late <- func(ctx context.Context) error { return invoke(ctx, method, req, new(pb.TxnResponse), conn) }
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	})
}

// haunt leaves a key of d that no acquisition has: its request is executed after its release.
func haunt(tb testing.TB, d *driver, l *tardy, ghost *backend.Request) {
	tb.Helper()
	l.next.Store(true)
	ctx, cancel := context.WithCancel(tb.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := d.Acquire(ctx, ghost)
		failed <- err
	}()
	execute := await(tb, "the transaction", l.late)
	cancel()
	raw.WantIs(tb, "the cancelled Acquire", await(tb, "Acquire", failed), context.Canceled)
	raw.WantIs(tb, "its Release", d.Release(tb.Context(), &backend.Grant{Request: *ghost}), backend.ErrNotHeld)
	if err := execute(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// waitingOn waits as the core does: it looks again after a third of the term, and so keeps its lease alive.
func waitingOn(tb testing.TB, d *driver, req *backend.Request) <-chan *backend.Grant {
	tb.Helper()
	busy := raw.Busy(tb, d, req)
	granted := make(chan *backend.Grant, 1)
	go func() {
		for tb.Context().Err() == nil {
			ctx, cancel := context.WithTimeout(tb.Context(), req.TTL/3)
			g, _ := d.Wait(ctx, req, busy)
			cancel()
			for again := true; g == nil && again && tb.Context().Err() == nil; again = busy == nil {
				var err error
				g, err = d.Acquire(tb.Context(), req)
				busy, _ = errors.AsType[*backend.Busy](err)
			}
			if g != nil {
				granted <- g
				return
			}
		}
	}()
	return granted
}

// A process that only waits keeps its lease alive, and with it a ghost of its own: nothing but the process removes it.
func TestGhostOfAWaitingProcessIsRemoved(t *testing.T) {
	for _, own := range []bool{true, false} {
		t.Run(map[bool]string{true: "its own lock", false: "another lock"}[own], func(t *testing.T) {
			t.Parallel()
			s := testenv.Etcd(t)
			late := newTardy()
			d, other := lend(t, admin(t, s, late.option())), openURL(t, s.URL)
			ghost, waiter := newRequest(t), newRequest(t)
			ghost.TTL = 10 * time.Second // it is looked for after a sixth of that, when the waiter looks again
			haunt(t, d, late, ghost)
			if !own { // d waits for a lock that stays taken, and other for that of the ghost
				blocked := newRequest(t)
				blocked.Key, blocked.TTL = blocked.Key+"/blocked", ghost.TTL
				held := newRequest(t)
				held.Key = blocked.Key
				g := raw.Acquire(t, other, held)
				granted := waitingOn(t, d, blocked)
				defer func() {
					release(t, other, g)
					release(t, d, await(t, "the blocked waiter", granted))
				}()
				d = other
			}
			waiter.TTL = ghost.TTL
			release(t, d, await(t, "the waiter", waitingOn(t, d, waiter)))
		})
	}
}

// An owner that is used again, against the contract, is not taken for the ghost of its former key.
func TestGhostHuntSparesLaterKeys(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d := openURL(t, s.URL)
	req := newRequest(t)
	g := raw.Acquire(t, d, req)
	key := d.acquisitions[req.Owner].key
	d.exorcise([]string{key})
	renews(t, d, g)
	release(t, d, g)
}

// A request of the holder is executed late, after an operator has removed the holder's key: the key that it makes is a
// place in the queue, and no proof for the lease.
func TestRemadeKeyProvesNothing(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	late := newTardy()
	d, other, ops := lend(t, admin(t, s, late.option())), openURL(t, s.URL), admin(t, s)
	obstacle, opener, mine := raw.Acquire(t, other, newRequest(t)), newRequest(t), newRequest(t)
	_ = raw.Busy(t, d, opener) // opens the copy of the queue, so that the next attempt makes a place at once
	late.next.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := d.Acquire(ctx, mine)
		failed <- err
	}()
	execute := await(t, "the transaction", late.late)
	cancel()
	raw.WantIs(t, "the cancelled Acquire", await(t, "Acquire", failed), context.Canceled)
	granted := waiting(t, d, mine, raw.Busy(t, d, mine))
	release(t, d, &backend.Grant{Request: *opener})
	release(t, other, obstacle)
	g := await(t, "the waiter", granted)
	renews(t, d, g)
	eventually(t, "the copy is closed", func() bool { return !d.watched(d.prefix(mine.Key)) })

	must[*clientv3.DeleteResponse](t)(ops.Delete(t.Context(), d.prefix(mine.Key)+mine.Owner))
	next := raw.Acquire(t, other, newRequest(t))
	if err := execute(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew beside the next holder", err, backend.ErrLost)
	release(t, d, g) // what the late request has left
	release(t, other, next)
}
