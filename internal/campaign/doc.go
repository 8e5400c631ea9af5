// Package campaign tests whether a lock keeps its promises while processes, networks and servers
// fail. Worker processes lock, hold, write to a fenced resource and die under a seeded schedule of
// faults. The engine records their actions as a history. Judge checks the history against the
// rules.
//
// # Rounds
//
// A campaign is a sequence of rounds. Each round has lock names that no other round uses, one kind
// of lock, a phase of faults, and a phase without faults in which the lock must recover. All faults
// of a round have the same class:
//
//   - X: exclusion and all other rules must hold.
//   - F: the server cannot promise exclusion under this fault. Overlaps are figures, in
//     milliseconds. The rules b, c, d and h must hold.
//   - U: like F, because of the nature of the server.
//
// # Kinds of locks
//
// Each kind of lock is one value in lock.go. It has the function that acquires the lock, the number
// of holders that may overlap, and the pairs of holders that share the lock. The rules and the
// porcupine model read these, so that all kinds have the same rules. A call that takes several
// names has one grant for each name, with the same times. An Adopt and a Downgrade begin a grant
// that continues another one: see move.go.
//
// # Rules
//
//   - a: no more holders than the kind of lock admits believe in their leases at the same time. The
//     leases of a set begin and end together. A handle is adopted once, and no worker gets the lock
//     between an Export and its Adopt. A process that was stopped for longer than its term
//     detects the loss within 60 ms of waking. A holder whose lock was deleted detects the loss
//     within TTL/3.
//   - b: fences are unique and increase in the order of the grants. Readers may have equal fences.
//   - c: the fenced resource accepts no stale write, refuses no valid write and loses no update.
//   - d: a free lock with a waiter is granted within the server's expiry plus 500 ms, also after a
//     fault. If nothing has failed recently, the next waiter gets it within TTL/4 of an Unlock.
//   - e: the history is linearizable for a fenced lock of its kind; porcupine checks this. The
//     result Unknown is a violation.
//   - f: Unlock and Export never return nil after the next grant.
//   - g: a worker leaks no goroutine, file or connection, and no lock stays on the server.
//   - h: no worker hangs, panics or exits by itself.
//   - k: a lease is lost, and a Lock or an Adopt refused, only if a fault explains it.
//
// # Times
//
// All times are readings of CLOCK_MONOTONIC. The processes of one machine share this clock, so
// times of different processes can be compared. Each process also records how late its own
// goroutines run. A time beyond a limit is a violation only as far as it exceeds that lag. The end
// of a lost lease is moved back by the delays just before its record, and by 5 ms.
package campaign
