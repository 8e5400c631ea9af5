//go:build darwin || dragonfly || freebsd || linux

package filebackend_test

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/filebackend"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestConformance(t *testing.T) { conformance.Run(t, newHarness, inapplicable) }

// inapplicable are the cases that do not apply. No network delays a request, and a URL has neither
// a host nor a password. A lock has no term, no lock-delay and no queue, and its file stays.
var inapplicable = conformance.Inapplicable(
	"BreakDoesNotWaitForALockDelay",
	"BrokenLockGoesToTheQueue",
	"CountersCount",
	"EachRefusalHasTheRemainingTime",
	"ExpiredLockGoesToTheQueue",
	"FairTryDoesNotOvertake",
	"FairWaitersAreServedInOrder",
	"FloorIsNoLock",
	"FreeNamesAreForgotten",
	"LateAcquireIsFoundByItsOwner",
	"LateAcquireIsNoGhost",
	"LateGrantAfterARefusalIsUndone",
	"LateReleaseFreesNoOtherGrant",
	"LateRenewalRevivesNoGrant",
	"LateRenewalShortensNoTerm",
	"LateRepeatedAcquireShortensNoTerm",
	"LateRequestsReviveNoPermit",
	"LeavingTheQueueOfAFreeLockWakesTheNext",
	"LockedEntryCostsNoOtherLease",
	"NextRequestFollowsARelease",
	"OneHolderAtATimeFair",
	"OpeningAClosedPortIsUnavailable",
	"PermitsAreServedInOrder",
	"PermitsExpireOneByOne",
	"ReadersAndWritersAreServedInOrder",
	"ReadersExpireOneByOne",
	"RefreshKeepsThePlace",
	"SecretsStayOutOfErrors",
	"ShortTermShortensNoOtherEntry",
	"TermsAreNotFloored",
)

// TestLongestNames acquires names with the longest prefix, name and meta that the client accepts.
func TestLongestNames(t *testing.T) {
	t.Parallel()
	url := "file:" + t.TempDir() + "?prefix=" + strings.Repeat("p", 512)
	name, meta := strings.Repeat("n", 512), strings.Repeat("m", 512)
	client, err := dlock.Open(t.Context(), url, dlock.WithMeta(meta))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	lock, err := client.RWMutex(name)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := lock.TryLock(t.Context())
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	info, err := client.Inspect(t.Context(), name)
	if err != nil || len(info.Holders) != 1 || info.Holders[0].Meta != meta {
		t.Errorf("Inspect: %+v, %v; want the holder with its meta", info, err)
	}
	if err := lease.Downgrade(t.Context()); err != nil {
		t.Errorf("Downgrade: %v", err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

func BenchmarkConformance(b *testing.B) { conformance.Bench(b, newHarness) }

// harness is a directory. Each driver behaves like another process.
type harness struct{ dir string }

func newHarness(t conformance.TB) conformance.Harness {
	testenv.Announce(t, "file", "process", "flock "+runtime.GOOS)
	return harness{t.TempDir()}
}

func (h harness) Driver(context.Context) (backend.Driver, error) {
	return filebackend.New(h.dir, nil)
}

func (harness) Close() {}

// Foreign implements conformance.Foreigner.
func (h harness) Foreign(t conformance.TB, key string) (intact func() bool) {
	t.Helper()
	const text = "a file of another program\n"
	path := filebackend.LockFile(h.dir, key)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	return func() bool {
		b, err := os.ReadFile(path)
		return err == nil && string(b) == text
	}
}

func (harness) NoServer() string { return "file: has no server" }
