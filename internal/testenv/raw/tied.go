package raw

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
)

// OpenTTL opens a driver as a client with that TTL does. Its timeout is long enough for a slow
// machine. rawURL has a parameter.
func OpenTTL(tb testing.TB, rawURL string, ttl time.Duration) backend.Driver {
	tb.Helper()
	u, err := backend.ParseURL(rawURL + "&timeout=30s")
	if err != nil {
		tb.Fatal(err)
	}
	open, err := backend.Lookup(u.Scheme)
	if err != nil {
		tb.Fatal(err)
	}
	u.TTL = ttl
	d, err := open(tb.Context(), u)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = d.Close() })
	return d
}

// Silence cuts off a holder whose lock ends with its connection, and checks that the server frees
// the lock after the term, and not before. url has lock=session. ttl is longer than the silence
// that the server allows by default.
func Silence(t *testing.T, s *testenv.Server, url string, ttl time.Duration) {
	t.Helper()
	p := testenv.NewProxy(t, s.Addr)
	holder := OpenTTL(t, strings.Replace(url, s.Addr, p.Addr(), 1), ttl)
	other := OpenTTL(t, url, ttl)
	g := Acquire(t, holder, Request(t, ttl))
	end := g.Term.Sent.Add(g.Term.TTL)
	defer p.Cut(t)()
	req := Request(t, ttl)
	req.Key = g.Key
	for {
		_, err := other.Acquire(t.Context(), req)
		if now := time.Now(); err == nil && now.Before(end) {
			t.Errorf("a second holder %v before the end of the term", end.Sub(now))
		}
		switch {
		case err == nil:
			return
		case !errors.Is(err, backend.ErrNotAcquired):
			t.Fatalf("Acquire: %v", err)
		case time.Since(end) > patience:
			t.Fatalf("the lock of a silent holder is not free %v after its term", patience)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// UnlockIntoABlackHole cuts a holder off, and checks that its Unlock is uncertain for as long as it
// is repeated: the server keeps the lock until it notices the end of the connection. url has
// lock=session.
func UnlockIntoABlackHole(t *testing.T, s *testenv.Server, url string) {
	t.Helper()
	p := testenv.NewProxy(t, s.Addr)
	ctx := t.Context()
	c, err := dlock.Open(ctx, strings.Replace(url, s.Addr, p.Addr(), 1), dlock.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lease, err := c.Lock(ctx, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	heal := p.Cut(t)
	WantIs(t, "Unlock", lease.Unlock(ctx), dlock.ErrUncertain)
	heal()
	lease, err = c.Lock(ctx, t.Name())
	if err == nil {
		err = lease.Unlock(ctx)
	}
	if err != nil {
		t.Errorf("Lock and Unlock after the cut: %v", err)
	}
}

// Documented returns the statement that begins so in the document of the package under test.
func Documented(t *testing.T, begin string) string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "//\t"+begin)
	statement, _, ended := strings.Cut(after, "\n//\n")
	if !found || !ended {
		t.Fatalf("doc.go has no statement %s", begin)
	}
	return begin + strings.ReplaceAll(statement, "//\t", "")
}

// Ended acquires a lock, lets end end its connection on the server, and checks that the holder
// reports the loss at once. d must have terms of minutes.
func Ended(t *testing.T, d backend.Driver, end func(g *backend.Grant)) {
	t.Helper()
	lost := make(chan error, 1)
	req := Request(t, 10*time.Minute)
	req.Lost = func(err error) { lost <- err }
	g := Acquire(t, d, req)
	end(g)
	select {
	case err := <-lost:
		WantIs(t, "Lost", err, backend.ErrLost)
	case <-time.After(patience):
		t.Error("the loss is not reported")
	}
	_, err := d.Renew(context.Background(), g)
	WantIs(t, "Renew", err, backend.ErrLost)
	Release(t, d, Acquire(t, d, Request(t, time.Minute)))
}
