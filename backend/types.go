package backend

import (
	"fmt"
	"strings"
	"time"
)

// Term is a proof: the server keeps the grant until at least TTL after Sent.
//
// Sent is a reading of time.Now() just before the request was written that the
// server counts from: the Acquire, the renewal, or the last answered keep-alive
// of a shared lease or session. For a grant that came through Wait, it is the
// waiter's last answered Acquire. If there are several, the oldest one counts. If
// the driver has read how much of the term is left, it is that request.
//
// TTL is the granted time, which may differ from the requested time.
//
//	sent := backend.Began(ctx) // before the request is written
//	ttl, err := conn.Grant(ctx, req.Key, req.Owner, req.TTL)
//	if err != nil {
//		return nil, err
//	}
//	term := backend.Term{Sent: sent, TTL: ttl}
//
// The core ends the lease at Sent + TTL, less the lock-delay and a margin of 1 %
// and 10 ms.
type Term struct {
	Sent time.Time
	TTL  time.Duration
}

// Renewal is one answer of RenewAll: a Term, or the error that Renew would
// return.
type Renewal struct {
	Term Term
	Err  error
}

// Request is one acquisition. The core makes it and does not change it after the
// driver has received it. The driver does not change it either, and copies what it
// needs beyond the call: a held lock must not keep its attempt in memory.
type Request struct {
	// Key is the user's name with the client's prefix: valid UTF-8 without
	// control characters, 1 to 1,024 bytes long. The driver adds its own
	// namespace and encodes it by the rules of its server. Two keys must never
	// become one.
	Key string
	// Owner is 128 random bits as 32 hex digits, new for each acquisition.
	Owner string
	// TTL is how long the server keeps the grant without a renewal. It lies
	// between Capabilities.MinTTL and MaxTTL. Drivers round it up to the server's
	// granularity.
	TTL time.Duration
	// Mode is the requested kind of lock: exactly one of the Modes.
	Mode Mode
	// Limit is the number of permits of a semaphore, and 0 in other modes.
	Limit int
	// Fair requests a place in a queue instead of a race.
	Fair bool
	// Queue means that the caller will wait: the driver may leave a queue entry.
	Queue bool
	// Meta describes the holder for Inspect.
	Meta string
	// Lost is called by the driver when the server reports that the grant is
	// gone. The error gives the server's reason. Lost returns within some
	// milliseconds, during which the contexts of the lease end; it may be called
	// from any goroutine, and repeatedly. The core sets it; tests of a raw driver
	// may leave it nil.
	Lost func(error)
}

// Grant is the server's positive answer. It is immutable once returned.
type Grant struct {
	// Request is what was granted. The core refuses the grant of another Key or
	// Owner with ErrConflict.
	Request
	Term Term
	// Fence is greater than the fences of all earlier exclusive grants of the
	// key, and below MaxFence. It is 0 if Capabilities.Fencing is FenceNone, and
	// never otherwise, in any mode: the core refuses such a grant with ErrConflict.
	Fence uint64
	// State belongs to the driver; the core passes it back unchanged.
	State any
}

// Busy is the server's negative answer: the lock is taken. It is an error and
// unwraps to ErrNotAcquired. All of its fields are optional: the zero Busy is a
// valid answer, and the core then polls with backoff.
type Busy struct {
	// Holder is the owner or the meta of a present holder, or empty if unknown.
	Holder string
	// RetryAfter is the time until the holder's term ends at the latest, or until
	// the queue entry needs another attempt, or 0 if unknown. The core retries no
	// later than that.
	RetryAfter time.Duration
	// Queued means that the attempt left a queue entry, which Release removes.
	Queued bool
	// Reliable means that nothing that ends the Wait can be lost, and that the
	// Wait needs no repetition. The core then lets it last until RetryAfter.
	// Otherwise the core ends it after a third of the TTL and makes another
	// attempt.
	Reliable bool
	// State is the driver's own; the core hands it to Wait and Release.
	State any
	// Fence is the raw fence of a present holder, as in Grant, or 0 if unknown. Before a
	// holder has drawn its fence, it may be the fence of an earlier one. Where the core
	// polls, a change of Fence means that the lock changes hands.
	Fence uint64
}

// Error returns one line, with the holder unless it is unknown.
func (b *Busy) Error() string {
	if b.Holder == "" {
		return "dlock: lock not acquired: held by another"
	}
	return fmt.Sprintf("dlock: lock not acquired: held by %q", b.Holder)
}

// Unwrap returns ErrNotAcquired.
func (b *Busy) Unwrap() error { return ErrNotAcquired }

// MaxFence limits the raw fence of a driver, so that the fence of a lease, which
// has 12 bits more, stays below 2^63.
const MaxFence = 1 << 51

// FenceEpoch is 2026-01-01 UTC in Unix µs. Fences that are seeded with a clock
// count microseconds from here.
const FenceEpoch = 1767225600 * 1_000_000

// Mode is a kind of lock, or in Capabilities a set of kinds.
type Mode uint8

// The kinds of locks.
const (
	Exclusive Mode = 1 << iota // one holder
	Shared                     // many holders, no exclusive one
	Permit                     // up to Request.Limit holders
)

