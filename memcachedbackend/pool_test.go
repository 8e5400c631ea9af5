package memcachedbackend

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// serveHolder serves a connection as a server on which g holds every lock. It calls onRequest with
// the first two words of each request before it answers.
func serveHolder(conn net.Conn, g *backend.Grant, onRequest func(request string)) {
	value := newRecord(&g.Request, "1", 1, time.Now()).encode()
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		fields := strings.Fields(line)
		onRequest(fields[0] + " " + fields[1])
		if fields[0] == "gets" {
			_, _ = fmt.Fprintf(conn, "VALUE %s 0 %d 1\r\n%s\r\nEND\r\n",
				fields[1], len(value), value)
			continue
		}
		size, _ := strconv.Atoi(fields[4]) // of the value of a cas
		_, _ = r.Discard(size + len(crlf))
		_, _ = conn.Write([]byte("STORED\r\n"))
	}
}

// ignore reads from a connection until the client closes it.
func ignore(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// openIdle returns a driver with n idle connections to a server. The one that was made last is used
// next.
func openIdle(t *testing.T, addr string, n int) *driver {
	t.Helper()
	opts := Options{Timeout: time.Hour}
	d := newDriver([]string{addr}, opts.withDefaults())
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := connectIdle(t.Context(), d.servers[0].main, n); err != nil {
		t.Fatal(err)
	}
	return d
}

// connectIdle makes n connections at the same time.
func connectIdle(ctx context.Context, l lane, n int) error {
	return l.do(ctx, func(c *memcache.Client) error {
		if n > 1 {
			if err := connectIdle(ctx, l, n-1); err != nil {
				return err
			}
		}
		_, err := c.Get("key")
		return err
	})
}

// TestRenewalNeedsNoNewConnection has a server that refuses new connections. The connection that
// was used last has ended. Another connection is idle, and renewals use it.
func TestRenewalNeedsNoNewConnection(t *testing.T) {
	t.Parallel()
	type ending func(t *testing.T, d *driver, added <-chan struct{}, last net.Conn)
	for name, end := range map[string]ending{
		"by a cancelled attempt": func(t *testing.T, d *driver, added <-chan struct{}, _ net.Conn) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-added
				cancel()
			}()
			_, err := d.Acquire(ctx, raw.Request(t, long))
			raw.WantIs(t, "Acquire", err, context.Canceled)
		},
		"by the server": func(t *testing.T, d *driver, _ <-chan struct{}, last net.Conn) {
			t.Helper()
			_ = last.Close()
			top := d.servers[0].pool.idle[1]
			within(t, func() {
				for ; !top.isDead(); time.Sleep(time.Millisecond) {
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &backend.Grant{Request: *raw.Request(t, long)}
			conns, added := make(chan net.Conn, 2), make(chan struct{})
			server := testenv.NewImpostor(t, func(conn net.Conn) {
				conns <- conn
				serveHolder(conn, g, func(request string) {
					if strings.HasPrefix(request, "add ") {
						close(added)
						ignore(conn)
					}
				})
			})
			d := openIdle(t, server.Addr(), 2)
			server.Refuse()
			<-conns
			end(t, d, added, <-conns)
			for range 3 {
				if _, err := d.Renew(t.Context(), g); err != nil {
					t.Errorf("Renew: %v", err)
				}
			}
		})
	}
}

// TestDeadConnectionsFailOneRenewal has a firewall that has forgotten the connections of a client:
// it drops or refuses their requests. One renewal fails, and the next one uses a new connection.
func TestDeadConnectionsFailOneRenewal(t *testing.T) {
	t.Parallel()
	const idle = 3
	for name, block := range map[string]func(net.Conn){
		"dropped": ignore,
		"refused": func(conn net.Conn) { _ = conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var accepted, forgotten atomic.Int32
			g := &backend.Grant{Request: *raw.Request(t, long)}
			addr := listen(t, func(conn net.Conn) {
				n := accepted.Add(1)
				serveHolder(conn, g, func(string) {
					if n <= forgotten.Load() {
						block(conn)
					}
				})
			})
			d := openIdle(t, addr, idle)
			forgotten.Store(idle)
			for i, limit := range []time.Duration{2 * time.Second, patience} {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				if _, err := d.Renew(ctx, g); (err == nil) != (i > 0) {
					t.Errorf("renewal %d: %v", i, err)
				}
			}
		})
	}
}

// TestShortCallsKillNoConnections checks that a call which ends soon is no sign of dead
// connections.
func TestShortCallsKillNoConnections(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	now := time.Now()
	for _, tt := range []struct {
		ctx   context.Context
		begun time.Time
		err   error
		want  bool
	}{
		{t.Context(), now.Add(time.Hour), os.ErrDeadlineExceeded, true},
		{t.Context(), now.Add(-minSilence), os.ErrDeadlineExceeded, false},
		{ended, now.Add(-minSilence), os.ErrDeadlineExceeded, true},
		{ended, now.Add(time.Hour), io.EOF, false},
	} {
		c := newConn(&pool{opts: &Options{Timeout: time.Hour}})
		c.ctx, c.begun = tt.ctx, tt.begun
		if got := c.isGivenUp(tt.err); got != tt.want {
			t.Errorf("%v after %v, context %v: %t", tt.err, now.Sub(tt.begun), tt.ctx.Err(), got)
		}
	}
}

// TestReleasesDelayNoRenewal renews a lock while the server answers no release. The releases have
// all connections that they may have.
func TestReleasesDelayNoRenewal(t *testing.T) {
	t.Parallel()
	g := &backend.Grant{Request: *raw.Request(t, long)}
	released := *g
	released.Key += " released"
	requests := make(chan struct{}, 2*controlConns)
	addr := listen(t, func(conn net.Conn) {
		serveHolder(conn, g, func(request string) {
			if request == "gets "+newKeys(released.Key).lock {
				requests <- struct{}{}
				ignore(conn)
			}
		})
	})
	d := openIdle(t, addr, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for range cap(requests) {
		running.Go(func() { _ = d.Release(ctx, &released) })
	}
	for range controlConns {
		<-requests
	}
	bounded, cancelBounded := context.WithTimeout(t.Context(), patience)
	defer cancelBounded()
	if _, err := d.Renew(bounded, g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if r := d.RenewAll(bounded, []*backend.Grant{g})[0]; r.Err != nil {
		t.Errorf("RenewAll: %v", r.Err)
	}
	if n := len(requests); n > 0 {
		t.Errorf("%d releases have connections for renewals", n)
	}
}

// TestCallWithoutTimeEndsNoConnections takes a connection for a call whose deadline has passed. It
// reads nothing, so it learns nothing about the connections.
func TestCallWithoutTimeEndsNoConnections(t *testing.T) {
	t.Parallel()
	const idle = 3
	g := &backend.Grant{Request: *raw.Request(t, long)}
	d := openIdle(t, listen(t, func(conn net.Conn) { serveHolder(conn, g, func(string) {}) }), idle)
	p := d.servers[0].pool
	ctx, cancel := context.WithDeadline(t.Context(), past)
	defer cancel()
	c, _ := p.take(ctx)
	p.put(c)
	if n := len(p.idle); n != idle {
		t.Errorf("%d connections are idle, want %d", n, idle)
	}
	for _, c := range p.idle {
		if c.open == nil {
			t.Error("a connection was closed")
		}
	}
}
