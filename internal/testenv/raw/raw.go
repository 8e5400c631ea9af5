// Package raw has functions for the drivers' own tests, which use a driver without the core.
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

// NewOwner returns a new random owner.
func NewOwner() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, according to its documentation
	return hex.EncodeToString(b[:])
}

// Request returns a request for the lock with the test's name. The request would wait for the lock.
func Request(tb testenv.TB, ttl time.Duration) *backend.Request {
	tb.Helper()
	return &backend.Request{
		Key: tb.Name(), Owner: NewOwner(), TTL: ttl,
		Mode: backend.Exclusive, Queue: true, Meta: "test@host:1",
	}
}

// Acquire makes an attempt that must succeed.
func Acquire(tb testenv.TB, d backend.Driver, req *backend.Request) *backend.Grant {
	tb.Helper()
	g, err := d.Acquire(tb.Context(), req)
	if err != nil {
		tb.Fatalf("Acquire: %v", err)
	}
	return g
}

// Release releases g, which must exist. It works at the end of a test, too.
func Release(tb testenv.TB, d backend.Driver, g *backend.Grant) {
	tb.Helper()
	if err := d.Release(context.WithoutCancel(tb.Context()), g); err != nil {
		tb.Errorf("Release: %v", err)
	}
}

// Busy makes an attempt that must be refused because the lock is held.
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
