package zkbackend

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestProofCountsFromTheLeadersTouch checks that a proof counts from the last touch that the
// leader has received. A term is never longer than the session from then on.
func TestProofCountsFromTheLeadersTouch(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	shortest := 2 * time.Second
	opts := (&settings{Options: Options{TTL: 8 * time.Second}}).measured(shortest)
	report := opts.report()
	if opts.tick != shortest/2 || opts.timeout != opts.TTL+opts.tick ||
		report != 550*time.Millisecond {
		t.Errorf("a tick of %v, a timeout of %v, reported within %v",
			opts.tick, opts.timeout, report)
	}
	var sent touches
	if got := sent.before(at(0), report); !got.Equal(at(0)) {
		t.Errorf("before the connect request: %v", got.Sub(start))
	}
	for _, ms := range []int{0, 10, 400, 800, 1200, 1600, 2000, 3500} {
		sent.send(at(ms), true)
		sent.heard(1, at(ms+1), report)
	}
	for now, want := range map[int]int{3500: 2000, 4050: 2000, 4051: 3500, 9000: 3500} {
		if got := sent.before(at(now), report); !got.Equal(at(want)) {
			t.Errorf("at %d ms the leader has received %v, want %d ms", now, got.Sub(start), want)
		}
	}
	var first touches
	first.send(at(0), false)
	first.send(at(400), true)
	first.heard(1, at(401), report)
	if got := first.before(at(500), report); !got.Equal(at(0)) {
		t.Errorf("soon after the connect request: %v", got.Sub(start))
	}
	s := &session{settings: opts}
	s.proof.negotiated(opts.timeout)
	s.proof.add(moment{sent: at(5000), touched: at(3900)})
	s.proof.add(moment{sent: at(4000), touched: at(4000)}) // an older answer that arrives later
	for ttl, want := range map[time.Duration]time.Duration{
		2 * time.Second: 2 * time.Second,
		8 * time.Second: 7900 * time.Millisecond,
	} {
		if got := s.term(ttl); !got.Sent.Equal(at(5000)) || got.TTL != want {
			t.Errorf("a term for %v is %v from %v on, want %v",
				ttl, got.TTL, got.Sent.Sub(start), want)
		}
	}
}

// TestIdleSessionIsProven checks that an idle session pings often enough, so that its proofs last
// for most of its timeout.
func TestIdleSessionIsProven(t *testing.T) {
	t.Parallel()
	s := testenv.NewZooKeeper(t, fastTick)
	const timeout = 4 * time.Second
	const age = timeout / 5 // of the proof, at most
	testenv.InTime(t, age, testenv.Probe(t, s.URL), func() (begun time.Time, age time.Duration) {
		d := openURL(t, s.URL+"?session="+timeout.String())
		begun = time.Now()
		time.Sleep(timeout * 5 / 8) // until shortly before the client library's second ping
		g := raw.Acquire(t, d, raw.Request(t, timeout))
		raw.Release(t, d, g)
		t.Logf("the term is %v of %v", g.Term.TTL, timeout)
		return begun, timeout - g.Term.TTL
	})
}

// accept writes a server's answer to a connect request, and answers the credentials with code.
func accept(server net.Conn, code int32) (credentials []byte) {
	answer := make([]byte, 4+37)
	binary.BigEndian.PutUint32(answer, 37)
	binary.BigEndian.PutUint32(answer[8:], 10_000)
	_, _ = server.Write(answer)
	credentials = make([]byte, 4)
	_, _ = io.ReadFull(server, credentials)
	credentials = append(credentials, make([]byte, binary.BigEndian.Uint32(credentials))...)
	_, _ = io.ReadFull(server, credentials[4:])
	answer = binary.BigEndian.AppendUint32(nil, 16)
	answer = append(answer, credentials[4:8]...)
	answer = append(answer, make([]byte, 8)...)
	_, _ = server.Write(binary.BigEndian.AppendUint32(answer, uint32(code)))
	return credentials
}

// TestCredentialsArePartOfTheHandshake checks that the server has accepted the credentials before
// the client library sends its first request. Nothing more is read before the request for watches.
func TestCredentialsArePartOfTheHandshake(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int32{"accepted": 0, "refused": -115} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				// The user has no password.
				s := &session{settings: &settings{Options: Options{User: "alice"}}}
				s.ctx, s.cancel = context.WithCancelCause(t.Context())
				w := &wire{
					Conn: client, session: s, rewatch: make(chan struct{}, 1),
					deadline: time.Now().Add(time.Hour), dialled: time.Now(),
				}
				s.wire = w
				var wg sync.WaitGroup
				wg.Go(func() {
					const want = "\x00\x00\x00\x06digest\x00\x00\x00\x06alice:"
					if got := string(accept(server, code)); !strings.HasSuffix(got, want) {
						t.Errorf("the credentials are %q", got)
					}
				})
				_, err := io.ReadFull(w, make([]byte, 4)) // as the client library does
				must(t, err)
				_, err = io.ReadFull(w, make([]byte, 37))
				wg.Wait()
				if code != 0 {
					raw.WantIs(t, "the handshake", err, zk.ErrAuthFailed)
					raw.WantIs(t, "the session", context.Cause(s.ctx), zk.ErrAuthFailed)
				} else {
					must(t, err)
					read := make(chan error, 1)
					go func() {
						_, err := w.Read(make([]byte, 1))
						read <- err
					}()
					go func() { _, _ = server.Write([]byte{0}) }()
					synctest.Wait()
					if len(read) != 0 {
						t.Error("an answer is read before the request for watches is sent")
					}
					w.rewatch <- struct{}{} // as Write does
					must(t, <-read)
				}
				_, _ = client.Close(), server.Close()
				time.Sleep(2 * closeTimeout) // until the session's last timer has fired
			})
		})
	}
}