// modeNames are the names of the modes, by bit.
var modeNames = []string{"exclusive", "shared", "permit"}

// String returns the mode's name. The names of a set are joined by "+".
func (m Mode) String() string {
	var names []string
	for i, name := range modeNames {
		if m&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "+")
}

// MarshalText returns the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is the inverse of MarshalText. An empty text is the empty set.
func (m *Mode) UnmarshalText(text []byte) error {
	*m = 0
	if len(text) == 0 {
		return nil
	}
next:
	for part := range strings.SplitSeq(string(text), "+") {
		for i, name := range modeNames {
			if part == name {
				*m |= 1 << i
				continue next
			}
		}
		return fmt.Errorf("dlock: unknown mode %q", part)
	}
	return nil
}

// FairMode is whether waiters are served in the order of their arrival. A higher
// value includes the lower ones.
type FairMode uint8

// The values, in ascending order.
const (
	FairNo       FairMode = iota // never
	FairOptional                 // if Request.Fair is set
	FairAlways                   // in any case
)

// Fencing is how long fences keep increasing. A higher value includes the lower
// ones.
type Fencing uint8

// The values, in ascending order.
const (
	FenceNone     Fencing = iota // no fences
	FenceVolatile                // as good as the server's memory and clock
	FenceDurable                 // as good as the server's disk
)

// Capabilities are facts about a driver on its server. The conformance suite
// proves what is claimed, and what is not claimed is refused with ErrUnsupported.
// As the argument of dlock.WithRequire they are a minimum, field by field.
//
// A server with a queue, push messages and a counter on disk could claim:
//
//	backend.Capabilities{
//		Modes:   backend.Exclusive,
//		Fair:    backend.FairOptional,
//		Fencing: backend.FenceDurable,
//		Inspect: true, List: true, Break: true,
//		Notify:  true,
//		MinTTL:  50 * time.Millisecond,
//		Late:    2 * time.Second,
//	}
//
// The zero value claims nothing but exclusion, and a driver with it is a valid
// driver.
type Capabilities struct {
	// Modes are the kinds of locks, Fair the order of waiters, Fencing the life
	// of fences.
	Modes   Mode
	Fair    FairMode
	Fencing Fencing
	// Session means that grants live and die with a connection or a process.
	Session bool
	// These are what can be done from outside of the holder; see Inspector,
	// Breaker and Mover.
	Inspect, List, Break, Move bool
	// Notify means that the server wakes Wait. Otherwise the core polls.
	Notify bool
	// MinTTL and MaxTTL limit Request.TTL. 0 is no limit.
	MinTTL, MaxTTL time.Duration
	// Late is how long after the end of its context a request may still be
	// executed. 0 means never. A ghost of an abandoned request may keep a lock for
	// as long, so the core repeats the release of such a request until Late is
	// over. Client.Close waits for the repetitions, but 5 s at most, so Late must
	// be well below 5 s. A driver limits it by the timeouts of its sockets and of
	// its server.
	Late time.Duration
}

// Unmet returns, in words, the parts of minimum that c does not have. It is empty
// if there are none. A MinTTL in minimum requires TTLs that short, a MaxTTL
// requires TTLs that long.
func (c Capabilities) Unmet(minimum Capabilities) []string {
	checks := []struct {
		bad  bool
		what string
	}{
		{minimum.Modes&^c.Modes != 0, "mode " + (minimum.Modes &^ c.Modes).String()},
		{c.Fair < minimum.Fair, "fair"},
		{c.Fencing < minimum.Fencing && c.Fencing == FenceNone, "fence"},
		{c.Fencing < minimum.Fencing && c.Fencing == FenceVolatile, "fence-durable"},
		{minimum.Session && !c.Session, "session"},
		{minimum.Inspect && !c.Inspect, "inspect"},
		{minimum.List && !c.List, "list"},
		{minimum.Break && !c.Break, "break"},
		{minimum.Move && !c.Move, "move"},
		{minimum.Notify && !c.Notify, "notify"},
		{minimum.MinTTL > 0 && c.MinTTL > minimum.MinTTL, "TTL of " + minimum.MinTTL.String()},
		{c.MaxTTL > 0 && minimum.MaxTTL > c.MaxTTL, "TTL of " + minimum.MaxTTL.String()},
	}
	var unmet []string
	for _, check := range checks {
		if check.bad {
			unmet = append(unmet, check.what)
		}
	}
	return unmet
}

// Info describes one lock.
type Info struct {
	Key   string
	Mode  Mode
	Limit int
	// Holders is empty if the lock is free.
	Holders []Holder
	// Waiters is the number of queue entries, and so of clients rather than
	// goroutines. It is -1 if unknown.
	Waiters int
}

// Holder describes one holder of a lock.
type Holder struct {
	Owner, Meta string
	// Fence is the grant's raw fence << 12; the lease's own is higher by the
	// number of its hand-off.
	Fence uint64
	Since time.Time
	// TTL is the time left; negative where unknown.
	TTL time.Duration
}

// Finding is one result of a Doctor, and reserved like it. Check names the
// setting; Severity is "error", "warning" or "ok"; Problem describes the effect on
// locks, and Remedy is what an operator can do.
type Finding struct {
	Check    string
	Severity string
	Problem  string
	Remedy   string
}
