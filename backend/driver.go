package backend

import (
	"context"
	"iter"
)

// Driver is one connection, or one pool of connections, to one lock server.
//
// All methods are safe for concurrent use. Each returns as soon as ctx ends, even
// if the client library does not (see [Call]). The driver drops a result that
// comes later, and the core cleans it up with Release. A driver never loops until
// a lock is free, never retries a request with an unknown outcome, and starts no
// renewal. One acquisition is (Request.Key, Request.Owner).
//
// The text of an error contains no credential. The client library's own error
// stays in the chain, so that errors.As finds it, even if it keeps the password
// in a field.
//
// If the server rolled a request back before it answered with an error, such as a
// deadlock, the request was not executed: the driver wraps the error in
// ErrUnavailable.
type Driver interface {
	// Acquire makes one attempt to become holder of req.Key as req.Owner. It does
	// not wait until the lock is free. It may block for one round trip; the core
	// limits it to the lesser of req.TTL and 5 s.
	//
	// A repeated Acquire of the same Owner returns the Grant if that Owner holds
	// the lock, with the same Fence or a higher one, and *Busy otherwise. If the
	// earlier grant has expired, it returns a new grant or ErrLost. The repeated
	// Grant has a Term as Renew returns it: with a new Sent, for which the server
	// prolongs the grant, or the young proof of a session or of a shared lease. A
	// Term that the server does not keep makes two holders.
	//
	// With req.Queue the driver may leave a queue entry, which a repeated Acquire
	// refreshes. Without req.Queue, an Acquire that returns *Busy leaves nothing
	// on the server.
	//
	// The definite errors are *Busy, ErrUnavailable (certainly not executed),
	// ErrUnsupported, ErrConflict, ErrInvalidName and ErrLost. Any other error,
	// including ctx's, leaves the outcome unknown: the core repeats the request
	// or cleans up with Release.
	Acquire(ctx context.Context, req *Request) (*Grant, error)

	// Renew proves g for another g.TTL. The core calls it about every third of
	// the TTL, with a limit of a third of the TTL or 5 s, and retries with
	// backoff until g's deadline.
	//
	// ErrLost is definite: the grant is gone. Any other error leaves the outcome
	// unknown. Renew never creates a grant that is gone, and works on a Grant
	// that was rebuilt without its State. A renewal that is executed after a
	// later one must not shorten the term of the later one.
	//
	// The term of a grant may be over while the server still has its entry,
	// because no other owner came. Renew may then renew it or return ErrLost, and
	// Release may remove it or return ErrNotHeld.
	//
	// A driver with grants that live with a session or a shared lease may answer
	// with a proof of it that is younger than TTL/6, without a request.
	Renew(ctx context.Context, g *Grant) (Term, error)

	// Release removes the grant and the queue entry of g.Owner under g.Key, and
	// wakes the waiters that can proceed. It returns nil if this request removed
	// something. ErrNotHeld is definite: there was nothing of this Owner. Any
	// other error leaves the outcome unknown, and the core repeats the release
	// with backoff.
	//
	// g.State is the State of the Grant or of the Busy. It is nil if the answer
	// never came; then the driver finds the entry by its Owner. The driver must
	// not use g.Term and g.Fence.
	Release(ctx context.Context, g *Grant) error

	// Capabilities returns what this driver can do on this server. It is constant
	// over the Driver's life and does not block.
	Capabilities() Capabilities

	// Close stops the driver's goroutines and closes its connections; a
	// connection that was lent to it stays open. The core calls it once, after
	// the last other call has returned or has been given up, and waits for it for
	// 5 s. Close waits for a server for at most one second, and for a disk for
	// at most 4 s.
	Close() error
}