// TestFailedWriteAtTheEnd checks that after the end of the session the client library learns of a
// write that failed from Read alone. While the session lives, Write reports it, too: the library
// must not send the requests that wait on a connection that is lost.
func TestFailedWriteAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, over := range []bool{false, true} {
		client, server := net.Pipe()
		s := &session{settings: &settings{}}
		s.ctx, s.cancel = context.WithCancelCause(t.Context())
		w := &wire{Conn: farewell{client}, session: s}
		must(t, client.SetDeadline(time.Now().Add(-time.Second)))
		_, err := w.Write(make([]byte, 44)) // the connect request
		raw.WantIs(t, "the connect request", err, os.ErrDeadlineExceeded)
		if over {
			s.cancel(errMeasured)
		}
		if n, err := w.Write(pingRequest()); (err == nil) != over {
			t.Errorf("a session that is over (%t): Write = %d, %v", over, n, err)
		}
		_, err = w.Read(make([]byte, 1))
		if over { // no other request may follow a part of one
			raw.WantIs(t, "Read", err, io.ErrClosedPipe)
		} else {
			raw.WantIs(t, "Read", err, os.ErrDeadlineExceeded)
		}
		must(t, w.Close())
		_ = server.Close()
	}
}

// farewell is a layer over a connection, as TLS is, whose Close waits for a server that does not
// read.
type farewell struct{ net.Conn }

func (f farewell) NetConn() net.Conn { return f.Conn }

func (farewell) Close() error { return errors.New("the server does not read") }

// TestShorterTimeoutEndsTheSession checks a session whose next server grants it a shorter timeout.
// Its leases were proven for the longer one, so they are lost.
func TestShorterTimeoutEndsTheSession(t *testing.T) {
	t.Parallel()
	const former = 10 * time.Second
	for granted, ends := range map[time.Duration]bool{
		0: false, former - time.Millisecond: true, former: false, 2 * former: false,
	} {
		s := &session{settings: &settings{}}
		s.ctx, s.cancel = context.WithCancelCause(t.Context())
		s.proof.negotiated(former)
		client, server := net.Pipe()
		w := &wire{Conn: client, session: s}
		answer := make([]byte, sizeField+minHandshake)
		binary.BigEndian.PutUint32(answer, minHandshake)
		binary.BigEndian.PutUint32(answer[8:], uint32(granted/time.Millisecond))
		err := w.shake(answer)
		if ends {
			raw.WantIs(t, "the handshake", err, backend.ErrLost)
			raw.WantIs(t, "the session", context.Cause(s.ctx), backend.ErrLost)
		} else if err != nil || s.ctx.Err() != nil {
			t.Errorf("a timeout of %v: %v, %v", granted, err, context.Cause(s.ctx))
		}
		_, _ = client.Close(), server.Close()
	}
}

// TestCloseWhileCutOff checks that Close waits for the server for at most a second, even if more
// requests are pending than the client library keeps.
func TestCloseWhileCutOff(t *testing.T) {
	t.Parallel()
	const requests = 64
	s := testenv.ZooKeeper(t)
	for _, reconnecting := range []bool{false, true} {
		t.Run(fmt.Sprint("reconnecting=", reconnecting), func(t *testing.T) {
			t.Parallel()
			p := testenv.NewProxy(t, s.Addr)
			opened, err := testenv.Open(t.Context(), "zk://"+p.Addr()+"?session=40s")
			must(t, err)
			d := opened.(*driver)
			defer p.Cut(t)()
			if reconnecting {
				first := d.session.connection()
				_ = first.Close()
				eventually(t, "the next connection", func() bool {
					return d.session.connection() != first
				})
			}
			ctx, cancel := context.WithCancel(t.Context())
			var pending sync.WaitGroup
			for range requests {
				req := raw.Request(t, patience)
				pending.Go(func() {
					_, err := d.Acquire(ctx, req)
					if err == nil || errors.Is(err, backend.ErrNotAcquired) {
						t.Errorf("Acquire while cut off: %v", err)
					}
				})
			}
			eventually(t, "the requests", func() bool {
				d.session.mu.Lock()
				defer d.session.mu.Unlock()
				return d.session.pending == requests
			})
			cancel()
			pending.Wait()
			meter, begun := lag.Start(), time.Now()
			defer meter.Stop()
			must(t, d.Close())
			took, late := time.Since(begun), meter.Worst(begun)
			if took > closeTimeout+closeTimeout/2+late {
				t.Errorf("Close took %v, in a process that was late by up to %v", took, late)
			}
		})
	}
}

// TestEndedSessionIsCollected checks that a session without calls does not stay in memory after its
// end. Each Open makes one, to measure the tick.
func TestEndedSessionIsCollected(t *testing.T) {
	t.Parallel()
	ended := endedSession(t)
	eventually(t, "the session is collected", func() bool {
		runtime.GC()
		return ended.Value() == nil
	})
}

// endedSession begins and ends a session, and keeps no reference to it.
func endedSession(t *testing.T) weak.Pointer[session] {
	t.Helper()
	opts, err := (&Options{}).settings()
	must(t, err)
	s, err := newSession([]string{testenv.ZooKeeper(t).Addr}, opts, "")
	must(t, err)
	var running sync.WaitGroup
	running.Go(s.run)
	must(t, s.await(t.Context()))
	s.end(errMeasured)
	running.Wait()
	return weak.Make(s)
}

// eventually polls until a condition without a signal is true.
func eventually(tb testing.TB, what string, happened func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !happened(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("%s: not within %v", what, patience)
		}
	}
}
