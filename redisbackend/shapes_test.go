package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// withoutURL are further cases that do not apply. The drivers of a groupHarness use the harness's
// own dialer and are not opened by a URL.
var withoutURL = conformance.Inapplicable(
	"OpeningAClosedPortIsUnavailable", "SecretsStayOutOfErrors",
)

func TestConformanceCluster(t *testing.T) {
	g := testenv.Alone(t, testenv.RedisCluster)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return newGroupHarness(t, g)
	}, inapplicable, withoutURL)
}

func TestConformanceSentinel(t *testing.T) {
	g := testenv.Alone(t, testenv.RedisSentinel)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return newGroupHarness(t, g)
	}, inapplicable, withoutURL)
}

// groupHarness reaches several servers through a network that can be broken. The servers send each
// other's addresses to clients. So the driver's dialer replaces each address by the address of a
// proxy.
type groupHarness struct {
	group *testenv.RedisGroup
	proxy *testenv.Proxy
	ways  map[string]string // from the address of a server to the address of its proxy
}

func newGroupHarness(tb testenv.TB, g *testenv.RedisGroup) *groupHarness {
	tb.Helper()
	addrs := g.Addrs(tb)
	h := &groupHarness{
		group: g,
		proxy: testenv.NewProxy(tb, addrs...),
		ways:  make(map[string]string),
	}
	for i, way := range h.proxy.Addrs() {
		h.ways[addrs[i]] = way
	}
	return h
}

// Driver implements conformance.Harness.
func (h *groupHarness) Driver(ctx context.Context) (backend.Driver, error) {
	return h.open(ctx, h.group.URL)
}

func (h *groupHarness) open(ctx context.Context, raw string) (backend.Driver, error) {
	u, err := backend.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	return t.open(ctx, func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, h.ways[addr])
	})
}

// Close implements conformance.Harness.
func (h *groupHarness) Close() { h.proxy.Close() }

// Cut implements conformance.Faults. It cuts off all servers.
func (h *groupHarness) Cut(tb conformance.TB) (heal func()) { tb.Helper(); return h.proxy.Cut(tb) }

// DropReply implements conformance.Faults. It counts the replies of all servers together.
func (h *groupHarness) DropReply(tb conformance.TB, nth int) {
	tb.Helper()
	h.proxy.DropReply(tb, nth)
}

// Pause implements conformance.Faults. It stops all servers.
func (h *groupHarness) Pause(tb conformance.TB) (resume func()) {
	tb.Helper()
	return h.group.Pause(tb)
}

// Restart implements conformance.Faults. It kills all servers and starts them again.
func (h *groupHarness) Restart(tb conformance.TB) { tb.Helper(); h.group.Restart(tb) }

// TestKeysOfALockAreInOneSlot checks that the keys of a lock are in one slot for any name. They are
// also equal to the keys on a single server.
func TestKeysOfALockAreInOneSlot(t *testing.T) {
	t.Parallel()
	c := admin(t, testenv.RedisCluster(t).Nodes[0])
	for _, name := range []string{
		"a", "{", "}", "{}", "}{", "{a}b", "a{b}c", "{{", "}}", "a b", "é",
		strings.Repeat("x", 512),
	} {
		k, alone := newClusterKeys(name), newKeys(name)
		if k.lock != alone.lock || k.queue != alone.queue || k.waiters != alone.waiters {
			t.Errorf("%q: the keys %q differ from those on a single server, %q", name, k, alone)
		}
		slot := do(t, c, "cluster", "keyslot", k.lock)
		for _, key := range []string{k.fence, k.queue, k.waiters} {
			if its := do(t, c, "cluster", "keyslot", key); its != slot {
				t.Errorf("%q: slot %v, the slot of the lock is %v", key, its, slot)
			}
		}
	}
}