// Waiter is implemented by drivers with a server that can wake waiters
// (Capabilities.Notify). Users gain hand-offs between processes in about one
// round trip, without polling.
type Waiter interface {
	// Wait blocks until another Acquire of req may succeed, or until ctx ends;
	// then it returns ctx's error. b is the answer to the last Acquire of req.
	// Wait returns (nil, nil) when the core should make another attempt. It may
	// return so early or without a reason, but it must not miss a release that
	// happens after b was answered: subscribe, read the state again, then block.
	//
	// The core calls Wait repeatedly for one request, usually with an Acquire and
	// so a new b in between, but after a poll also twice with the same b. After
	// Wait has returned, for whatever reason, the driver keeps nothing in memory
	// for it.
	//
	// Wait returns (grant, nil) if the server made req the holder during the
	// wait. The Term of such a grant counts from the sending of the waiter's last
	// answered Acquire, or of a later request that has read how much of it is
	// left. The server must not grant more than the remaining time of the queue
	// entry.
	//
	// An error other than ctx's is handled like an error of Acquire. Waiting
	// needs no goroutine per waiter in the driver, and all waiters of a driver
	// share a bounded number of connections.
	Wait(ctx context.Context, req *Request, b *Busy) (*Grant, error)
}

// Pipeliner is implemented by drivers with a server that executes requests in the
// order in which they were sent. Users gain faster hand-offs inside a process:
// the next waiter does not have to wait for the answer to the release before it
// sends its own request.
type Pipeliner interface {
	// ReleaseThen is Release, and calls sent at most once, as soon as an Acquire
	// of the same key that begins then will usually be executed after the
	// release. If it is not, as after the loss of a connection, the Acquire is
	// answered with *Busy and the release wakes it. sent does not block.
	ReleaseThen(ctx context.Context, g *Grant, sent func()) error
}

// BatchRenewer is implemented by drivers that can renew many grants in one
// request. Users gain thousands of held locks at the cost of a few requests per
// second.
type BatchRenewer interface {
	// RenewAll is Renew for each of gs and returns the answers in the same order.
	// A request that fails affects only the grants that it carried. RenewAll
	// blocks until the slowest of its requests is answered, or until ctx ends. If it
	// does not return soon after that, or panics, the core drops its answers and
	// renews these grants by Renew.
	RenewAll(ctx context.Context, gs []*Grant) []Renewal
}

// Combiner is implemented by drivers that can acquire several locks in one step. Users gain a
// Client.LockAll that takes about as long as a Lock.
type Combiner interface {
	// AcquireAll is Acquire for each of reqs in one step of the server: it grants all of them, or
	// none. Their keys differ, their mode is Exclusive, and none has Queue, so a refused attempt
	// leaves nothing on the server. AcquireAll returns the grants in the order of reqs.
	//
	// If the error is about one of the requests, such as *Busy and ErrConflict, failed is the index
	// of the first such request. If the error is about no single request, such as ErrUnavailable or
	// an unknown outcome, failed means nothing. The errors are as for Acquire. ErrUnsupported
	// means that the server cannot acquire these locks in one step, and that nothing was executed;
	// the core then acquires them one by one.
	//
	// A repeated AcquireAll of the same Owners returns the grants again, by the rules of Acquire.
	// The core undoes an AcquireAll of unknown outcome with a Release of each.
	AcquireAll(ctx context.Context, reqs []*Request) (grants []*Grant, failed int, err error)

	// ReleaseAll is Release for each of gs, in one request if possible, and returns the answers in
	// the same order. A grant that is lost does not affect the other grants. A release without an
	// answer does not delay the other answers.
	ReleaseAll(ctx context.Context, gs []*Grant) []error
}

// Inspector is implemented by drivers that can show locks (Capabilities.Inspect
// and, for List, Capabilities.List). Users gain a view of holders and waiters,
// for people and for the command.
type Inspector interface {
	// Inspect returns the state of one key. A free lock is an Info without
	// holders. A holder with an expired term is not a holder.
	Inspect(ctx context.Context, key string) (*Info, error)
	// List returns every key that is held or waited for and starts with prefix,
	// in no particular order. A change during the listing may or may not be
	// included. An error ends the sequence. If Capabilities.List is false, it
	// yields ErrUnsupported. prefix is literal text, not a pattern.
	List(ctx context.Context, prefix string) iter.Seq2[*Info, error]
}

