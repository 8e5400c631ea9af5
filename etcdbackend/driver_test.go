package etcdbackend_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/etcdbackend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/failover"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// inapplicable are the cases that do not apply.
var inapplicable = conformance.Inapplicable(
	"CountersCount",                  // the server counts no client's commands
	"EachRefusalHasTheRemainingTime", // a lock is held as long as its lease is kept alive
	"LockedEntryCostsNoOtherLease",   // the server locks no entry
	"NextRequestFollowsARelease",     // the driver promises no order of requests
	"SweepSparesHeldLocks",           // the driver keeps nothing of a free lock
)

func TestConformance(t *testing.T) {
	s := testenv.Alone(t, testenv.Etcd)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return harness{testenv.NewHarness(t, s)}
	}, inapplicable)
}

func TestConformanceEnsemble(t *testing.T) {
	e := testenv.Alone(t, testenv.EtcdEnsemble)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return newEnsembleHarness(t, e)
	}, inapplicable)
}

func TestFailover(t *testing.T) {
	t.Parallel()
	e := testenv.Alone(t, testenv.EtcdEnsemble)
	failover.Suite{
		Ensemble: e,
		Query:    "?ttl=10s",
		TTL:      10 * time.Second,
		LongTTL:  3 * time.Minute,
	}.Run(t)
	t.Run("SilentMemberIsLeftOut", func(t *testing.T) { silentMemberIsLeftOut(t, e) })
}

// silentMemberIsLeftOut checks that a member that is stopped costs few requests, although its
// connection stays open. Without the policy each third request meets it.
func silentMemberIsLeftOut(t *testing.T, e *testenv.Ensemble) {
	t.Helper()
	e.Await(t)
	var addrs []string
	for _, member := range e.Members {
		addrs = append(addrs, member.Addr)
	}
	d, err := testenv.Open(t.Context(), e.URLOf(addrs...)+"?timeout=5s")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const pairs = 9 // a third of their requests is more than the limit
	locks := 0
	lockAll := func() (unanswered int) {
		for range pairs {
			locks++ // a request without an answer may have been executed
			req := raw.Request(t, time.Minute)
			req.Key += fmt.Sprint("/", locks)
			g, err := d.Acquire(t.Context(), req)
			if err == nil {
				err = d.Release(t.Context(), g)
			}
			if err != nil {
				t.Log(err)
				unanswered++
			}
		}
		return unanswered
	}
	if n := lockAll(); n > 0 {
		t.Fatalf("%d requests failed before the stop", n)
	}
	defer e.Follower(t).Pause(t)()
	if n := lockAll(); n > 2 {
		t.Errorf("%d of %d pairs had no answer, because one member of three is stopped", n, pairs)
	}
}

func BenchmarkConformance(b *testing.B) {
	url := testenv.NewEtcd(b, "--unsafe-no-fsync=false").URL
	conformance.Bench(b, func(conformance.TB) conformance.Harness {
		return testenv.Direct{URL: url}
	})
}

// harness is also a conformance.Foreigner and a conformance.Keeper.
type harness struct {
	*testenv.Harness[conformance.TB]
}

func newEnsembleHarness(t conformance.TB, e *testenv.Ensemble) harness {
	t.Helper()
	e.Await(t) // an earlier case may have stopped it
	return harness{testenv.NewEnsembleHarness(t, e)}
}

// client returns a client of the server, which is closed at the end of the test.
func (h harness) client(t conformance.TB) *clientv3.Client {
	t.Helper()
	u, err := backend.ParseURL(h.URL())
	if err != nil {
		t.Fatalf("URL: %v", err)
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: u.HostsWithPort("2379"), Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatalf("client: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// encoded returns a name, or a prefix of one, as it appears in a key.
func encoded(name string) string { return key.Encode(name, 3*key.MaxName) }

// Foreign implements conformance.Foreigner. It puts the value under the prefix of the acquisitions'
// keys.
func (h harness) Foreign(t conformance.TB, name string) (intact func() bool) {
	t.Helper()
	const value = "precious"
	c, ctx := h.client(t), context.WithoutCancel(t.Context())
	k := etcdbackend.DefaultRoot + "/lock/" + encoded(name) + "/stranger"
	put, err := c.Put(ctx, k, value)
	if err != nil {
		t.Fatalf("Put: %v", err)
	}
	t.Cleanup(func() { _, _ = c.Delete(ctx, k) })
	return func() bool {
		resp, err := c.Get(ctx, k)
		if err != nil {
			t.Errorf("Get: %v", err)
			return false
		}
		return len(resp.Kvs) == 1 && string(resp.Kvs[0].Value) == value &&
			resp.Kvs[0].ModRevision == put.Header.Revision
	}
}

// Kept implements conformance.Keeper. It counts keys at once, because the driver keeps no key of a
// free lock.
func (h harness) Kept(t conformance.TB, prefix string) (n int) {
	t.Helper()
	resp, err := h.client(t).Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Errorf("Get: %v", err)
		return -1
	}
	for _, kv := range resp.Kvs {
		if strings.Contains(string(kv.Key), encoded(prefix)) {
			n++
		}
	}
	return n
}
