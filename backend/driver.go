package backend

import (
	"context"
	"iter"
)

// Driver is one connection to one lock server.
//
// All methods are safe for concurrent use. Each returns as soon as ctx ends,
// whatever the client library does (see [Call]); the result that comes too
// late is dropped, and the core undoes it with Release. A driver never loops
// for a lock, never retries a request whose outcome it does not know, and
// starts no renewal of its own. One acquisition is (Request.Key, Request.Owner).
//
// The text of an error has no credential. What matters is the text: the client
// library's own error stays in the chain, so that errors.As finds it, also if it
// keeps the password in a field.
//
// An error that the server answered after it had rolled the request back, such as a
// deadlock, means "not executed": the driver returns it wrapped in ErrUnavailable.
type Driver interface {
	// Acquire is one attempt to become holder of req.Key as req.Owner; it does
	// not wait for the lock. A repeated Acquire by the same Owner answers again: the
	// Grant if that Owner holds (with the same Fence or a higher one; a new grant
	// or ErrLost if the earlier one has expired), else *Busy. The repeated Grant has
	// a new Term, with a new Sent. The server prolongs the grant for it, as Renew
	// does: a Term that the server does not keep makes two holders. With req.Queue the
	// driver may leave a queue entry, which a repeated Acquire refreshes; without
	// it a *Busy leaves nothing behind.
	//
	// *Busy, ErrUnavailable (certainly not executed), ErrUnsupported, ErrConflict
	// and ErrLost are definite. Any other error, ctx's own included, leaves the
	// outcome unknown: the core repeats the request or undoes it by Release.
	Acquire(ctx context.Context, req *Request) (*Grant, error)

	// Renew proves g again for another g.TTL. ErrLost is definite: the grant is
	// gone. Any other error leaves it unknown and the core repeats until g's
	// deadline. Renew never creates what is gone and works on a Grant that was
	// rebuilt without its State. A grant whose term is over, but whose entry the
	// server still has because no other owner came, may be renewed or be ErrLost,
	// and Release may remove it or return ErrNotHeld. A renewal that is executed
	// after a later one must not shorten the later one's term. A driver whose grants live with a session may
	// answer with a proof of that session younger than TTL/6 instead of asking.
	Renew(ctx context.Context, g *Grant) (Term, error)

	// Release removes what g.Owner has under g.Key, held or queued, and wakes
	// those whom that concerns. nil: removed by this request. ErrNotHeld,
	// definite: there was nothing of this Owner. Any other error: unknown, and the
	// core repeats. State is that of the Grant or of the Busy, and nil where the
	// answer never came: then the driver finds the entry by its Owner. Terms and
	// Fence of g are not looked at.
	Release(ctx context.Context, g *Grant) error

	// Capabilities tells what this driver on this server can do. It is constant
	// over the Driver's life and does not block.
	Capabilities() Capabilities

	// Close ends what the driver started and gives back its connections; one
	// that was lent to it stays open. It is called once, by the core, after the
	// last other call has returned, and waits for the server no longer than a second.
	Close() error
}

// Waiter is implemented by drivers whose server tells when a lock may be had
// (Capabilities.Notify). For the others the core polls.
type Waiter interface {
	// Wait blocks until another Acquire of req is worth the trip, and no longer
	// than ctx, whose end is answered with ctx's error. b is the answer that the
	// last Acquire of req gave. (nil, nil): look again. It may return so early or
	// for no reason, and must not miss a release that happens after that answer.
	//
	// The core calls Wait again and again for one request, usually with an Acquire
	// and so a new b in between, but also twice with the same b after a poll. A Wait
	// that ended, for whatever reason, leaves nothing in the driver's memory.
	//
	// (grant, nil): the server made req the holder while it waited. Its Term then
	// counts from the sending of the waiter's last answered Acquire, and the server
	// must not have granted more than the queue entry had left.
	//
	// An error other than ctx's is treated like that of an Acquire. Waiting costs
	// no goroutine per waiter inside the driver, and all waiters of a driver
	// share a bounded number of connections.
	Wait(ctx context.Context, req *Request, b *Busy) (*Grant, error)
}

