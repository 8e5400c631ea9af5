// Package membackend is dlock's driver for the memory of this process, for tests, examples and
// programs that are one process for now. It is the reference driver: every driver of dlock has
// the same files in the same order.
//
// # URLs
//
//	mem:       the space without a name
//	mem:NAME   another space
//
// A space is a set of locks in this process. Two clients of one space contend like two processes
// that use one server; clients of different spaces never meet. The driver has no parameters.
//
// # Guarantees
//
// Exclusion holds in all cases: the space cannot be cut off, restarted or wiped. A grant ends with
// its release, by a break, or when its term is over on the clock of the process. Closing a client
// does not end its grants. The driver has no goroutine, and no timer outside of Wait, so it works
// inside of testing/synctest.
//
// The space and the core read the same clock, so there is no difference between a server's and a
// client's time. The core ends a lease before the end of its term nevertheless: a test of an
// application sees the same deadlines as with a server.
//
// # Reading
//
// A driver author reads driver.go first, which has the methods that every driver has, and then
// space.go, which is the server. A request reads and changes the space in one step under space.mu.
// In another driver the same step is a script, a transaction or a statement.
//
// # Fencing
//
// Each space has one counter for all its keys. It outlives every client and lasts as long as the
// process: the fences are volatile.
//
// # Waiting
//
// A waiter has a queue entry, which expires unless the waiter refreshes it. A release hands the
// lock to the first entry, or to all readers in front of the first writer, and wakes them through
// channels. So the lock is always fair, also between readers and writers.
//
// # Server requirements
//
// None.
package membackend
