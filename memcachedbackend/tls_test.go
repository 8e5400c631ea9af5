package memcachedbackend

import (
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
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
	for range 3 { // the driver does not consider the connection dead
		raw.Release(t, d.(*driver), raw.Acquire(t, d.(*driver), raw.Request(t, long)))
	}
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
