package backend

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Term is a proof: the server keeps the grant until at least TTL after Sent.
// Sent is time.Now() just before the oldest request was written that the server's
// clock counts from: the acquire, the renewal, the last answered keep-alive of
// a shared lease or session, or, for a grant that came through Wait, the
// waiter's last answered Acquire. TTL is as granted, which may differ from
// what was asked for.
type Term struct {
	Sent time.Time
	TTL  time.Duration
}

// Renewal is one answer of RenewAll.
type Renewal struct {
	Term Term
	Err  error
}

// Request is one acquisition. The core builds it, and does not change it once
// the driver has seen it; neither does the driver.
type Request struct {
	// Key is the user's name with the client's prefix: valid UTF-8 without
	// control characters, of 1 to 1,024 bytes. The driver adds its own namespace and encodes it with
	// its server's rules.
	Key string
	// Owner is 128 random bits as 32 hex digits, new for each acquisition.
	Owner string
	// TTL is how long the server shall keep the grant without a renewal. It lies
	// within Capabilities.MinTTL and MaxTTL. Drivers round it up.
	TTL time.Duration
	// Mode is what is asked for: exactly one of the Modes.
	Mode Mode
	// Limit is the number of permits of a semaphore, 0 in other modes.
	Limit int
	// Fair asks for a place in a queue instead of a race.
	Fair bool
	// Queue says that the caller will wait: the driver may leave a queue entry.
	Queue bool
	// Meta describes the holder to Inspect.
	Meta string
	// Lost is called by the driver when the server says that the grant is gone, from
	// any goroutine; it does not block and may be called repeatedly. The core
	// sets it; tests of a raw driver may leave it nil.
	Lost func(error)
}

// Grant is the server's yes. It is immutable once returned.
type Grant struct {
	Request
	Term Term
	// Fence is greater than that of every earlier exclusive grant of the key, and
	// below MaxFence. 0 only in the modes and on the backends that give none.
	Fence uint64
	// State is the driver's own; the core hands it back.
	State any
}

// Busy is the server's no. It is an error and unwraps to ErrNotAcquired.
type Busy struct {
	// Holder is the owner or the meta of a present holder, if known.
	Holder string
	// RetryAfter is when the holder's term ends at the latest, if known, else 0.
	RetryAfter time.Duration
	// Queued says that the attempt left a queue entry, which Release removes.
	Queued bool
	// State is the driver's own; the core hands it to Wait and Release.
	State any
	// Fence is that of a present holder, raw as in Grant, if known, else 0; before a holder has drawn its own it may be
	// another. Where the core polls, another one than the last tells it that the lock is changing hands.
	Fence uint64
}

// Error names the holder, if known.
func (b *Busy) Error() string {
	if b.Holder == "" {
		return "dlock: lock not acquired: held by another"
	}
	return fmt.Sprintf("dlock: lock not acquired: held by %q", b.Holder)
}

// Unwrap returns ErrNotAcquired.
func (b *Busy) Unwrap() error { return ErrNotAcquired }

// MaxFence bounds the raw fence of a driver, so that the fence of a lease, which
// has 12 bits more, stays below 2^63.
const MaxFence = 1 << 51

// FenceEpoch is 2026-01-01 UTC in Unix µs: fences that are seeded with a clock
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

var modeNames = []string{"exclusive", "shared", "permit"}

// String returns the mode's name; names of a set are joined by "+".
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

// UnmarshalText is the inverse of MarshalText.
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

// FairMode tells whether waiters are served in the order of their arrival.
type FairMode uint8

// From the least to the most.
const (
	FairNo       FairMode = iota // never
	FairOptional                 // where Request.Fair asks for it
	FairAlways                   // in any case
)

// Fencing tells how long fences keep increasing.
type Fencing uint8

// From the least to the most.
const (
	FenceNone     Fencing = iota // no fences
	FenceVolatile                // as good as the server's memory and clock
	FenceDurable                 // as good as the server's disk
)

