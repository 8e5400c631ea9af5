package memcachedbackend_test

import (
	"bufio"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/memcachedbackend"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// inapplicable are the cases that do not apply: the server wakes no waiter, has no queue, lists no
// keys and locks no entry.
var inapplicable = conformance.Inapplicable(
	"BrokenLockGoesToTheQueue",
	"CancelledWaitsLeaveNoMemory",
	"EachRefusalHasTheRemainingTime",
	"ExpiredLockGoesToTheQueue",
	"FairTryDoesNotOvertake",
	"FairWaitersAreServedInOrder",
	"LeavingTheQueueOfAFreeLockWakesTheNext",
	"ListTakesPrefixesLiterally",
	"LockedEntryCostsNoOtherLease",
	"NextRequestFollowsARelease",
	"OneHolderAtATimeFair",
	"RefreshKeepsThePlace",
	"ReleaseBeforeWaitIsNotMissed",
	"ReleaseDuringWaitIsNotMissed",
	"ShortTermShortensNoOtherEntry",
	"WaitEndsWithItsContext",
	"WaitersOfOneConnectionMissNoRelease",
)

func TestConformance(t *testing.T) {
	s := testenv.Alone(t, testenv.Memcached)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return &harness{testenv.NewHarness(t, s), s}
	}, inapplicable)
}

// harness implements the optional interfaces that need the server's own commands.
type harness struct {
	*testenv.Harness[conformance.TB]
	server *testenv.Server
}

// Foreign implements conformance.Foreigner.
func (h *harness) Foreign(t conformance.TB, key string) (intact func() bool) {
	t.Helper()
	const value = "a value of another program"
	c, lock := memcache.New(h.server.Addr), memcachedbackend.LockKey(key)
	c.Timeout = time.Minute
	if err := c.Set(&memcache.Item{Key: lock, Value: []byte(value)}); err != nil {
		t.Fatalf("set: %v", err)
	}
	t.Cleanup(func() {
		_ = c.Delete(lock)
		_ = c.Close()
	})
	return func() bool {
		item, err := c.Get(lock)
		return err == nil && string(item.Value) == value
	}
}

// Kept implements conformance.Keeper. It counts the keys without an expiry. A counter expires a day
// after its seed, and no test can wait so long.
func (h *harness) Kept(t conformance.TB, prefix string) (n int) {
	t.Helper()
	for key, endless := range h.dump(t) {
		lock, counter := memcachedbackend.LockKey(prefix), memcachedbackend.CounterKey(prefix)
		if endless && (strings.HasPrefix(key, lock) || strings.HasPrefix(key, counter)) {
			n++
		}
	}
	return n
}

// dump returns the keys of the server, with true for each key without an expiry.
func (h *harness) dump(t conformance.TB) map[string]bool {
	t.Helper()
	conn, err := net.DialTimeout("tcp", h.server.Addr, time.Minute)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write([]byte("lru_crawler metadump all\r\n")); err != nil {
		t.Fatalf("%v", err)
	}
	keys := make(map[string]bool)
	lines := bufio.NewScanner(conn)
	for lines.Scan() && lines.Text() != "END" { // key=dlock%3Aname exp=-1 la=…
		switch fields := strings.Fields(lines.Text()); {
		case strings.HasPrefix(lines.Text(), "BUSY"): // another dump is running
			return h.dump(t)
		case len(fields) > 1 && strings.HasPrefix(fields[0], "key="):
			key, _ := url.PathUnescape(fields[0][len("key="):])
			keys[key] = fields[1] == "exp=-1"
		case lines.Text() != "OK":
			t.Fatalf("metadump: %q", lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("metadump: %v", err)
	}
	return keys
}

func BenchmarkConformance(b *testing.B) {
	conformance.Bench(b, func(t conformance.TB) conformance.Harness {
		return testenv.Direct{URL: testenv.Memcached(t).URL}
	})
}
