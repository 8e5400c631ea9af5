// Package backend is the contract between dlock's core and its drivers.
//
// Applications do not need it: they import dlock and, blank, the drivers that
// they want. Who writes a driver implements [Driver], and of the optional
// interfaces those that the server can honestly serve, registers an [Opener]
// for its URL schemes, and proves the result with the package conformance.
//
// # Who does what
//
// A driver makes single attempts; the core does everything that takes time:
//
//	driver                                  core
//	one attempt to acquire, renew, release  the loop, back-off, deadlines, retries
//	a hint when another attempt pays        the decision to make it
//	the grant's term as the server gave it  the lease: when it must be given up
//	the server's own errors                 wrapping them once, at the border
//
// # Three outcomes
//
// Every request that changes something has three outcomes: yes, no and
// unknown. A definite answer is one of the errors that a method lists as
// definite; any other error means unknown, and the core asks again or undoes.
// That only works because every request is idempotent under its owner:
// (Key, Owner) names one acquisition, the core draws a new Owner for each,
// and a request may be repeated, reordered after its context has ended, or
// executed late without harm.
//
// # Contexts
//
// Every method returns as soon as its context ends, also where the client
// library does not watch contexts: [Call] sees to it. The core bounds each
// request with a [Bound] context, so a driver needs no timeouts of its own for
// correctness.
//
// The package imports the standard library alone.
package backend
