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
// # What a case uses
//
// Every Driver of a Harness is a connection of its own and so stands for a
// process. A case takes as many as it needs, each alone or under a
// [dlock.Client], and names that nobody else uses, beneath the prefix of the Harness
// if it has one. Most faults are made between the core and the driver, where they
// hit the same instant each time; the faults of the network and of the server are
// made by the [Faults] of the Harness.
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
