package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestSilentMasterCostsNoOtherRenewal checks that a silent master delays no renewal on the other
// masters. The driver has connections to it already, or needs new ones.
func TestSilentMasterCostsNoOtherRenewal(t *testing.T) {
	t.Parallel()
	g := testenv.RedisCluster(t)
	for _, connected := range []bool{true, false} {
		t.Run(fmt.Sprintf("connected=%v", connected), func(t *testing.T) {
			t.Parallel()
			silentName, otherName := namesOnTwoMasters(t, g)
			d, proxy := openWithProxy(t, g, silentName)
			grants := []*backend.Grant{
				acquireNamed(t, d, silentName), acquireNamed(t, d, otherName),
			}
			if connected {
				for _, r := range d.RenewAll(t.Context(), grants) {
					raw.WantIs(t, "a renewal", r.Err, nil)
				}
			}
			proxy.Cut(t)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			renewals := d.RenewAll(ctx, grants)
			if err := renewals[0].Err; err == nil || errors.Is(err, backend.ErrLost) {
				t.Errorf("the renewal on the silent master: %v, want an unknown outcome", err)
			}
			if renewals[1].Err != nil {
				t.Errorf("the renewal on the other master: %v", renewals[1].Err)
			}
			others := openURL(t, g.URL)
			for _, grant := range grants {
				raw.Release(t, others, grant)
			}
		})
	}
}

// TestSilentMasterDelaysNoOtherRelease checks that a silent master does not keep a ReleaseAll from
// freeing the locks on the other masters before its own release ends.
func TestSilentMasterDelaysNoOtherRelease(t *testing.T) {
	t.Parallel()
	g := testenv.RedisCluster(t)
	silentName, otherName := namesOnTwoMasters(t, g)
	d, proxy := openWithProxy(t, g, silentName)
	grants := []*backend.Grant{acquireNamed(t, d, silentName), acquireNamed(t, d, otherName)}
	proxy.Cut(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	errs := d.ReleaseAll(ctx, grants)
	// The connection or the context notices the same deadline first: the outcome is unknown.
	if err := errs[0]; err == nil || errors.Is(err, backend.ErrNotHeld) {
		t.Errorf("the release on the silent master: %v, want an unknown outcome", err)
	}
	raw.WantIs(t, "the release on the other master", errs[1], nil)
	others := openURL(t, g.URL)
	raw.Release(t, others, acquireNamed(t, others, otherName))
	raw.Release(t, others, grants[0])
}

// openWithProxy opens a driver with a proxy before the master of a name. The driver is given this
// master alone, and must load the other masters from it.
func openWithProxy(
	t *testing.T, g *testenv.RedisGroup, name string,
) (d *driver, proxy *testenv.Proxy) {
	t.Helper()
	behind := g.Master(t, lockKey(name)).Addr
	proxy = testenv.NewProxy(t, behind)
	u, err := url.Parse(g.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host, u.RawQuery = behind, "timeout=1m"
	d = openThrough(t, u.String(),
		func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == behind {
				addr = proxy.Addr()
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		})
	t.Cleanup(func() { _ = d.Close() })
	return d, proxy
}

// namesOnTwoMasters returns two names whose locks are on different masters.
func namesOnTwoMasters(t *testing.T, g *testenv.RedisGroup) (one, other string) {
	t.Helper()
	one = t.Name()
	for i := range 100 {
		other = fmt.Sprint(one, "/", i)
		if g.Master(t, lockKey(other)) != g.Master(t, lockKey(one)) {
			return one, other
		}
	}
	t.Fatal("all names are on one master")
	return "", ""
}

func acquireNamed(t *testing.T, d *driver, name string) *backend.Grant {
	t.Helper()
	req := raw.Request(t, longTerm)
	req.Key = name
	return raw.Acquire(t, d, req)
}
