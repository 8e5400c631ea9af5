package membackend_test

import (
	"context"
	"iter"
	"runtime"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/membackend"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, newHarness)
}

func BenchmarkConformance(b *testing.B) {
	conformance.Bench(b, func(conformance.TB) conformance.Harness { return plain{} })
}

func newHarness(t conformance.TB) conformance.Harness {
	testenv.Announce(t, "mem", "process", "mem "+runtime.Version())
	return &harness{t: t, network: newNetwork()}
}

// harness puts between a case and the space a network that can be broken.
type harness struct {
	*network
	t conformance.TB
}

func (h *harness) Driver(context.Context) (backend.Driver, error) {
	return &remote{local: confined{membackend.New(nil).(local), h}, network: h.network}, nil
}

func (h *harness) Close() {}

// Prefix is that of all names, as the space is that of all tests.
func (h *harness) Prefix() string { return "conformance/" }

// confined is a driver that sees to it that a case touches nothing beside its prefix.
type confined struct {
	local
	harness *harness
}

func (c confined) check(key string) {
	if prefix := c.harness.Prefix(); !strings.HasPrefix(key, prefix) {
		c.harness.t.Errorf("key %q is not beneath %q", key, prefix)
	}
}

func (c confined) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	c.check(req.Key)
	return c.local.Acquire(ctx, req)
}

func (c confined) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	c.check(g.Key)
	return c.local.Renew(ctx, g)
}

func (c confined) Release(ctx context.Context, g *backend.Grant) error {
	c.check(g.Key)
	return c.local.Release(ctx, g)
}

func (c confined) Inspect(ctx context.Context, key string) (*backend.Info, error) {
	c.check(key)
	return c.local.Inspect(ctx, key)
}

func (c confined) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	c.check(prefix)
	return c.local.List(ctx, prefix)
}

func (c confined) Break(ctx context.Context, key, owner string) error {
	c.check(key)
	return c.local.Break(ctx, key, owner)
}

// plain is a harness without a network.
type plain struct{}

func (plain) Driver(context.Context) (backend.Driver, error) { return membackend.New(nil), nil }
func (plain) Close()                                         {}
