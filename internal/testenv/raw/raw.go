// Package raw is what the drivers' own tests do with a driver without the core above it.
package raw

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
)

// NewOwner returns an owner that nobody has used.
func NewOwner() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return hex.EncodeToString(b[:])
}

// Request asks to hold the lock that has the test's name, and would wait for it.
func Request(tb testenv.TB, ttl time.Duration) *backend.Request {
	tb.Helper()
	return &backend.Request{
		Key: tb.Name(), Owner: NewOwner(), TTL: ttl, Mode: backend.Exclusive, Queue: true, Meta: "test@host:1",
	}
}

// Acquire is an attempt that must succeed.
func Acquire(tb testenv.TB, d backend.Driver, req *backend.Request) *backend.Grant {
	tb.Helper()
	g, err := d.Acquire(tb.Context(), req)
	if err != nil {
		tb.Fatalf("Acquire: %v", err)
	}
	return g
}

// Release must find something to release. It works at the end of a test, too.
func Release(tb testenv.TB, d backend.Driver, g *backend.Grant) {
	tb.Helper()
	if err := d.Release(context.WithoutCancel(tb.Context()), g); err != nil {
		tb.Errorf("Release: %v", err)
	}
}

// Busy is an attempt that must be refused since somebody holds the lock.
func Busy(tb testenv.TB, d backend.Driver, req *backend.Request) *backend.Busy {
	tb.Helper()
	_, err := d.Acquire(tb.Context(), req)
	b, ok := errors.AsType[*backend.Busy](err)
	if !ok {
		tb.Fatalf("Acquire: %v, want *Busy", err)
	}
	return b
}

// WantIs fails the test unless err is want.
func WantIs(tb testenv.TB, what string, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("%s: %v, want %v", what, err, want)
	}
}
