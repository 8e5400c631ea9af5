package etcdbackend

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// laggard delays the messages that a client receives from its watches. It simulates a member that
// lags, or a slow stream.
type laggard struct {
	mu    sync.Mutex
	pass  int // number of messages that may still pass while it lags
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

// next blocks until a message may pass, or until ctx ends.
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
		ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
		open grpc.Streamer, opts ...grpc.CallOption,
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

// TestLostPlaceGrantsNothing checks a waiter that loses its queue entry and gets a new one behind
// another waiter. Both happen before the driver receives the events. The first event makes the old
// entry the head of the driver's copy of the queue, which grants nothing.
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
	eventually(t, "the copy has all entries", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.queues[d.prefix(mine.Key)].entries) == 3
	})

	lag.set(0)
	release(t, holder, held)
	revoked := d.acquisitions[mine.Owner].lease
	must[*clientv3.LeaseRevokeResponse](t)(ops.Revoke(t.Context(), revoked.id))
	theirGrant := await(t, "the next waiter", granted)
	_, err := d.Acquire(t.Context(), mine)
	raw.WantIs(t, "Acquire on a lost lease", err, backend.ErrUnavailable)
	busy := raw.Busy(t, d, mine)

	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan *backend.Grant, 1)
	go func() {
		defer close(waited)
		for ctx.Err() == nil { // a Wait may return without a reason
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
			entries := d.queues[d.prefix(mine.Key)].entries
			return len(entries) > 0 && entries[0].owner == want
		})
	}
	lag.set(1) // only the holder's release passes
	head(mine.Owner)
	lag.set(-1)
	head(theirs.Owner)
	select {
	case g := <-waited:
		t.Fatalf("granted with fence %d while the holder has fence %d", g.Fence, theirGrant.Fence)
	default:
	}
	release(t, next, theirGrant)
	g := await(t, "the waiter", waited)
	cancel()
	release(t, d, g)
}

// tardy makes the server execute a request long after its caller has given it up.
type tardy struct {
	method string      // the end of its name
	next   atomic.Bool // the next request of the method is late
	late   chan func(context.Context) error
}

// newTardy returns a tardy for transactions.
func newTardy() *tardy {
	return &tardy{method: "/Txn", late: make(chan func(context.Context) error, 1)}
}

func (l *tardy) option() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if !strings.HasSuffix(method, l.method) || !l.next.CompareAndSwap(true, false) {
			return invoke(ctx, method, req, reply, conn, opts...)
		}
		l.late <- func(ctx context.Context) error {
			return invoke(ctx, method, req, reply, conn)
		}
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	})
}