// Pipeliner is implemented by drivers whose requests the server executes in the order in which they were sent: then
// the next waiter of a process need not wait for the answer to the release before its own.
type Pipeliner interface {
	// ReleaseThen is Release. It calls sent, once at most, as soon as an Acquire of the same key that begins
	// then will as a rule be executed after the release. That is no promise: where it is not, as after the loss of a
	// connection, the Acquire is answered with *Busy, and the release wakes it. sent does not block.
	ReleaseThen(ctx context.Context, g *Grant, sent func()) error
}

// BatchRenewer is implemented by drivers that renew many grants in one request.
type BatchRenewer interface {
	// RenewAll is Renew for each of gs; the answers stand in their order. A
	// request that fails fails the grants that it carried and no others. It blocks
	// as long as the slowest of its requests, at most until ctx ends.
	RenewAll(ctx context.Context, gs []*Grant) []Renewal
}

// Inspector is implemented by drivers that can show locks
// (Capabilities.Inspect and, for List, Capabilities.List).
type Inspector interface {
	// Inspect shows one key. A free lock is an Info without holders.
	Inspect(ctx context.Context, key string) (*Info, error)
	// List shows every key that is held or waited for and starts with prefix, in
	// no particular order; a change during the listing may or may not show. An
	// error ends the sequence. Where Capabilities.List is false it yields
	// ErrUnsupported.
	List(ctx context.Context, prefix string) iter.Seq2[*Info, error]
}

// Breaker is implemented by drivers that can take a lock from its holder
// (Capabilities.Break).
type Breaker interface {
	// Break removes the grant of owner under key, or of whoever holds it where
	// owner is empty, and wakes the waiters. The holder is told through
	// Request.Lost at once where the server can push, else by its next renewal.
	// ErrNotHeld, definite: the lock is free, or owner does not hold it. Any other
	// error: unknown.
	Break(ctx context.Context, key, owner string) error
}

// Mover is implemented by drivers whose grants can change hands between
// processes (Capabilities.Move).
type Mover interface {
	// Export detaches g from this connection: it lives on for its TTL without
	// renewal. The ticket names it to Adopt, in any process.
	Export(ctx context.Context, g *Grant) (ticket string, err error)
	// Adopt makes req.Owner the holder of the exported grant, atomically: of two
	// adoptions the second is ErrLost. The new Grant's Fence is the same or higher.
	Adopt(ctx context.Context, ticket string, req *Request) (*Grant, error)
}

// FenceRaiser is implemented by drivers that can lift the fence of a held key,
// which a quorum needs of each of its members.
type FenceRaiser interface {
	// RaiseFence makes fence the least that the next grant of g.Key exceeds. g must
	// be held, else ErrLost. A lower fence than the present one changes nothing.
	RaiseFence(ctx context.Context, g *Grant, fence uint64) error
}

// Doctor is implemented by drivers that can tell settings of their server that
// make locks unsafe.
type Doctor interface {
	// Diagnose looks and changes nothing. A setting that it may not read is itself
	// a Finding, not an error.
	Diagnose(ctx context.Context) ([]Finding, error)
}

// Floor is implemented by drivers that can tell what a lock costs at the least, for
// benchmarks to compare with.
type Floor interface {
	// Floor locks and unlocks once with the fewest requests that the client library and the
	// server can do it with, over the driver's own connections: no fence, no queue, nobody woken,
	// nothing renewed. It must not be used for anything but measuring, and not with a
	// (key, owner) that is used otherwise. No two calls at once have the same key.
	Floor(ctx context.Context, key, owner string) error
}

// Counters is implemented by drivers that can ask their server for what it counts, for
// benchmarks.
type Counters interface {
	// Counters asks the server, or each of them. What asking costs is counted too.
	Counters(ctx context.Context) (Counts, error)
}

// Sweeper is implemented by drivers whose server keeps something of a lock that is free,
// such as its last fence, for benchmarks to leave nothing behind.
type Sweeper interface {
	// Sweep removes what is left of the keys that are free. It must not be used for a name
	// that anybody may lock again: fences of before may then recur.
	Sweep(ctx context.Context, keys []string) error
}
