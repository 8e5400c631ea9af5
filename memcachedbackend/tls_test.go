package memcachedbackend

import (
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/pki"
	"github.com/dlock-go/dlock/internal/testenv/raw"
	"github.com/dlock-go/dlock/internal/testenv/tlstest"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	tlstest.Suite{
		Upstream: testenv.Memcached(t).Addr, URL: "memcached://%s?tls=1&timeout=1m&%s", Use: use,
	}.Run(t)
}

// TestTLSOfTheServer uses a server that supports TLS itself.
func TestTLSOfTheServer(t *testing.T) {
	t.Parallel()
	tlstest.Suite{
		URL: "memcached://%s?tls=1&timeout=1m&%s", Start: testenv.NewMemcachedTLS, Use: use,
	}.Run(t)
}

func use(t *testing.T, d backend.Driver) {
	t.Helper()
	var first net.Conn
	for i := range 3 {
		raw.Release(t, d.(*driver), raw.Acquire(t, d.(*driver), raw.Request(t, long)))
		idle := d.(*driver).servers[0].pool.idle
		if i == 0 {
			first = idle[0].socket
		}
		if len(idle) != 1 || idle[0].socket != first {
			t.Errorf("%d connections after pair %d, want the first one", len(idle), i)
		}
	}
}

// TestConnectionsWithTLSMayEnd checks that the driver does not use a connection which the server
// has closed in the way of TLS: the end of the connection comes after a message.
func TestConnectionsWithTLSMayEnd(t *testing.T) {
	t.Parallel()
	cert := pki.NewAuthority(t).Issue(t, "localhost", time.Now().Add(time.Hour))
	answered := make(chan struct{})
	addr := listen(t, func(conn net.Conn) {
		secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{cert.TLS}})
		request := make([]byte, 1<<10)
		if _, err := secure.Read(request); err != nil {
			t.Errorf("Read: %v", err)
		}
		_, _ = secure.Write([]byte("END\r\n"))
		<-answered
		_ = secure.Close()
	})
	opts := Options{Timeout: time.Hour, TLS: &tls.Config{InsecureSkipVerify: true}}
	d := newDriver([]string{addr}, opts.withDefaults())
	for range 3 {
		err := d.Release(t.Context(), &backend.Grant{Request: *raw.Request(t, long)})
		if !errors.Is(err, backend.ErrNotHeld) {
			t.Fatalf("Release: %v, want %v", err, backend.ErrNotHeld)
		}
		answered <- struct{}{}
		within(t, func() {
			for !hasNews(d.servers[0].pool.idle[0].socket) {
				time.Sleep(time.Millisecond)
			}
		})
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// hasNews reports whether bytes or the end of the connection have arrived.
func hasNews(socket net.Conn) bool {
	closed, readable := peek(socket)
	return closed || readable
}

// TestPassword uses a file that every system has as the server's auth file. Its lines are names, a
// colon, and more text, which the server takes for the password.
func TestPassword(t *testing.T) {
	t.Parallel()
	s := testenv.NewMemcached(t, "-Y", "/etc/passwd")
	var errs []error
	for _, password := range []string{ // of our image, Debian and Alpine
		"x:0:0::/:/bin/sh", "x:0:0:root:/root:/bin/bash",
		"x:0:0:root:/root:/bin/sh", "x:0:0:root:/root:/bin/ash",
	} {
		d, err := New([]string{s.Addr}, &Options{User: "root", Password: password})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		raw.Release(t, d.(*driver), raw.Acquire(t, d.(*driver), raw.Request(t, long)))
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		return
	}
	t.Errorf("no password is right: %v", errs)
}

// TestPasswordIsSentOnDemand opens a server without an auth file, which would store the password as
// a value that all its clients can read.
func TestPasswordIsSentOnDemand(t *testing.T) {
	t.Parallel()
	s := testenv.NewMemcached(t)
	before := stats(t, s)["cmd_set"]
	err := raw.Refused(t, "memcached://"+raw.Login+s.Addr, "no auth file")
	raw.WantIs(t, "Open", err, backend.ErrUnavailable)
	if n := stats(t, s)["cmd_set"] - before; n > 0 {
		t.Errorf("the server has stored %d values", n)
	}
	if _, err := admin(t, s).Get("dlock"); !errors.Is(err, memcache.ErrCacheMiss) {
		t.Errorf("get of the key of the password: %v", err)
	}
}