func TestListOverAllMasters(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.RedisCluster(t).URL)
	var grants []*backend.Grant
	for i := range 300 {
		req := raw.Request(t, longTerm)
		req.Key = fmt.Sprint(t.Name(), "/", i)
		grants = append(grants, raw.Acquire(t, d, req))
	}
	seen := make(map[string]bool)
	for info, err := range d.List(t.Context(), t.Name()+"/") {
		if err != nil {
			t.Fatal(err)
		}
		seen[info.Key] = true
	}
	if len(seen) != len(grants) {
		t.Errorf("%d of %d locks are listed", len(seen), len(grants))
	}
	for i, renewal := range d.RenewAll(t.Context(), grants) {
		if renewal.Err != nil {
			t.Errorf("renewal %d: %v", i, renewal.Err)
		}
		raw.Release(t, d, grants[i])
	}
}

func TestOpenOfTheWrongShape(t *testing.T) {
	t.Parallel()
	plain, c := testenv.NewRedis(t, "--requirepass", "right"), testenv.RedisCluster(t)
	guarded := testenv.NewRedisSentinel(t,
		"user default on nopass ~* &* +@all -sentinel|get-master-addr-by-name",
		"user keeper on >gate ~* &* +@all")
	sentinels := guarded.Sentinels[0].Addr + "," + guarded.Sentinels[1].Addr
	const gate = "?sentinel-user=keeper&sentinel-password=gate"
	for _, tt := range []struct {
		url  string
		want string
		is   error
	}{
		{"redis+cluster://:right@" + plain.Addr, "not a node of a cluster", backend.ErrUnsupported},
		{"redis+cluster://:wrong@" + plain.Addr, "WRONGPASS", backend.ErrUnavailable},
		{"redis+cluster://:s3cret@127.0.0.1:1,127.0.0.1:2", "refused", backend.ErrUnavailable},
		{"redis://" + c.Nodes[0].Addr, "redis+cluster", backend.ErrUnsupported},
		{
			"redis+sentinel://:right@" + plain.Addr + "/mymaster",
			"unknown command", backend.ErrUnavailable,
		},
		{
			"redis+sentinel://" + c.Nodes[0].Addr + "/mymaster",
			"unknown command", backend.ErrUnavailable,
		},
		{"redis+sentinel://" + sentinels + "/mymaster", "NOPERM", backend.ErrUnavailable},
		{
			"redis+sentinel://" + sentinels + "/mymaster" +
				"?sentinel-user=keeper&sentinel-password=s3cret",
			"WRONGPASS", backend.ErrUnavailable,
		},
		{
			"redis+sentinel://" + sentinels + "/other" + gate,
			"No such master", backend.ErrUnavailable,
		},
		{
			"redis+sentinel://:s3cret@127.0.0.1:1,127.0.0.1:2/mymaster",
			"no sentinel names the master", backend.ErrUnavailable,
		},
		{"redis+sentinel://:s3cret@" + sentinels + "/mymaster" + gate, "", nil},
		{"redis+sentinel://" + sentinels + "/mymaster/3" + gate, "", nil},
		{"rediss+cluster://" + c.Nodes[0].Addr + "?timeout=1s", "TLS", backend.ErrUnavailable},
		{
			"rediss+sentinel://" + sentinels + "/mymaster?timeout=1s&sentinel-password=gate",
			"TLS", backend.ErrUnavailable,
		},
	} {
		start := time.Now()
		d, err := testenv.Open(t.Context(), tt.url)
		if took := time.Since(start); took > patience {
			t.Errorf("%s: took %v", tt.url, took)
		}
		if err == nil {
			_ = d.Close()
		}
		text := fmt.Sprint(err)
		if !errors.Is(err, tt.is) || !strings.Contains(text, tt.want) {
			t.Errorf("%s: %v, want %v, %q", tt.url, err, tt.is, tt.want)
		}
		for _, secret := range []string{"s3cret", "right", "wrong", "gate"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: the error %q contains a credential", tt.url, text)
			}
		}
	}
}
