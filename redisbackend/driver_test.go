package redisbackend

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend/key"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// inapplicable are the cases that do not apply.
var inapplicable = conformance.Inapplicable(
	"LockedEntryCostsNoOtherLease", // the server locks no entry
	"NextRequestFollowsARelease",   // the driver promises no order of requests
	"SweepSparesHeldLocks",         // the driver keeps nothing of a free lock
)

func TestConformance(t *testing.T) {
	s := testenv.Alone(t, testenv.Redis)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return newServerHarness(t, s)
	}, inapplicable)
}

func TestConformanceValkey(t *testing.T) {
	s := testenv.Alone(t, testenv.Valkey)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return newServerHarness(t, s)
	}, inapplicable)
}

func BenchmarkConformance(b *testing.B) {
	conformance.Bench(b, func(t conformance.TB) conformance.Harness {
		s := testenv.NewRedis(t, "--appendonly", "no") // the benchmark does not measure the disk
		return testenv.Direct{URL: s.URL}
	})
}

// serverHarness is the harness of a single server.
type serverHarness struct {
	*testenv.Harness[conformance.TB]
	server *testenv.Server
}

func newServerHarness(t conformance.TB, s *testenv.Server) *serverHarness {
	t.Helper()
	return &serverHarness{testenv.NewHarness(t, s), s}
}

// Apart implements conformance.Apart.
func (h *serverHarness) Apart(t conformance.TB) conformance.Harness {
	t.Helper()
	return newServerHarness(t, h.server)
}

// Foreign implements conformance.Foreigner.
func (h *serverHarness) Foreign(t conformance.TB, name string) (intact func() bool) {
	t.Helper()
	return foreign(t, h.client(t), name)
}

// Kept implements conformance.Keeper.
func (h *serverHarness) Kept(t conformance.TB, prefix string) int {
	t.Helper()
	return kept(t, prefix, h.client(t))
}

// client returns a client that reaches the server directly.
func (h *serverHarness) client(t conformance.TB) *redis.Client {
	t.Helper()
	return directClient(t, h.server.Addr)
}

func directClient(t conformance.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Apart implements conformance.Apart.
func (h *groupHarness) Apart(t conformance.TB) conformance.Harness {
	t.Helper()
	return newGroupHarness(t, h.group)
}

// Delay implements conformance.Delayer.
func (h *groupHarness) Delay(t conformance.TB) (deliver func()) {
	t.Helper()
	return h.proxy.Delay(t)
}

// Foreign implements conformance.Foreigner.
func (h *groupHarness) Foreign(t conformance.TB, name string) (intact func() bool) {
	t.Helper()
	if len(h.group.Sentinels) > 0 {
		return foreign(t, directClient(t, h.group.SentinelMaster(t).Addr), name)
	}
	return foreign(t, directClient(t, h.group.Master(t, lockKey(name)).Addr), name)
}

// Kept implements conformance.Keeper. It counts the keys of the masters, because replicas have the
// same keys a moment later.
func (h *groupHarness) Kept(t conformance.TB, prefix string) int {
	t.Helper()
	var clients []*redis.Client
	for _, s := range h.group.Nodes {
		c := directClient(t, s.Addr)
		if role, err := c.Do(t.Context(), "role").Slice(); err == nil && role[0] == "master" {
			clients = append(clients, c)
		}
	}
	return kept(t, prefix, clients...)
}

// foreign implements conformance.Foreigner on the server that has the lock. The value has a type
// that no lock has.
func foreign(t conformance.TB, c *redis.Client, name string) (intact func() bool) {
	t.Helper()
	const value = "precious"
	lock, ctx := lockKey(name), context.WithoutCancel(t.Context())
	if err := c.RPush(ctx, lock, value).Err(); err != nil {
		t.Fatalf("RPUSH: %v", err)
	}
	t.Cleanup(func() { _ = c.Del(ctx, lock) })
	return func() bool {
		got, err := c.LRange(ctx, lock, 0, -1).Result()
		left := c.PTTL(ctx, lock).Val()
		return err == nil && len(got) == 1 && got[0] == value && left < 0
	}
}

// kept counts the keys of names with a prefix. It does not wait, because the driver keeps nothing
// of a free name.
func kept(t conformance.TB, prefix string, clients ...*redis.Client) int {
	t.Helper()
	n := 0
	for _, c := range clients {
		found, err := c.Keys(t.Context(), "dlock:*{"+key.Encode(prefix, maxKey)+"*").Result()
		if err != nil {
			t.Fatalf("KEYS: %v", err)
		}
		n += len(found)
	}
	return n
}
