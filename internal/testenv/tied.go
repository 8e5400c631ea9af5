package testenv

import "github.com/dlock-go/dlock/conformance"

// Tied is a [Harness] for locks that end with their connection.
type Tied struct {
	*Harness[conformance.TB]
}

// NewTied returns a Harness with a [Proxy] in front of s. Its URL has lock=session.
func NewTied(tb conformance.TB, s *Server) Tied {
	tb.Helper()
	return Tied{NewHarness(tb, s).With("lock=session")}
}

// Tied implements conformance.Tied.
func (Tied) Tied() {}

// Apart implements conformance.Apart.
func (h Tied) Apart(tb conformance.TB) conformance.Harness {
	tb.Helper()
	return Tied{h.Harness.Apart(tb).(*Harness[conformance.TB])}
}

// InapplicableIfTied are the cases that do not apply to such locks.
var InapplicableIfTied = conformance.Inapplicable(
	// A lock ends with its connection, and no other connection can free it.
	"LostReplyOfRenewalCostsNoLease", "LateRenewalRevivesNoGrant", "LateReleaseFreesNoOtherGrant",
	"LateGrantAfterARefusalIsUndone",
	// Its term is the term of the connection.
	"LateRenewalShortensNoTerm", "LateRepeatedAcquireShortensNoTerm", "TermsAreNotFloored",
	"EachRefusalHasTheRemainingTime",
	// The core polls.
	"CancelledWaitsLeaveNoMemory", "NextRequestFollowsARelease", "ReleaseBeforeWaitIsNotMissed",
	"ReleaseDuringWaitIsNotMissed", "WaitEndsWithItsContext", "WaitersOfOneConnectionMissNoRelease",
	// The server has the hash of a name and no entry.
	"CloseEndsObserve", "ExpiredHolderIsNotShown", "ForeignValueIsAConflict",
	"FreeNamesAreForgotten", "ListTakesPrefixesLiterally", "LockedEntryCostsNoOtherLease",
	"ObserveEndsWithItsContext",
	"ObserveIgnoresRenewals", "ObserverLeavesNothing", "SweepSparesHeldLocks",
	// There is no queue, and no lock-delay.
	"BreakDoesNotWaitForALockDelay", "BrokenLockGoesToTheQueue", "ExpiredLockGoesToTheQueue",
	"FairTryDoesNotOvertake", "FairWaitersAreServedInOrder",
	"LeavingTheQueueOfAFreeLockWakesTheNext", "OneHolderAtATimeFair", "RefreshKeepsThePlace",
	"ShortTermShortensNoOtherEntry",
)
