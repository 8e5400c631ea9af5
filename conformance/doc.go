// Package conformance proves that a driver and dlock's core above it keep their
// promises, against the real server. Each case is one promise, and says it when
// it fails.
//
// The test of a driver is about ten lines:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, func(t conformance.TB) conformance.Harness { return newHarness(t) })
//	}
//
// Run calls t.Parallel, so the test does not. Some cases stop the server, so no other test may use it
// at the same time.
//
// # What a case uses
//
// Every Driver of a Harness is a connection of its own and so stands for a
// process. A case takes as many as it needs, each alone or under a
// [dlock.Client], and names that nobody else uses, beneath the prefix of the Harness
// if it has one. Most faults are made between the core and the driver, where they
// hit the same instant each time; the faults of the network and of the server are
// made by the [Faults] of the Harness.
//
// A Harness without [Faults] fails the cases that need them, unless it has no server and
// says so with NoServer: what is not checked is not proven. A Harness may have any of
// the abilities [Apart], [Delayer], [Foreigner], [EntryLocker], [Keeper] and
// [Addressed]. A case that needs one that the Harness lacks, or an interface that the
// driver lacks, is skipped. The reason begins with "does not apply". The test of a driver lists
// these cases, so that none drops out unseen when the driver or the Harness changes:
//
//	conformance.Run(t, mk, conformance.Inapplicable("FloorIsNoLock", "SweepSparesWhatIsHeld"))
//
// Then another case that finds that it does not apply fails, and so does one of the list that runs.
// A first run without the list, with go test -v, shows which cases are skipped, and why.
//
// # For a driver outside of this module
//
// The package conformance/faultproxy breaks the network in front of any server that is
// reached over TCP. Its Proxy does what Faults and Delayer need but for Pause and
// Restart, and a second Proxy makes the Harness of Apart. For the answers of DropReply a
// Proxy counts chunks that the server sends: answers that arrive together, as a
// pipelining client receives them, are one chunk, and none of their requests gets its
// answer.
//
// The package conformance/broken has drivers with bugs: its Test shows that the suite
// notices them over your own Harness. The packages backend/key (names to keys),
// backend/batch (many goroutines, one request) and backend/tlsfile (certificates of a
// URL) are those that the drivers of this module use.
//
// # Capabilities
//
// What a driver claims must work, and what it does not claim must be refused with
// dlock.ErrUnsupported: a case checks whichever applies. Where grants live with
// their connection, a case that leaves one behind closes the connection, which is
// what frees it there.
//
// # Exclusion
//
// The oracle is an atomic counter inside of the critical section and the order of
// the fences. The race detector cannot judge exclusion through a socket.
package conformance
