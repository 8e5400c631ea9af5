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
//   - term: the period for which a grant or a renewal proves that the server keeps the lock:
//     the TTL and the lock-delay, from the time at which that request was begun. The grant of a
//     queue entry can come late in its term.
//   - fence: a number that grows with each grant of the server and, in its low 12 bits, with
//     each hand-off of that grant.
//   - tenure: the time for which one holder in this process has an acquisition, from the grant
//     or the hand-off until the last of the holder's leases ends. An exclusive acquisition and a
//     permit have one tenure at a time; readers share an acquisition, and each has a tenure.
//   - kind: exclusive, shared, or a permit with its limit.
//   - lease: what Lock returns. A tenure has several if the lock is taken reentrantly.
//   - waiter, line: the Locks that wait for a key in this process, first come first served.
//     Only the front of the line sends requests, so the server has one contender for each key
//     and client. "Readers, permits, several names" has the exceptions.
//   - queue entry: the place of an acquisition in the server's queue, if the server has one.
//   - hand-off: an Unlock passes the grant to a waiter of the line without a request.
//   - pinned grant: a Downgrade, an Export or an Adopt has changed it; it is not handed off.
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
//   - Unlock, or an Export to another process. The reason is then ErrNotHeld.
//   - Its deadline: the end of the term, less the lock-delay and a margin of 1 % of the TTL and 10
//     ms; or, if that is earlier, the end of the maximum hold that the user has set for it. The
//     scheduler wakes at the deadline and ends the lease: the channel of Lost is closed, and its
//     contexts end. The methods of a lease compare the clocks themselves, so they are right even if
//     the scheduler has not run yet. Elapsed time is the larger of the monotonic and the wall-clock
//     time. While there is a grant with a deadline, the scheduler compares the two every 50 ms and
//     so detects a suspend of the machine. It then ends what is over, and renews the rest at once.
//   - The server's report that the grant is gone: the answer to a renewal, a Downgrade or an
//     Export, or a call of the function Request.Lost by the driver.
//   - Close, which ends all leases with ErrClosed.
//
// A lease that ends by its deadline or by a report is lost: its reason wraps ErrLost. If the answer
// to the release is the first report of a loss, Unlock returns it, and it becomes the reason; the
// contexts have ended before that, with ErrNotHeld as their cause. A lease that the user forgot
// without Unlock, as the garbage collector detects, is dropped. If all leases of an acquisition are
// dropped, it is renewed no more, once its minimum hold is over: they end at their deadline, and it
// is released at the end of the term.
//
// The reason of any other loss is one error. Err, the cause of the lease's contexts, the error of
// Do, the event and the log record all carry it. If the driver's error is ErrLost without a text,
// the reason says which request detected the loss. At the end of the term it has the text of the
// last renewal's error, if that failed.
//
// # A renewal
//
// planRenewal sets the time of the renewal: after a third, ± 10 %, of the time from the start of
// the term to the deadline. The scheduler takes it from the heap, together with the renewals that
// are due within TTL/30, and starts goroutines for each batch of equal TTL. They give the batch up
// shortly after the limit of its request. The members of a batch without an answer are then renewed
// alone: one lock for which the driver panics or does not return costs no other lock. newAnswer
// reads each answer, and renewed or renewedAll handles it. A newer term moves the deadline and
// plans the next renewal. The server's report of a loss ends the leases. After any other error the
// scheduler repeats the renewal, after growing pauses of a tenth of the TTL at most, until the
// deadline. A renewal that is answered after the deadline revives nothing.
//
// A grant can come with a short rest of its term, because the waiter stood in the server's queue.
// Lock then renews it before it returns the lease: prolongOnce does so on the goroutine of Lock,
// and handles the answer itself, because no lease stands on the grant yet.
//
// # Where a waiter waits
//
// In the line, a waiter blocks in await, on its own channel, until serve, a hand-off, a shared
// grant or an entry that passes to it gives it a turn: the right to go on, mostly at the front. At
// the front it blocks in wait: in the driver's Wait, or in a pause if the driver cannot wake
// waiters. A Wait lasts for about a third of the TTL, unless the driver says that no message to the
// waiter can be lost (Busy.Reliable). After an error without an answer, a waiter pauses in
// pauseAfter. If the server has not answered for one TTL, Lock returns ErrUnavailable.
//
// # States
//
// Every change of state is one call of on, with one event. A dot means that the event cannot come
// in this state, or comes too late, and has no effect. The states of an acquisition:
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
//   - keep: it was unlocked, or ended by Close, before its minimum hold is over
//   - orphan: its deadline is over
//   - lost: the server reported that it is gone
//   - export: it was exported to another process
//   - release: a release begins
//   - silence: a release had no answer
//   - settle: it is released or lost, but a request for it may still be executed
//   - finish: nothing is left to release
//
// A grant is kept if it is unlocked before the minimum hold that the user has set is over. It is
// orphaned if its leases ended at the deadline, or if a release of it had no answer: the server may
// still have it. In the first case it is released at the end of its term or, without a lock-delay,
// when its last holder calls Unlock, and in the second case again after a pause that grows. It is
// settled if a request of unknown outcome may still be executed after the release. The release is
// then repeated at growing intervals for Capabilities.Late, the longest delay after which the
// server executes a request.
//
// A tenure that comes by a hand-off is pending until the waiter's Lock has taken it. Then it is
// held, until its last lease ends:
//
//	         take  end
//	pending  held  over
//	held     .     over
//	over     .     .
//
// A lease is unlocked by its user's Unlock, or ended by a loss, an Export or Close. The first
// Unlock after that end returns the reason, and any further one ErrNotHeld:
//
//	          drop     end    unlock
//	held      dropped  ended  unlocked
//	dropped   .        ended  unlocked
//	ended     .        .      unlocked
//	unlocked  .        .      .
//
// # A cancelled Lock
//
// Lock is cancelled when its context ends, and by Close. It then returns the error of the context,
// or ErrClosed, and ErrUncertain with it if the outcome of a request is unknown. A waiter in the
// line leaves the line; no request was sent for it. If it had received its turn in the same
// instant, it passes the turn, or the grant that came with it, on.
//
// At the front, the request is a call of the driver on the goroutine of Lock. The driver returns
// when the context ends, even if the server is granting the lock at that moment, and Lock returns
// at once. If the driver returns a grant nevertheless, Lock returns the lease. An answer that comes
// later is dropped, so the outcome of that request is unknown. The acquisition is then released in
// the background, and the repetitions of the release remove what the server grants late. The next
// waiter has another owner: if it repeated the request, it could prolong a grant of which no client
// knows.
//
// If the server has answered the last request, Lock is cancelled in the driver's Wait or in a
// pause. An acquisition with a queue entry then passes to the next waiter, with the entry, if both
// wait and have equal TTL, lock-delay, meta, kind and fairness. That waiter goes on under the same
// owner. Otherwise the acquisition is released in the background. If nothing of it is on the
// server, it is gone, and no request follows.
//
// # A hand-off
//
// The last Unlock of an exclusive lock hands its grant off to the first waiter of the line, if that
// waiter has equal TTL, lock-delay, meta and kind. One tenure of the acquisition ends, and another
// one begins, with the next fence, its own leases, and the other settings of its holder. Owner,
// grant, term, renewals and releases belong to the acquisition and stay, so answers to requests
// that are under way still find it.
//
// Other processes get their turn, because a hand-off needs all of this:
//
//   - The number of hand-offs of the grant is below the limit that the holder has set.
//   - Less than 100 ms, and less than a tenth of the TTL, has passed since the grant.
//   - Less than half of the TTL has passed since the start of the newest term.
//
// Otherwise the grant is released, and the first waiter sends a request of its own. If the server
// has no order of waiters, that request follows after a pause of 5 ms at most, so that another
// process may come first. Fair locks, and locks with a minimum hold or without renewals, are not
// handed off.
//
// # Readers, permits, several names
//
// A shared grant or a permit does not exclude the next waiter of the line, so its acquisition
// leaves the front as soon as it is granted. A reader that comes while the grant is young enough
// for a hand-off begins a tenure on it without a request, and with the same fence, unless one of
// the two locks has a maximum hold. A permit is handed off to the first waiter behind the front:
// the front is requesting another permit meanwhile. Outside of the line, at once, goes a request
// with another limit than the front's, so that the server reports the conflict. So does an attempt
// that does not wait, for a permit or a shared lock, while the front requests the same and no
// writer waits. AcquireAll waits for a lock only while it holds no other. As a rule it waits for
// the lock whose key is the lowest, so that calls do not keep each other from all of their locks;
// all.go has the exceptions. If the driver is a Combiner, the attempt for the rest is one request,
// and so is the release of all. Each lock still has its own acquisition. A repetition of its
// release, and all that follows, is about it alone.
//
// # Downgrade, Export, Adopt
//
// A grant is pinned before a Downgrade or an Export of it is requested: from then on the server may
// have a reader, or another process's grant, under its owner. So it is not handed off any more,
// whatever the outcome. Until the answer no other lease joins it, and no other Downgrade or Export
// begins. After a Downgrade of unknown outcome the grant has either mode: the lease goes on as a
// writer's, no writer joins it, and an Export is refused until the caller has repeated the
// Downgrade. After an Export of unknown outcome the lease has ended, and its grant is released. An
// adopted grant is a pinned acquisition outside of the line.
//
// # Goroutines
//
// A held lock and a waiter have none: requests for a lock, Wait, Extend, and the release of an
// Unlock whose context cannot end, or has ended, run on the caller's goroutine. The engine starts
// those below. Functions of the engine also run on goroutines of a driver, which reports a loss,
// and of the runtime, which finds a forgotten lease.
//
// Close first ends the waiting and the requests of all Locks, and all leases. It then waits until
// all calls have returned and the locks are released, for 5 s after the last minimum hold; Shutdown
// waits until its context ends. Then Close ends the contexts of all goroutines and joins them.
// After one second it leaves those that are in code of a driver or of a user that does not return.
// Close of the driver follows, for which it waits for 5 s at most.
//
//   - The scheduler: one, from New to Close. It keeps acquisitions in a heap by their next
//     deadline, renewal or release, and never calls the driver itself.
//   - Renewals: two per batch of equal TTL. The second calls the driver, and the first waits for it
//     no longer than the limit of the request, TTL/3 and 5 s at most. A batch that is sent one by
//     one has up to 16 instead, and up to 1,024 that have lasted for more than 100 ms.
//   - Releases in the background: 64, not counting those that have lasted for more than 100 ms, so
//     that a silent server does not delay the releases on another server of the same client. A
//     release lasts for 5 s at most, so a silent server has up to 3,200. During Close the number is
//     1,024 instead of 64.
//   - The release of an Unlock whose context can end, and has not ended yet: one, for the TTL or 5
//     s at most, because Unlock returns when its context ends. One of these goroutines stays until
//     Close, and executes the next such release.
//   - The releases of UnlockAll, and of a round of AcquireAll that failed: two for one request of a
//     Combiner, as for a batch of renewals; otherwise, or without an answer, one each.
//   - The watch of a loop over Client.Observe: one, if the driver can report changes. It ends with
//     the loop, too.
//   - The contexts of leases that have ended: one for each context, which ends it, because a
//     parent of the user's type takes part in that.
//   - Close: two, of which the first joins all goroutines above and the second calls the driver's
//     Close.
//   - Notes: one while there are notes for an Observer or a logger. Close waits 100 ms for it. It
//     ends when the Observer and the logger have received them, and so it can outlive Close.
//   - Callbacks: one of a timer gives the place of a release or a renewal that has lasted for 100
//     ms to the next one, and one of a context ends a caller's request at Close. They call no
//     driver.
//
// # Locking
//
// e.mu guards all state. It is never held while code of a driver or a user runs: no request, no
// context of a user, no Observer, no logger. A function that requires it has the sentence "e.mu
// must be held." in its comment. When a lease ends, its contexts are noted under e.mu. e.unlock
// then starts the goroutines that end them, and waits for them for 5 ms at most after it has
// released the mutex. It also completes Close when nothing is left to wait for.
//
// # Files
//
// Functions call functions of the files above them, with a few exceptions, which docs/design.md
// names:
//
//	errors.go       errors of the engine
//	clock.go        deadlines, margins, limits, backoff and jitter
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
//	pace.go         how long a waiter waits and pauses
//	contend.go      Acquire: the loop of the front of a line
//	move.go         Downgrade, Export, Adopt
//	together.go     requests for several acquisitions
//	all.go          AcquireAll and UnlockAll: rounds, and the lock to wait for
package engine
