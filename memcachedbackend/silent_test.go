package memcachedbackend

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// listen starts an impostor and returns its address.
func listen(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	return testenv.NewImpostor(t, serve).Addr()
}

// answer serves a connection. It demands a password, accepts every user and stores nothing.
func answer(conn net.Conn) {
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch {
		case lines.Text() == "version":
			_, _ = conn.Write([]byte(unauthenticated + "\r\n"))
		case strings.HasPrefix(lines.Text(), "set ") && lines.Scan():
			_, _ = conn.Write([]byte("STORED\r\n"))
		case strings.HasPrefix(lines.Text(), "gets "):
			_, _ = conn.Write([]byte("END\r\n"))
		}
	}
}

// TestSilentDial uses a server that accepts connections and then is silent. Requests with a
// deadline and no Done channel end at their deadline and return their connections, however many
// requests there are.
func TestSilentDial(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]Options{
		"TLS":      {TLS: &tls.Config{InsecureSkipVerify: true}},
		"password": {User: "user", Password: "s3cret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			speak := make(chan struct{})
			addr := listen(t, func(conn net.Conn) {
				<-speak
				answer(conn)
			})
			opts.Timeout = time.Hour
			d := newDriver([]string{addr}, opts.withDefaults())
			g := &backend.Grant{Request: *raw.Request(t, long)}
			for range controlConns + 1 {
				within(t, func() {
					bound := bound.New(context.Background(), 50*time.Millisecond)
					defer bound.Cancel()
					raw.WantIs(t, "Release", d.Release(bound, g), backend.ErrUnavailable)
				})
			}
			close(speak)
			if opts.TLS == nil {
				err := d.Release(t.Context(), g)
				raw.WantIs(t, "Release when the server answers", err, backend.ErrNotHeld)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestIdleConnectionKeepsNoContext checks that an idle connection does not keep the context of its
// last call. The context has values of the caller.
func TestIdleConnectionKeepsNoContext(t *testing.T) {
	t.Parallel()
	var opts *Options
	d := newDriver([]string{listen(t, answer)}, opts.withDefaults())
	for range 2 { // a new connection and an idle one
		err := d.Release(t.Context(), &backend.Grant{Request: *raw.Request(t, long)})
		raw.WantIs(t, "Release", err, backend.ErrNotHeld)
		if idle := d.servers[0].pool.idle; len(idle) != 1 || idle[0].ctx != nil {
			t.Errorf("%d idle connections, want one without a context", len(idle))
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestCallThatOutlastsClose checks that a call which the core has given up closes its connection
// when it ends after Close.
func TestCallThatOutlastsClose(t *testing.T) {
	t.Parallel()
	dialled, speak, hungUp := make(chan struct{}), make(chan struct{}), make(chan struct{})
	addr := listen(t, func(conn net.Conn) {
		close(dialled)
		<-speak
		answer(conn)
		close(hungUp)
	})
	opts := Options{Timeout: time.Hour}
	d := newDriver([]string{addr}, opts.withDefaults())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.Release(t.Context(), &backend.Grant{Request: *raw.Request(t, long)})
	}()
	<-dialled
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	close(speak)
	within(t, func() { <-ended })
	within(t, func() { <-hungUp })
}

// within fails the test if call does not return in time.
func within(t *testing.T, call func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the call does not return")
	}
}