// Breaker is implemented by drivers that can take a lock from its holder
// (Capabilities.Break). Users gain a way to free a lock of a holder that hangs,
// without waiting for its TTL.
type Breaker interface {
	// Break removes the grant of owner under key, or of any holder if owner is
	// empty, and wakes the waiters. The holder is notified through Request.Lost
	// at once where the server can push, and otherwise by its next renewal.
	// ErrNotHeld is definite: the lock is free, or owner does not hold it. Any
	// other error leaves the outcome unknown.
	Break(ctx context.Context, key, owner string) error
}

// Mover is implemented by drivers with grants that can pass from one process to
// another (Capabilities.Move). Users gain a lock that outlives the process that
// acquired it, for example across an upgrade.
type Mover interface {
	// Export detaches g from this connection: the grant lives on for its TTL
	// without renewal. The ticket identifies the grant to Adopt, in any process.
	// A Renew or a Downgrade of g that is executed later leaves the ticket good.
	// ErrLost is definite: the grant is gone. After any other error but
	// ErrUnavailable the outcome is unknown, and the core releases the grant.
	Export(ctx context.Context, g *Grant) (ticket string, err error)
	// Adopt makes req.Owner the holder of the exported grant, atomically. The
	// second of two adoptions returns ErrLost, and so does an adoption after the
	// end of the term. The new Grant has the same Fence or a higher one. An
	// adoption of the same Owner that is repeated returns its Grant again.
	Adopt(ctx context.Context, ticket string, req *Request) (*Grant, error)
}

// Downgrader is implemented by drivers that can make a writer a reader
// (Capabilities.Modes has Shared). Users gain a writer that reads on without a
// gap in which another writer could come.
type Downgrader interface {
	// Downgrade makes the exclusive grant g a shared one in one step, for another
	// g.TTL, and wakes the waiters that can proceed. The new Grant has the same
	// Owner and the same Fence.
	//
	// A repeated Downgrade of g returns the same grant with a new Term. ErrLost is
	// definite: the grant is gone. So is ErrUnavailable: neither this Downgrade nor
	// a part of it was executed. Any other error leaves the outcome unknown; Renew
	// and Release then work for g, whichever mode it has.
	Downgrade(ctx context.Context, g *Grant) (*Grant, error)
}

// Watcher is implemented by drivers with a server that can report changes of a
// lock to other clients. Users gain Client.Observe without polling.
type Watcher interface {
	// Watch calls changed when it has begun to watch key, and after each change of
	// its holders. A call may come for several changes, or for none. It blocks
	// until ctx ends, and then returns ctx's error; any other error means that
	// changes may be missed from now on.
	Watch(ctx context.Context, key string, changed func()) error
}

// FenceRaiser is reserved for drivers that can raise the fence of a held key, as a
// member of a quorum of servers needs it. Nothing calls it yet, so a driver does not
// have to implement it. Users will gain fences that increase across the quorum.
type FenceRaiser interface {
	// RaiseFence makes the next grant of g.Key have a fence greater than fence.
	// It returns ErrLost if g is not held. A fence below the present one has no
	// effect.
	RaiseFence(ctx context.Context, g *Grant, fence uint64) error
}

// Doctor is reserved for drivers that can check settings of their server. Nothing
// calls it yet, so a driver does not have to implement it. Users will gain a list of
// the settings that make locks unsafe, before they cost a lock.
type Doctor interface {
	// Diagnose checks the server and changes nothing. A setting that it may not
	// read is itself a Finding, not an error.
	Diagnose(ctx context.Context) ([]Finding, error)
}
