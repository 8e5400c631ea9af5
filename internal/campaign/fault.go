//go:build unix

package campaign

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Class describes the promises of a server under a fault.
type Class string

// The classes.
const (
	X Class = "X" // all rules hold
	F Class = "F" // exclusion is not promised; the rules b, c, d and h hold
	U Class = "U" // like F, by the nature of the server
)

// Kind is a kind of fault.
type Kind string

// The faults of a worker, of its network and of the server, and the acts of an operator.
const (
	Kill       Kind = "kill"        // SIGKILL of a holder
	KillWaiter Kind = "kill-waiter" // SIGKILL of a waiter
	Stop       Kind = "stop"        // SIGSTOP of a holder for 3 TTL
	StopShort  Kind = "stop-short"  // SIGSTOP of a holder for TTL/3: the lease is kept
	StopWaiter Kind = "stop-waiter" // SIGSTOP of a waiter for 3 TTL
	Linger     Kind = "linger"      // a critical section of 2 TTL: the lease is kept
	Cut        Kind = "cut"         // a black hole for 2 TTL
	Reset      Kind = "reset"       // all connections of a worker end with an RST
	Latency    Kind = "latency"     // replies arrive 0.7 or 1.5 TTL late
	LostReply  Kind = "lost-reply"  // requests arrive, but some replies are lost

	LateRequest Kind = "late-request" // a request is executed 2 TTL after its sending
	Fade        Kind = "fade"         // the replies to a holder become slow, then stop for 2 TTL

	PauseShort Kind = "pause-short" // the server stops for TTL/2: leases are kept
	Pause      Kind = "pause"       // the server stops for 2 TTL
	Restart    Kind = "restart"     // SIGKILL and start of the server
	LeaderKill Kind = "leader-kill" // SIGKILL of the leader, which returns later
	LeaderStop Kind = "leader-stop" // SIGSTOP of the leader for 2 TTL
	Failover   Kind = "failover"    // the primary is down for so long that a replica is promoted

	Break Kind = "break" // an operator breaks the lock
	Wipe  Kind = "wipe"  // an operator deletes the server's data of the lock
)

// kinds are all kinds of faults in the order of the reports.
var kinds = []Kind{
	Kill, KillWaiter, Stop, StopShort, StopWaiter, Linger,
	Cut, Reset, Latency, LostReply, LateRequest, Fade,
	PauseShort, Pause, Restart, LeaderKill, LeaderStop, Failover, Break, Wipe,
}

// Kinds returns all kinds of faults.
func Kinds() []Kind { return slices.Clone(kinds) }

// ParseKinds parses a comma-separated list of kinds. It returns nil for an empty list.
func ParseKinds(list string) ([]Kind, error) {
	var parsed []Kind
	for word := range strings.SplitSeq(list, ",") {
		switch k := Kind(word); {
		case word == "":
		case slices.Contains(kinds, k):
			parsed = append(parsed, k)
		default:
			return nil, fmt.Errorf("unknown fault %q; the faults are %s", word, join(kinds))
		}
	}
	return parsed, nil
}

func join[K ~string](kinds []K) string {
	words := make([]string, len(kinds))
	for i, k := range kinds {
		words[i] = string(k)
	}
	return strings.Join(words, ", ")
}

// ofWorker reports whether k affects one worker. Each other fault affects the server, and so all
// workers.
func (k Kind) ofWorker() bool { return slices.Index(kinds, k) <= slices.Index(kinds, Fade) }

// ofProcess reports whether the engine injects k by itself, because k needs only the worker's
// process.
func (k Kind) ofProcess() bool { return slices.Index(kinds, k) <= slices.Index(kinds, Linger) }

// wantsHolder reports whether k should hit a worker that holds a lock.
func (k Kind) wantsHolder() bool { return k != KillWaiter && k != StopWaiter }

// costsNoLease reports whether every lease must survive k. A process that is killed takes its
// leases with it, and no others.
func (k Kind) costsNoLease() bool {
	switch k {
	case StopShort, PauseShort, Linger, Reset, Kill, KillWaiter:
		return true
	}
	return false
}

// takesLock reports whether k takes the lock from its holder. The holder must then detect the loss.
func (k Kind) takesLock() bool { return k == Break || k == Wipe }

// length returns the duration of k.
func (k Kind) length(ttl time.Duration) time.Duration {
	switch k {
	case Stop, StopWaiter, Failover:
		return 3 * ttl
	case Cut, Latency, LateRequest, Fade, Linger, Pause, LeaderKill, LeaderStop:
		return 2 * ttl
	case LostReply, PauseShort:
		return ttl / 2
	case StopShort:
		return ttl / 3
	}
	return 0
}
