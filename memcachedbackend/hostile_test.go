package memcachedbackend

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestHostileServer checks that a call takes little memory, and ends by itself or with its context,
// whatever server answers instead of memcached. The test measures the memory of the process, so it
// does not run in parallel.
func TestHostileServer(t *testing.T) {
	const never = time.Hour
	x, empty := strings.Repeat("x", 1<<16), strings.Repeat("VALUE k 0 0 1\r\n\r\n", 1000)
	for name, c := range map[string]struct {
		timeout time.Duration // timeout of the context
		attack  func(w io.Writer)
	}{
		"a value of 1 GB":           {time.Second, endless("VALUE k 0 1000000000 1\r\n", x)},
		"a value of 4 GB":           {never, endless("VALUE k 0 4294967295 1\r\n", "x")},
		"a value beyond integers":   {never, endless("VALUE k 0 18446744073709551616 1\r\n", x)},
		"a value that does not end": {never, endless("VALUE k 0 2 1\r\n", x)},
		"values without end":        {never, endless("", empty)},
		"values of many names":      {never, names},
		"an endless line":           {never, endless("VALUE ", x)},
		"empty lines":               {never, endless("", "\r\n")},
		"nothing":                   {time.Second, func(io.Writer) {}},
		"one byte now and then":     {time.Second, trickle},
	} {
		t.Run(name, func(t *testing.T) {
			addr := listen(t, func(conn net.Conn) {
				if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
					c.attack(conn)
				}
				_, _ = io.Copy(io.Discard, conn) // until the client disconnects
			})
			opts := Options{Timeout: never}
			d := newDriver([]string{addr}, opts.withDefaults())
			g := &backend.Grant{Request: *raw.Request(t, long)}
			frugal(t, "Renew", c.timeout, func(ctx context.Context) error {
				_, err := d.Renew(ctx, g)
				return err
			})
			frugal(t, "RenewAll", c.timeout, func(ctx context.Context) error {
				return d.RenewAll(ctx, []*backend.Grant{g, g})[0].Err
			})
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// endless returns an attack that writes until the connection is closed.
func endless(first, then string) func(io.Writer) {
	return func(w io.Writer) {
		_, err := io.WriteString(w, first)
		for b := []byte(then); err == nil; {
			_, err = w.Write(b)
		}
	}
}

// names writes empty values of different names.
func names(w io.Writer) {
	buf := bufio.NewWriter(w)
	for i, err := 0, error(nil); err == nil; i++ {
		_, err = fmt.Fprintf(buf, "VALUE k%d 0 0 1\r\n\r\n", i)
	}
}

// trickle writes ten bytes a second.
func trickle(w io.Writer) {
	for _, err := io.WriteString(w, "V"); err == nil; _, err = io.WriteString(w, "x") {
		time.Sleep(100 * time.Millisecond)
	}
}

// frugal makes a call that must fail and must allocate less than 64 MB.
func frugal(t *testing.T, name string, timeout time.Duration, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	within(t, func() {
		if err := call(ctx); err == nil {
			t.Errorf("%s succeeded", name)
		}
	})
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("%s allocated %d MB", name, used>>20)
	}
}

// TestHugeForeignValue checks that a value larger than any lock is a value of another program. It
// does not affect other leases.
func TestHugeForeignValue(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	d, c := openURL(t, s.URL), admin(t, s)
	other, broken := raw.Request(t, long), raw.Request(t, long)
	other.Key, broken.Key = t.Name()+"-other", t.Name()+"-broken"
	gs := []*backend.Grant{raw.Acquire(t, d, broken), raw.Acquire(t, d, other)}
	huge := &memcache.Item{Key: newKeys(broken.Key).lock, Value: make([]byte, 1000<<10)}
	if err := c.Set(huge); err != nil {
		t.Fatal(err)
	}
	next := *broken
	next.Owner = raw.NewOwner()
	_, err := d.Acquire(t.Context(), &next)
	raw.WantIs(t, "Acquire", err, backend.ErrConflict)
	_, err = d.Inspect(t.Context(), broken.Key)
	raw.WantIs(t, "Inspect", err, backend.ErrConflict)
	oneBatch(d)
	answers := d.RenewAll(t.Context(), gs)
	raw.WantIs(t, "renewal of the overwritten lock", answers[0].Err, backend.ErrLost)
	raw.WantIs(t, "renewal of the other lock", answers[1].Err, nil)
	raw.WantIs(t, "Release", d.Release(t.Context(), gs[0]), backend.ErrNotHeld)
	raw.Release(t, d, gs[1])
	if n := len(d.servers[0].pool.idle); n != 1 {
		t.Errorf("%d connections are idle after calls one by one, want 1", n)
	}
}

// TestLinesWithoutCRLF has a server that answers the request for a fence with lines that no
// memcached sends.
func TestLinesWithoutCRLF(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"\n", "CLIENT_ERROR \n", "7\n"} {
		addr := listen(t, func(conn net.Conn) {
			r := bufio.NewReader(conn)
			for range 2 { // add and its value
				if _, err := r.ReadString('\n'); err != nil {
					return
				}
			}
			_, _ = io.WriteString(conn, "STORED\r\n")
			if _, err := r.ReadString('\n'); err == nil {
				_, _ = io.WriteString(conn, line)
			}
			_, _ = io.Copy(io.Discard, conn)
		})
		opts := Options{Timeout: time.Minute}
		d := newDriver([]string{addr}, opts.withDefaults())
		if _, err := d.Acquire(t.Context(), raw.Request(t, long)); err == nil {
			t.Errorf("Acquire after the line %q: nil", line)
		}
		_ = d.Close()
	}
}

// TestClosedConnectionSendsNothing checks Capabilities.Late.
func TestClosedConnectionSendsNothing(t *testing.T) {
	t.Parallel()
	raw.Discards(t, true, func(addr string) (net.Conn, error) {
		opts := (&Options{}).withDefaults()
		_, open, err := connect(t.Context(), "tcp", addr, &opts)
		return open, err
	})
}