// Capabilities are facts about a driver on its server: what is claimed is
// proven by the conformance suite, what is not claimed is refused with
// ErrUnsupported. As the argument of dlock.WithRequire they are a field-wise
// minimum.
type Capabilities struct {
	Modes   Mode
	Fair    FairMode
	Fencing Fencing
	// Session: grants live and die with a connection or a process.
	Session bool
	// What can be shown and done from outside.
	Inspect, List, Break, Move bool
	// Notify: Wait is woken by the server. Otherwise the core polls.
	Notify bool
	// MinTTL and MaxTTL bound Request.TTL; 0 is no bound.
	MinTTL, MaxTTL time.Duration
	// Late is how long after its context has ended a request may still be executed,
	// and so how long a ghost of an abandoned request may keep a lock: the core
	// repeats the release of such a request until Late is over. Client.Close waits for
	// that, 5 s at most, so Late must be well below 5 s. A driver bounds it by the
	// timeouts of its sockets and of its server. 0: never.
	Late time.Duration
}

// Unmet lists, in words, what of minimum c does not reach; empty if nothing.
// A MinTTL in minimum asks for terms that short, a MaxTTL for terms that long.
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

// Info shows one lock.
type Info struct {
	Key     string   `json:"name"`
	Mode    Mode     `json:"mode"`
	Limit   int      `json:"limit"`
	Holders []Holder `json:"holders"`
	// Waiters counts queue entries, so clients rather than goroutines; -1 unknown.
	Waiters int `json:"waiters"`
}

// MarshalJSON writes a free lock with an empty list of holders.
func (i Info) MarshalJSON() ([]byte, error) {
	type plain Info // without this method
	if i.Holders == nil {
		i.Holders = []Holder{}
	}
	return json.Marshal(plain(i))
}

// Holder shows one holder of a lock.
type Holder struct {
	Owner, Meta string
	// Fence is the grant's raw fence << 12; the lease's own is higher by the
	// number of its hand-off.
	Fence uint64
	Since time.Time
	// TTL is the time left; negative where unknown.
	TTL time.Duration
}

// holderJSON is the wire form of Holder: fences exceed what JSON numbers keep.
type holderJSON struct {
	Owner string    `json:"owner"`
	Meta  string    `json:"meta"`
	Fence string    `json:"fence"`
	Since time.Time `json:"since"`
	TTL   int64     `json:"ttl_ms"`
}

// MarshalJSON writes owner, meta, fence (a decimal string), since (RFC 3339)
// and ttl_ms (-1 where unknown).
func (h Holder) MarshalJSON() ([]byte, error) {
	ttl := h.TTL.Milliseconds()
	if h.TTL < 0 {
		ttl = -1
	}
	return json.Marshal(holderJSON{
		Owner: h.Owner, Meta: h.Meta, Fence: strconv.FormatUint(h.Fence, 10),
		Since: h.Since.UTC(), TTL: ttl,
	})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (h *Holder) UnmarshalJSON(data []byte) error {
	var wire holderJSON
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	fence, err := strconv.ParseUint(wire.Fence, 10, 64)
	if err != nil {
		return fmt.Errorf("dlock: fence: %w", err)
	}
	*h = Holder{
		Owner: wire.Owner, Meta: wire.Meta, Fence: fence, Since: wire.Since,
		TTL: time.Duration(wire.TTL) * time.Millisecond,
	}
	return nil
}

// Finding is one thing that a Doctor found. Severity is "error", "warning" or
// "ok".
type Finding struct {
	Check    string `json:"check"`
	Severity string `json:"severity"`
	Problem  string `json:"problem"`
	Remedy   string `json:"remedy"`
}

// Counts is what a server has counted, over all its clients; -1 is unknown.
type Counts struct {
	Commands    int64 // handled since it was started
	Connections int64 // open now
}
