package etcdbackend

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// renews renews g, which must succeed. The term must count from the call.
func renews(tb testing.TB, d *driver, g *backend.Grant) {
	tb.Helper()
	begun := time.Now()
	term, err := d.Renew(tb.Context(), g)
	switch {
	case err != nil:
		tb.Errorf("Renew: %v", err)
	case term.Sent.Before(begun) || term.Sent.After(time.Now()) || term.TTL != g.TTL:
		tb.Errorf("Renew: %v from %v on, want %v from %v", term.TTL, term.Sent, g.TTL, begun)
	}
}

func TestKeepAlivesShareAStream(t *testing.T) {
	t.Parallel()
	var n counter
	d := lend(t, admin(t, testenv.Etcd(t), n.options()...))
	g := raw.Acquire(t, d, newRequest(t))
	streams := n.streams.Load()
	for range 20 {
		renews(t, d, g)
	}
	if s := n.streams.Load() - streams; s != 1 {
		t.Errorf("20 renewals opened %d streams", s)
	}
	release(t, d, g)
}

// TestLeasesDoNotWaitForEachOther checks that leases of several terms are renewed at the same time.
// Each lease has a stream and keeps it.
func TestLeasesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	var n counter
	d := lend(t, admin(t, testenv.Etcd(t), n.options()...))
	var gs []*backend.Grant
	for i := range maxIdle {
		req := newRequest(t)
		req.Key += string(rune('a' + i))
		req.TTL += time.Duration(i) * time.Second
		gs = append(gs, raw.Acquire(t, d, req))
	}
	streams := n.streams.Load()
	for range 20 {
		for _, r := range d.RenewAll(t.Context(), gs) {
			if r.Err != nil {
				t.Errorf("RenewAll: %v", r.Err)
			}
		}
	}
	if s := n.streams.Load() - streams; s > maxIdle {
		t.Errorf("%d leases opened %d streams", maxIdle, s)
	}
	for _, g := range gs {
		release(t, d, g)
	}
}

// aroundStreams returns the option of a client that wraps its streams of a method.
func aroundStreams(
	name string, wrap func(grpc.ClientStream) grpc.ClientStream,
) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(
		ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
		open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s, err := open(ctx, desc, conn, method, opts...)
		if err == nil && strings.HasSuffix(method, name) {
			s = wrap(s)
		}
		return s, err
	})
}

// former makes the answers to keep-alives come from a former leader while it is on.
type former struct{ on atomic.Bool }

func (f *former) option() grpc.DialOption {
	return aroundStreams("/LeaseKeepAlive", func(s grpc.ClientStream) grpc.ClientStream {
		return &formerStream{s, f}
	})
}

type formerStream struct {
	grpc.ClientStream
	*former
}

func (s *formerStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && s.on.Load() {
		m.(*pb.LeaseKeepAliveResponse).Header.RaftTerm--
	}
	return err
}

// TestFormerLeaderProvesNothing answers keep-alives as a leader that was stopped during the
// election of its successor. It has renewed the lease in its own memory only.
func TestFormerLeaderProvesNothing(t *testing.T) {
	t.Parallel()
	var f former
	d := lend(t, admin(t, testenv.Etcd(t), f.option()))
	other := lend(t, admin(t, testenv.Etcd(t), f.option())) // it renews by the key alone
	g := raw.Acquire(t, d, newRequest(t))
	f.on.Store(true)
	for _, renewer := range []*driver{d, other} {
		_, err := renewer.Renew(t.Context(), g)
		raw.WantIs(t, "Renew", err, backend.ErrUnavailable)
	}
	f.on.Store(false)
	renews(t, d, g)
	release(t, d, g)
}

// mute makes a stream of a client silent.
type mute struct {
	silent        atomic.Int64 // number of the silent stream, from 1 on; 0: none
	opened, ended atomic.Int64 // numbers of streams
}

// option returns the option of a client for its streams of a method.
func (m *mute) option(method string) grpc.DialOption {
	return aroundStreams(method, func(s grpc.ClientStream) grpc.ClientStream {
		context.AfterFunc(s.Context(), func() { m.ended.Add(1) })
		return &muteStream{s, m, m.opened.Add(1)}
	})
}

type muteStream struct {
	grpc.ClientStream
	*mute
	number int64
}

// RecvMsg returns nothing while the stream is silent.
func (s *muteStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	for s.silent.Load() == s.number {
		if s.Context().Err() != nil {
			return s.Context().Err()
		}
		time.Sleep(time.Millisecond)
	}
	return err
}

