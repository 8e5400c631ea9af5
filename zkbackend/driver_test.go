package zkbackend_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/failover"
	_ "github.com/dlock-go/dlock/zkbackend"
)

// root is the parent node of all locks.
const root = "/dlock"

func TestMain(m *testing.M) {
	if url := os.Getenv(holderVariable); url != "" {
		holdForEver(url)
	}
	testenv.Main(m)
}

// inapplicable are the cases that do not apply. Grants live with their session, so no request
// carries a term, and no lock has a lock-delay. The server locks no entry, and the driver keeps
// nothing of a free lock that needs a sweep.
var inapplicable = conformance.Inapplicable(
	"BreakDoesNotWaitForALockDelay",
	"EachRefusalHasTheRemainingTime",
	"ExpiredLockGoesToTheQueue",
	"LateGrantAfterARefusalIsUndone",
	"LateRenewalShortensNoTerm",
	"LateRepeatedAcquireShortensNoTerm",
	"LateRequestsReviveNoPermit",
	"LeavingTheQueueOfAFreeLockWakesTheNext",
	"LockedEntryCostsNoOtherLease",
	"PermitsExpireOneByOne",
	"ReadersExpireOneByOne",
	"SweepSparesHeldLocks",
	"TermsAreNotFloored",
)

func TestConformance(t *testing.T) {
	conformance.Run(t, harnessOf(testenv.Alone(t, testenv.ZooKeeper)), inapplicable)
}

func TestConformanceEnsemble(t *testing.T) {
	conformance.Run(t, ensembleHarnessOf(testenv.Alone(t, testenv.ZooKeeperEnsemble)), inapplicable)
}

func TestFailover(t *testing.T) {
	t.Parallel()
	failover.Suite{
		Ensemble: testenv.Alone(t, testenv.ZooKeeperEnsemble),
		Query:    "?ttl=12s",
		TTL:      12 * time.Second,
		LongTTL:  36 * time.Second,
	}.Run(t)
}

func BenchmarkConformance(b *testing.B) {
	conformance.Bench(b, func(t conformance.TB) conformance.Harness {
		return harnessOf(testenv.ZooKeeper(t))(t)
	})
}

// harness is the harness of a server or of an ensemble.
type harness struct {
	*testenv.Harness[conformance.TB]
	direct string // URL that bypasses the faulty network
	apart  conformance.HarnessMaker
}

func harnessOf(s *testenv.Server) (mk conformance.HarnessMaker) {
	mk = func(t conformance.TB) conformance.Harness {
		return harness{testenv.NewHarness(t, s), s.URL, mk}
	}
	return mk
}

func ensembleHarnessOf(e *testenv.Ensemble) (mk conformance.HarnessMaker) {
	mk = func(t conformance.TB) conformance.Harness {
		e.Await(t) // an earlier case may have stopped it
		return harness{testenv.NewEnsembleHarness(t, e), e.URL, mk}
	}
	return mk
}

// Apart implements conformance.Apart.
func (h harness) Apart(t conformance.TB) conformance.Harness { return h.apart(t) }

// admin connects to the server without dlock.
func (h harness) admin(t conformance.TB) *zk.Conn {
	u, err := backend.ParseURL(h.direct)
	if err != nil {
		t.Fatalf("%v", err)
	}
	conn, _, err := zk.Connect(u.Hosts, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// pathOf returns the path of the node of a lock.
func pathOf(name string) string { return root + "/" + key.Encode(name, 3*key.MaxName) }

// Foreign implements conformance.Foreigner.
func (h harness) Foreign(t conformance.TB, name string) (intact func() bool) {
	conn, path, precious := h.admin(t), pathOf(name), "precious"
	_, err := conn.Create(path, []byte(precious), zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatalf("create %s: %v", path, err)
	}
	t.Cleanup(func() {
		if err := conn.Delete(path, -1); err != nil {
			t.Errorf("delete %s: %v", path, err)
		}
	})
	return func() bool {
		data, stat, err := conn.Get(path)
		if err != nil {
			t.Errorf("get %s: %v", path, err)
			return false
		}
		return string(data) == precious && stat.Version == 0 && stat.Cversion == 0
	}
}

// Kept implements conformance.Keeper. It waits, because the servers of the tests remove empty
// containers every second.
func (h harness) Kept(t conformance.TB, prefix string) int {
	const retention = 30 * time.Second
	conn, prefix := h.admin(t), strings.TrimPrefix(pathOf(prefix), root+"/")
	for end := time.Now().Add(retention); ; time.Sleep(100 * time.Millisecond) {
		names, _, err := conn.Children(root)
		if err != nil {
			t.Fatalf("list %s: %v", root, err)
		}
		names = slices.DeleteFunc(names, func(name string) bool {
			return !strings.HasPrefix(name, prefix)
		})
		if len(names) == 0 || time.Now().After(end) {
			return len(names)
		}
	}
}
