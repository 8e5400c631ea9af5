// Package session makes drivers for servers whose locks belong to a connection: PostgreSQL's
// advisory locks, and GET_LOCK of MySQL and MariaDB. Such a lock is no row. Nothing is written for
// it, and the server frees it when the connection ends.
//
// A [Driver] has one connection for all locks of its process. The connection executes one statement
// at a time, because the server and the driver's table of held locks must change together. To a
// server, all locks of one connection have one holder, so it would grant the same lock twice.
//
// # The end of a connection
//
// The server ends a connection that is silent for [Server.TTL], which is as long as the longest
// term. It counts from its last answer, and a term counts from the sending of a request that was
// answered. So the lease of a client that stands still, or is cut off, ends before the server frees
// the lock. Each answer proves the terms of all locks. Nothing else may end a silent connection
// earlier: neither the TCP of the server nor a proxy. [NewLink] makes the TCP of the client wait as
// long, so that a client which is cut off for less than its terms keeps its locks.
//
// Without locks there are no proofs, and the server ends an idle connection. So the driver replaces
// a connection that was idle for half of this time: a request on it could get no answer.
//
// When the connection ends, the driver drops all locks and reports each loss at once; see [Link].
// If the driver itself ends it, it reports the losses first. The next request makes another
// connection. A statement without an answer also ends the connection: what it may have locked is
// then free, or the server frees it when it notices the end.
//
// If the connection ends during an Unlock, the outcome is unknown. Maybe the server has not
// received the Unlock, and keeps the lock for up to TTL. Or it ended the connection earlier, and
// another client had the lock before the Unlock. So the Unlock returns ErrUncertain. A Release that
// is repeated after that returns ErrNotHeld when the lock is free: the server shows that, or TTL is
// over, or this driver has acquired the lock again.
//
// A server that ends connections by itself, for example at a restart, cannot tell a client that is
// cut off or stopped. Until its term ends, such a client does not know that it has lost its locks.
//
// # Order
//
// A request begins when it has the connection, and only if its context still lives then. The
// statements of a connection are executed in the order in which they are sent. So a request that
// was given up is never executed after its release, and Capabilities.Late is 0. If the context ends
// earlier, while the request waits for its turn or for a new connection, the request never begins:
// it is ErrUnavailable, and nothing is left to undo.
//
// Acquisitions wait in a line, of which only the first one waits for the connection. So a process
// that polls a thousand names does not delay its releases and renewals by a thousand statements.
// The line moves by one statement per round trip, and the core limits each request to 5 s. So if a
// process waits for more names than 5 s have round trips, some requests are never sent, and their
// Lock can return ErrUnavailable although the server is healthy.
//
// Without competition a request costs no more than its statement. If the connection is free, and
// the context ends at a deadline only, the goroutine of the caller executes the request in place.
// The statement must end by itself before the deadline, which is so unless other locks are held:
// then the connection is worth waiting for. All other requests have their own goroutine.
//
// # Waiting
//
// Waiters poll. A server could wake a waiter only by a statement that blocks its connection, such
// as pg_advisory_lock, or GET_LOCK with a timeout. Each contended name would need such a
// connection, and the lock would belong to it and not to the connection that has all locks. Inside
// a process the core hands a lock over without the server.
//
// # Inspection
//
// Nothing can be inspected. A server has the connection of a lock, and neither its name, its owner,
// its fence nor its term. Several holders of a process, one after the other, would look like one
// holder. The documents of the drivers have statements with which an operator finds the connection
// of a holder.
package session