// TestSilentStreamIsReplaced checks that a renewal over a silent stream succeeds over another
// stream. The stream is also silent if the member at its other end does not answer.
func TestSilentStreamIsReplaced(t *testing.T) {
	t.Parallel()
	var m mute
	d := lend(t, admin(t, testenv.Etcd(t), m.option("/LeaseKeepAlive")))
	g := raw.Acquire(t, d, newRequest(t))
	renews(t, d, g)
	m.silent.Store(1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	begun := time.Now()
	term, err := d.Renew(ctx, g)
	if err != nil {
		t.Errorf("Renew: %v", err)
	}
	// The silent stream gets half of the time.
	if after := term.Sent.Sub(begun); after < time.Second {
		t.Errorf("the term counts from %v after the call, before its request was sent", after)
	}
	if n := m.opened.Load(); n != 2 {
		t.Errorf("%d streams were opened", n)
	}
	renews(t, d, g)
	release(t, d, g)
}

// TestSilentMemberCostsNoRenewal does not answer the first request for the keys of a lease. The
// next one goes to another member.
func TestSilentMemberCostsNoRenewal(t *testing.T) {
	t.Parallel()
	var silent atomic.Bool
	mute := grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if strings.HasSuffix(method, "/LeaseTimeToLive") && silent.Swap(false) {
			<-ctx.Done()
			return status.FromContextError(ctx.Err()).Err()
		}
		return invoke(ctx, method, req, reply, conn, opts...)
	})
	d := lend(t, admin(t, testenv.Etcd(t), mute))
	g := raw.Acquire(t, d, newRequest(t))
	silent.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := d.RenewAll(ctx, []*backend.Grant{g})[0].Err; err != nil || silent.Load() {
		t.Errorf("RenewAll: %v; no request: %t", err, silent.Load())
	}
	release(t, d, g)
}

// TestResetStreamIsReplaced resets all connections, which ends the streams.
func TestResetStreamIsReplaced(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	p := testenv.NewProxy(t, s.Addr)
	d := openURL(t, "etcd://"+p.Addr())
	g := raw.Acquire(t, d, newRequest(t))
	for range 5 {
		eventually(t, "a renewal succeeds", func() bool {
			_, err := d.Renew(t.Context(), g)
			return err == nil
		})
		p.Reset(t)
	}
	eventually(t, "the release succeeds", func() bool { return d.Release(t.Context(), g) == nil })
}

// TestKeepAlivesAndTokens checks the number of tokens. With a password each stream costs a token.
// Keep-alives keep the token of their stream valid. If it has expired nevertheless, they get a new
// one.
func TestKeepAlivesAndTokens(t *testing.T) {
	t.Parallel()
	s := newGuarded(t, "--auth-token-ttl", "1")
	var tokens atomic.Int64
	c := must[*clientv3.Client](t)(clientv3.New(clientv3.Config{
		Endpoints: []string{s.Addr}, Username: "locker", Password: "s3cret", Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			if strings.HasSuffix(method, "/Authenticate") {
				tokens.Add(1)
			}
			return invoke(ctx, method, req, reply, conn, opts...)
		})},
	}))
	t.Cleanup(func() { _ = c.Close() })
	d := lend(t, c)
	g := raw.Acquire(t, d, newRequest(t))
	l := d.acquisitions[g.Owner].lease
	keepAlives := func(n int, pause time.Duration) (cost int64) {
		t.Helper()
		before := tokens.Load()
		for range n {
			time.Sleep(pause)
			if _, err := d.keepAlive(t.Context(), l); err != nil {
				t.Errorf("keep-alive: %v", err)
			}
		}
		return tokens.Load() - before
	}
	keepAlives(1, 0)
	begun := time.Now()
	// A token expires after a second without a use.
	n, expired := keepAlives(100, 0), int64(time.Since(begun)/time.Second)
	if n > 1+expired {
		t.Errorf("100 keep-alives cost %d tokens, and at most %d can have expired", n, expired)
	}
	if n := keepAlives(2, 2500*time.Millisecond); n > 2 {
		t.Errorf("two keep-alives with expired tokens cost %d tokens", n)
	}
	release(t, d, g)
}

// BenchmarkKeepAlive measures one keep-alive, without a password and with one.
func BenchmarkKeepAlive(b *testing.B) {
	for name, password := range map[string]bool{"plain": false, "password": true} {
		b.Run(name, func(b *testing.B) {
			var d *driver
			if password {
				d = openURL(b, "etcd://locker:s3cret@"+newGuarded(b).Addr)
			} else {
				d = openURL(b, testenv.Etcd(b).URL)
			}
			g := raw.Acquire(b, d, newRequest(b))
			l := d.acquisitions[g.Owner].lease
			for b.Loop() {
				if _, err := d.keepAlive(b.Context(), l); err != nil {
					b.Fatal(err)
				}
			}
			raw.Release(b, d, g)
		})
	}
}
