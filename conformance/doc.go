// Package conformance checks that a driver, and dlock's core on top of it, keep their promises
// against the real server. Each case checks one promise, and logs it when it fails.
//
// The test of a driver is about ten lines:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, func(t conformance.TB) conformance.Harness { return newHarness(t) })
//	}
//
// Run calls t.Parallel, so the test does not. Some cases stop the server, so no other test may use
// the server at the same time.
//
// # What a case uses
//
// Every Driver of a Harness is a separate connection and represents one process. A case opens as
// many drivers as it needs, and uses each one directly or under a [dlock.Client]. It uses names
// that no other case uses. They begin with the prefix of the Harness if it has one. A case makes
// most faults between the core and the driver, where they occur at the same instant in every run.
// The [Faults] of the Harness make the faults of the network and of the server.
//
// A Harness without [Faults] fails the cases that need them, because a promise is unproven until
// it is checked. These cases do not apply to a Harness that has no server and reports this with
// NoServer. A Harness may have any of the abilities [Apart], [Delayer], [Foreigner],
// [EntryLocker], [Keeper], [Tied] and [Addressed]. A case is skipped if it needs an ability that
// the Harness lacks, or an interface that the driver lacks. The reason begins with "does not
// apply". The test of a driver lists these cases, so that none of them is skipped unnoticed when
// the driver or the Harness changes:
//
//	conformance.Run(t, mk, conformance.Inapplicable("FloorIsNoLock", "SweepSparesHeldLocks"))
//
// Then Run also fails for an unlisted case that does not apply, and for a listed case that applies.
// A first run without the list, with go test -v, shows which cases are skipped, and why.
//
// # For a driver outside this module
//
// Package conformance/faultproxy breaks the network in front of any server that uses TCP. Its Proxy
// does the work of Faults and Delayer, except for Pause and Restart. A second Proxy makes the
// Harness of Apart. DropReply of a Proxy counts chunks that the server sends. Answers that arrive
// together, as a pipelining client receives them, are one chunk, and DropReply drops all of them.
//
// Package conformance/broken has drivers with bugs. Its Test checks that the suite detects the bugs
// with your own Harness. To check the guards of your driver, such as the comparison of the owner,
// remove one at a time, by hand or in a copy of its file for go test -overlay. If no case fails
// without a guard, the guard needs a separate test.
//
// The drivers of this module also use the packages backend/key (names to keys), backend/batch (many
// goroutines, one request) and backend/tlsfile (certificates of a URL).
//
// # Capabilities
//
// Every capability that a driver claims must work. A feature that the driver does not claim must
// be refused with dlock.ErrUnsupported. A case checks whichever applies. If grants live with
// their connection, a case that abandons a grant closes the connection, because nothing else
// frees the lock.
//
// # Exclusion
//
// The cases detect a second holder with an atomic counter inside the critical section and with
// the order of the fences. The race detector cannot check exclusion that a server enforces over
// a socket.
package conformance
