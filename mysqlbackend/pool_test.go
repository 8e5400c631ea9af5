package mysqlbackend

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestReleasesDelayNoRenewal renews locks while other requests have all connections that releases
// may have, for example because their rows are locked.
func TestReleasesDelayNoRenewal(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.MySQL(t).URL)
	var grants []*backend.Grant
	for _, suffix := range []string{"a", "b"} {
		req := raw.Request(t, time.Minute)
		req.Key += suffix
		grants = append(grants, acquire(t, d, req))
	}
	for _, p := range []*pool{d.pools.main, d.pools.control} {
		for range cap(p.slots) {
			p.slots <- struct{}{}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for n := 1; n <= len(grants); n++ {
		for _, r := range d.RenewAll(ctx, grants[:n]) {
			if r.Err != nil {
				t.Errorf("RenewAll of %d locks: %v", n, r.Err)
			}
		}
	}
	for _, p := range []*pool{d.pools.main, d.pools.control} {
		for range cap(p.slots) {
			<-p.slots
		}
	}
	for _, g := range grants {
		raw.Release(t, d, g)
	}
}
