// Package engine acquires, renews, hands off and releases the locks of one client. It stands
// between the root package, which users call, and a [backend.Driver], which makes single
// attempts against a server.
//
// # Words
//
//   - owner: 128 random bits. The server stores it with a lock.
//   - acquisition: one (Key, Owner) on the server, from its first request until nothing about
//     it can arrive any more. Renewals, losses, releases and late answers belong to it.
//   - grant: the server's positive answer to an acquisition.
//   - term: the proof in a grant or in a renewal that the server keeps the lock for TTL after
//     the time at which the request was begun.
//   - fence: a number that grows with each grant; the low 12 bits count hand-offs.
//   - tenure: the time for which one holder in this process has an acquisition, from the
//     return of Lock until its last Unlock. An exclusive acquisition and a permit have one
//     tenure at a time; readers share an acquisition, and each of them has a tenure.
//   - lease: what Lock returns. A tenure has several if the lock is taken reentrantly.
//   - waiter, line: the Locks that wait for a key in this process, first come first served.
//     Only the front of the line sends requests; the server has one contender per client.
//   - queue entry: the place of an acquisition in the server's queue, if the server has one.
//   - hand-off: the grant passes to the first waiter of the line without a request.
//
// # Picture
//
//	Lock ──► line ──► front ──► acquisition ◄──────── scheduler: renew, expire, release
//	          │                  │       │
//	       waiters            tenure   term, fence    backend.Driver ──► server
//	                             │       │
//	                          leases ────┴─► Err, Lost, contexts, notes ──► Observer, logger
//
// # When a lease ends
//
// A lease ends at the first of these events, and stays ended:
//
//   - Unlock.
//   - Its deadline: the start of the last good request, plus the TTL, less a margin of 1 % and
//     10 ms; or the end of its maximum hold. The scheduler wakes at the deadline. Err, Lost,
//     Deadline, Context and Unlock compare the clocks themselves, so they are right even if
//     the scheduler has not run yet. Elapsed time is the larger of the monotonic and the
//     wall-clock time. While a lease is held, the scheduler compares the two every 50 ms and
//     so detects a suspend of the machine.
//   - The server's report that the grant is gone: the answer to a renewal or to the release,
//     or Request.Lost, which the driver calls.
//   - Close, which ends all leases with ErrClosed.
//
// The reason is one error. Err, the cause of the lease's contexts, the error of Do, the event
// and the log record all carry it. If the driver returns a mere ErrLost, the reason says which
// request detected the loss. After a missed deadline it has the text of the last renewal's error.
//
// # A renewal
//
// planRenewal sets its time: a third of the lease's life after the start of the term, ± 10 %. The
// scheduler takes it from the heap, together with the renewals that are due within TTL/30, and
// starts a goroutine for each batch. It gives a batch up shortly after the limit of its request.
// What was in a batch without an answer is then renewed alone: one lock for which the driver panics
// or does not return costs no other lock. Every answer goes through renewed. A newer term moves the
// deadline and plans the next renewal. The server's report of a loss ends the leases. After any
// other error the scheduler repeats the renewal, after growing pauses of a tenth of the TTL at
// most, until the deadline. A renewal that is answered after the deadline revives nothing.
//
// # Where a waiter waits
//
// In the line, a waiter blocks in await, on its own channel, until serve, a hand-off, a shared
// grant or an entry that passes to it gives it a turn. At the front it blocks in wait: in the
// driver's Wait, or in a pause if the driver cannot wake waiters. A Wait lasts for a third of the
// TTL at most, unless the driver says that no message of it can be lost (Busy.Reliable).
// After an error without an answer it pauses in pauseAfter.
//
// # States
//
// Every change of state is one call of on, with one event. A dot means that the event comes
// too late and has no effect. The states of an acquisition:
//
//	            grant    keep  orphan    lost  export  release    silence   settle   finish
//	requesting  granted  .     .         .     .       releasing  .         .        gone
//	granted     .        kept  orphaned  gone  gone    releasing  .         settled  .
//	kept        .        .     orphaned  gone  .       releasing  .         settled  .
//	orphaned    .        .     .         .     .       releasing  .         .        gone
//	releasing   .        .     .         .     .       .          orphaned  settled  gone
//	settled     .        .     .         .     .       repeating  .         .        .
//	repeating   .        .     .         .     .       .          settled   settled  gone
//	gone        .        .     .         .     .       .          .         .        .
//
// The events are:
//
//   - grant: the server granted it
//   - keep: it was unlocked before its minimum hold is over
//   - orphan: its time is over by the clock
//   - lost: the server reported that it is gone
//   - export: it was exported to another process
//   - release: a release begins
//   - silence: a release had no answer
//   - settle: it is released or lost, but one of its requests may still be executed
//   - finish: nothing is left to release
//
// A grant is kept if it is unlocked before its minimum hold is over. It is orphaned if its
// leases ended by the clock: the server may still have it, so it is released at the end of its
// term, or when its last holder calls Unlock. It is settled if a request of unknown outcome may
// still be executed after the release: the release is then repeated at growing intervals until
// Capabilities.Late is over.
//
// A tenure is pending until its waiter has taken it. Then it is held, until it is unlocked, lost or
// closed:
//
//	         take  end
//	pending  held  over
//	held     .     over
//	over     .     .
//
// A lease is dropped if the garbage collector finds it. It ends if it is lost or closed; its Unlock
// may come after that:
//
//	          drop     end    unlock
//	held      dropped  ended  unlocked
//	dropped   .        ended  unlocked
//	ended     .        .      unlocked
//	unlocked  .        .      .
//
// # A cancelled Lock
//
// A waiter in the line leaves the line; no request was sent for it. If it had received its turn
// in the same instant, it passes the turn on. At the front, Lock returns at once, even if its
// grant is under way; the late answer is dropped. If the next waiter has equal settings, the
// acquisition passes to it: that waiter repeats the request under the same owner, and so gets
// the queue entry, or the grant that was under way. Otherwise the acquisition is released in
// the background, and the repetitions of the release remove what the server grants late.
//
// # A hand-off
//
// A hand-off ends the tenure of an acquisition and begins another one, with the next fence, the
// next holder's settings and its leases. Owner, grant, term, renewals and releases stay those
// of the acquisition, so nothing is re-routed. It is limited by number, by 100 ms or a tenth of
// the TTL, and to the first half of the term.
//
// # Readers, permits, several names
//
// A shared grant or a permit does not exclude the next waiter of the line, so its acquisition
// leaves the front as soon as it is granted. A reader that comes while a shared grant is young
// begins a tenure on it without a request, with the limits of a hand-off. A permit is handed off
// to the waiter behind the front, which requests another permit meanwhile. A request of
// another kind or limit than the front's is sent at once, so that the server reports the conflict.
// AcquireAll waits for one of its locks at a time, while it holds none of the rest: for its lowest
// lock, so that calls do not keep each other from all of their locks. If the driver is a Combiner,
// the attempt for the rest is one request, and so is the release of all. Each lock still has its
// own acquisition. A repetition of its release, and all that follows, is about it alone.
//
// # Downgrade, Export, Adopt
//
// A grant is pinned before its request is sent: from then on the server may have a reader, or
// another process's grant, under its owner. So it is not handed off any more, whatever the outcome.
// Until the answer no other lease joins it, and no other Downgrade or Export begins. After a
// Downgrade of unknown outcome the grant has either mode: the lease goes on as a writer's, no
// writer joins it, and the caller repeats the Downgrade before an Export. After an Export of
// unknown outcome the lease has ended, and its grant is released. An adopted grant is a pinned
// acquisition outside of the line.
//
// # Goroutines
//
// A held lock and a waiter have none. All of these but the last two end with Close:
//
//   - The scheduler: one, from New to Close. It keeps acquisitions in a heap by their next
//     deadline, renewal or release, and never calls the driver itself.
//   - Renewals: two per batch of equal TTL, one of which calls the driver; or up to 16 for renewals
//     that are sent one by one. Each request is limited by TTL/3 and 5 s.
//   - Releases in the background: 64, not counting releases that have waited for more than 100 ms,
//     so that a silent server does not delay releases on another one. A release lasts for 5 s at
//     most. So while a server is silent there are up to 640 more each second, and 3,200 in all.
//     Close begins 1,024 in place of the 64.
//   - The release of an Unlock with a context that can end: one, for the TTL or 5 s at most.
//   - The releases of UnlockAll, and of a round of AcquireAll that failed: one, or one each if
//     the driver is not a Combiner.
//   - The watch of a loop over Client.Observe: one each, if the driver can report changes. It ends
//     with the loop, too.
//   - The end of a context of a lease: one each, because a parent of the user's takes part.
//   - Notes: one while there are notes for an Observer or a logger. Close waits 100 ms for it.
//   - Calls of a driver that do not return. Close waits one second for them.
//
// # Locking
//
// e.mu guards all state. It is never held while code of a driver or a user runs: no request, no
// context of a user, no Observer, no logger. A method that requires it has the sentence "e.mu
// must be held." in its comment. e.unlock ends the contexts of ended leases after it has
// released the mutex, and completes Close when nothing is left to wait for.
//
// # Files
//
// Functions call functions of the files above them, with a few exceptions, which docs/design.md
// names:
//
//	errors.go       errors of the engine
//	clock.go        deadlines, margins, limits
//	engine.go       Engine, its settings, Enter and Leave
//	notify.go       notes for Observer and logger
//	state.go        the tables of states
//	tenure.go       a holder's time
//	scheduler.go    the scheduler and renewals
//	queue.go        the lines and hand-offs
//	release.go      releases and their repetition
//	acquisition.go  an acquisition: its grant, its loss, its end
//	lease.go        Lease: Err, Lost, Context, Extend, Unlock, reentrancy
//	close.go        Close and the loops over List
//	watch.go        the calls of a driver's Watch
//	pace.go         backoff and jitter of a waiter
//	contend.go      Acquire: the loop of the front of a line
//	move.go         Downgrade, Export, Adopt
//	together.go     requests for several acquisitions
//	all.go          AcquireAll and UnlockAll: rounds, and the lock to wait for
package engine
