package dlock_test

import (
	"context"
	"testing"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/membackend"
)

// BenchmarkPair is one uncontended Lock and Unlock: what the core itself costs.
func BenchmarkPair(b *testing.B) {
	client, err := dlock.Open(b.Context(), "mem:pair")
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	m, err := client.Mutex("x")
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		lease, err := m.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Unlock(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
