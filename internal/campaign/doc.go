// Package campaign tests whether a lock keeps its promises while everything around it fails. Worker
// processes lock, hold, write to a fenced resource and die under a seeded schedule of faults. What
// they do is recorded as a history, and the history is judged.
//
// # Rounds
//
// A campaign is a sequence of rounds. Each round has lock names that no other round uses, a phase
// of faults, and a phase without faults in which the lock must recover. All faults of a round have
// the same class:
//
//   - X: exclusion must hold, and so must every other rule.
//   - F: the server cannot promise exclusion under this fault. Overlaps are figures, in
//     milliseconds. The rules b, c, d and h must hold.
//   - U: as F, because of the nature of the server.
//
// # Rules
//
//   - a: no two holders believe in their leases at once. A process that was stopped for longer than
//     its term learns of the loss within 60 ms of waking. A holder whose lock was deleted learns of
//     it within TTL/3.
//   - b: fences are unique and increase in the order of the grants.
//   - c: the fenced resource accepts no stale write, refuses no valid write and loses no update.
//   - d: a lock that is wanted and free is granted within the server's expiry and 500 ms, also
//     after a fault. Where nothing has failed lately, the next waiter has it within TTL/4 of an
//     Unlock.
//   - e: the history is linearizable for a fenced mutex, judged by porcupine. Unknown is a
//     violation.
//   - f: Unlock never returns nil after the next grant.
//   - g: nothing leaks: goroutines, files and connections of a worker, and locks.
//   - h: no worker hangs, panics or exits by itself.
//   - k: a lease is kept unless a fault explains its loss.
//
// # Times
//
// All times are CLOCK_MONOTONIC, which the processes of one machine share, so times of different
// processes compare. Each process also records how late its own goroutines run. A finding in time
// counts only as far as it exceeds that lag.
package campaign