// haunt creates a ghost, a key of d without an acquisition: the server executes the request after
// its release.
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
	err := d.Release(tb.Context(), &backend.Grant{Request: *ghost})
	raw.WantIs(tb, "its Release", err, backend.ErrNotHeld)
	if err := execute(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// waitingOn waits as the core does. It repeats Acquire after a third of the term, which keeps its
// lease alive.
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

// TestGhostOfAWaitingProcessIsRemoved checks a process that only waits. It keeps its lease alive,
// and with the lease also its own ghost. Only the process itself can remove the ghost.
func TestGhostOfAWaitingProcessIsRemoved(t *testing.T) {
	for _, own := range []bool{true, false} {
		name := map[bool]string{true: "its own lock", false: "another lock"}[own]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testenv.Etcd(t)
			late := newTardy()
			d, other := lend(t, admin(t, s, late.option())), openURL(t, s.URL)
			ghost, waiter := newRequest(t), newRequest(t)
			// The driver searches for ghosts after a sixth of the TTL, when the waiter retries.
			ghost.TTL = 10 * time.Second
			haunt(t, d, late, ghost)
			if !own { // d waits for a taken lock, other waits for the lock of the ghost
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

// TestGhostHuntSparesLaterKeys checks an owner that is reused, against the contract. Its new key is
// not taken for a ghost of its former key.
func TestGhostHuntSparesLaterKeys(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d := openURL(t, s.URL)
	req := newRequest(t)
	g := raw.Acquire(t, d, req)
	a := d.acquisitions[req.Owner]
	d.removeGhosts(a.lease, []string{a.key})
	renews(t, d, g)
	release(t, d, g)
}

// TestRemadeKeyProvesNothing checks a request of the holder that is executed late, after an
// operator has removed the holder's key. The late request creates a queue entry, which does not
// prove the lease.
func TestRemadeKeyProvesNothing(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	late := newTardy()
	d, other, ops := lend(t, admin(t, s, late.option())), openURL(t, s.URL), admin(t, s)
	obstacle, opener, mine := raw.Acquire(t, other, newRequest(t)), newRequest(t), newRequest(t)
	// This opens the copy of the queue, so that the next attempt creates a queue entry at once.
	_ = raw.Busy(t, d, opener)
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
	eventually(t, "the copy is closed", func() bool { return !d.hasCopy(d.prefix(mine.Key)) })

	must[*clientv3.DeleteResponse](t)(ops.Delete(t.Context(), d.prefix(mine.Key)+mine.Owner))
	next := raw.Acquire(t, other, newRequest(t))
	if err := execute(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew while another owner holds the lock", err, backend.ErrLost)
	release(t, d, g) // removes the key of the late request
	release(t, other, next)
}

// TestLateRemovalFreesNoGrant checks an attempt whose removal of its own key is executed after the
// next attempt of the owner. That attempt must not be granted: its key is about to be removed.
func TestLateRemovalFreesNoGrant(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	late := newTardy()
	late.method = "/DeleteRange"
	d, ops := lend(t, admin(t, s, late.option())), admin(t, s)
	obstacle, opener, mine := raw.Acquire(t, d, newRequest(t)), newRequest(t), newRequest(t)
	// This opens the copy of the queue, so that the next attempt creates a queue entry at once.
	_ = raw.Busy(t, d, opener)
	release(t, d, &backend.Grant{Request: *opener})
	release(t, d, obstacle)
	stranger := d.prefix(mine.Key) + "stranger"
	must[*clientv3.PutResponse](t)(ops.Put(t.Context(), stranger, "hello"))

	late.next.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := d.Acquire(ctx, mine)
		failed <- err
	}()
	execute := await(t, "the removal", late.late)
	cancel()
	wantUnknown(t, "Acquire", await(t, "Acquire", failed))
	must[*clientv3.DeleteResponse](t)(ops.Delete(t.Context(), stranger))
	_, err := d.Acquire(t.Context(), mine)
	raw.WantIs(t, "the next attempt of the owner", err, backend.ErrLost)
	release(t, d, &backend.Grant{Request: *mine})
	if err := execute(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestLateRemovalOfAllFreesNoGrant checks the same for several locks at once.
func TestLateRemovalOfAllFreesNoGrant(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Etcd(t).URL)
	req := newRequest(t)
	l := must[*lease](t)(d.freshLease(t.Context(), req.TTL))
	a := d.admit(req, l, req.Owner)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	own := answer{created: 1, lease: l.id, first: true}
	err := d.stepBackAll(ctx, []*acquisition{a}, []answer{own}, &backend.Busy{})
	wantUnknown(t, "AcquireAll", err)
	_, err = d.applyAnswer(a, req, own)
	raw.WantIs(t, "the next attempt of the owner", err, backend.ErrLost)
}

// TestRefusedRemovalIsUncertain checks an attempt that does not wait, if the server refuses to
// remove its key. The refusal is definite, but the attempt has left a key.
func TestRefusedRemovalIsUncertain(t *testing.T) {
	t.Parallel()
	var refuses atomic.Bool
	refuse := grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if refuses.Load() && strings.HasSuffix(method, "/DeleteRange") {
			return rpctypes.ErrGRPCNoLeader
		}
		return invoke(ctx, method, req, reply, conn, opts...)
	})
	s := testenv.Etcd(t)
	d, other, ops := lend(t, admin(t, s, refuse)), openURL(t, s.URL), admin(t, s)
	g, req := raw.Acquire(t, other, newRequest(t)), newRequest(t)
	req.Queue = false
	l := must[*lease](t)(d.freshLease(t.Context(), req.TTL))
	a := d.admit(req, l, req.Owner)
	ans := must[answer](t)(d.enqueue(t.Context(), a))
	refuses.Store(true)
	_, err := d.stepBack(t.Context(), a, ans)
	wantUnknown(t, "the attempt", err)
	refuses.Store(false)
	d.applyError(a, err)
	release(t, d, &backend.Grant{Request: *req})
	release(t, other, g)
	if keys := keysUnder(t, ops, a.prefix); len(keys) != 0 {
		t.Errorf("keys remain: %q", keys)
	}
}
