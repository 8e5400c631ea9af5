// Package membackend keeps locks in the memory of this process: the reference
// driver, for tests, examples and programs that are one process for now.
//
// # URLs
//
// mem: is one space for the whole process, mem:NAME another. There are no
// parameters of its own. Two clients of one space contend as two processes of
// one server would; clients of different spaces never meet.
//
// # Guarantees
//
// Exclusion holds in all cases: nothing can be cut off, restarted or forgotten. A
// grant ends with its release, by a break, or when its term has run out on the
// clock of the process. Closing a client does not end its grants. There is no
// goroutine here and no timer outside of Wait, so the driver works inside of
// testing/synctest.
//
// # Fencing
//
// One counter per space, which outlives every client and lasts as long as the
// process: volatile.
//
// # Waiting
//
// A waiter is woken through a channel. Without Fair all are woken at once and the
// first one to ask wins; with Fair a waiter has a queue entry, which expires
// unless it is refreshed, and who releases hands the lock to the first one.
//
// # Server requirements
//
// None.
package membackend
