package engine

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
)

// acquisition is one (Key, Owner) on the server, for as long as anything about it can still
// arrive: from its first request to the last repetition of its release. Renewals, losses,
// releases and late answers belong to it. A local hand-off gives it another tenure and changes
// nothing else.
//
// e.mu guards all fields except engine, which does not change, and *asking. The goroutine that
// requests or releases a reads lock and grant without it: lock does not change once a is granted,
// and only a Downgrade of a held lease changes grant after that.
type acquisition struct {
	engine  *Engine
	lock    *Lock // the settings in its requests
	line    *line // it stands at the front of this line; nil: it has left, or never stood there
	*asking       // nil once it is granted

	state    state
	mode     backend.Mode // of the grant; see eitherMode
	pin      pin
	renewing bool  // a renewal of the scheduler's is under way
	silent   int8  // batches in a row that had no answer for it
	repeat   bool  // an attempt may be executed late, so the release has to be repeated
	overdue  error // the reason of the loss if no renewal succeeds; nil: errTermOver
	reason   error // of its loss, from the server; nil: none was reported
	grant    *backend.Grant
	term     backend.Term // the newest proof

	tenure *tenure // the newest; nil: not granted yet
	first  tenure  // most acquisitions have no other; see tenure.first

	planned    time.Time // when the next renewal, or later the next release, is due
	until      time.Time // the last repetition; zero: no release was answered yet
	failures   int32     // failed renewals since the last success
	ended      int32     // leases that ended before their Unlock, which may still come
	unanswered int32     // releases that may have been executed without an answer
	silences   int32     // releases without an answer

	timing
}

// asking is what an acquisition needs until it is granted: a process may hold many locks. The
// goroutine that acquires owns it while the state is requesting. busy has the driver's position in
// the server's queue. attempted means that a request may still be executed, so that a release has
// to be repeated.
type asking struct {
	silence
	request      backend.Request
	busy         *backend.Busy // the newest answer of that kind
	attempted    bool          // the outcome of a request is unknown
	uncertain    bool          // the same for a request since the last answer
	requested    bool          // firstBound is used
	notProlonged bool          // the last renewal of a late grant failed: see silenceOfLoss
	firstBound   bound.Bound   // of the first attempt
}

// silence is a time in which the server does not answer. A request that it did not execute counts
// as one without an answer. After one TTL of it, a waiter gives up.
type silence struct {
	answered time.Time // when the server last answered, or should have
	failure  error     // of the requests since then; nil: none has failed
	stops    int       // late returns since then that counted as stops of the process
}

// newAcquisition makes an acquisition with a new owner at the front of ln. s is the silence of the
// server until now. It sends nothing. Request.Lost is set from the first request on, because the
// server may report a loss before the driver has returned the grant: checkGrant refuses such a
// grant.
func (e *Engine) newAcquisition(l *Lock, ln *line, wait bool, s silence) *acquisition {
	var bits [16]byte
	_, _ = rand.Read(bits[:]) // never fails, by its documentation
	var owner [2 * len(bits)]byte
	hex.Encode(owner[:], bits[:])
	a := &acquisition{
		engine: e, lock: l, line: ln, mode: l.mode(), asking: &asking{silence: s},
	}
	a.request = backend.Request{
		Key: l.Key, Owner: string(owner[:]), TTL: l.TTL + l.LockDelay, Mode: l.mode(),
		Limit: l.Limit, Fair: l.Fair, Queue: wait, Meta: l.Meta, Lost: a.onLost,
	}
	return a
}

// onLost is Request.Lost: the driver calls it when the server reports that the grant is gone. The
// driver may call it on any goroutine, and at any time after the request was sent. It blocks for
// e.mu and, while contexts end, for endTimeout at most.
func (a *acquisition) onLost(cause error) {
	reason := reportedLoss(cause)
	e := a.engine
	e.mu.Lock()
	defer e.unlock()
	a.markLost(reason)
}

// pin is how far a grant is bound to its lease. A grant is never loose again: after an unknown
// outcome the server may have changed it.
type pin uint8

const (
	loose       pin = iota // it takes part in hand-offs, and readers may share it
	pinned                 // it does not
	inDowngrade            // the same, and a Downgrade is under way
	inExport               // the same, and an Export is under way
)

// isMoving reports whether a request is under way that changes the grant.
func (p pin) isMoving() bool { return p >= inDowngrade }

// markLost ends the leases of a because the server reported that the grant is gone. If a is not
// live, markLost only stores the reason: checkGrant refuses a grant that is lost already, and a
// release that finds nothing returns the reason. If an Export is under way, the server may have
// executed it, so the grant is released like a grant that may come late. e.mu must be held.
func (a *acquisition) markLost(reason error) {
	a.reason = reason
	if !a.live() {
		return
	}
	a.endTenures(reason)
	if a.repeat || a.pin == inExport {
		a.settle()
		return
	}
	a.on(lostEvent)
}

// expire ends the leases of a if their time is over, and then returns the reason. The grant may
// still exist, so expire plans its release for the end of the term. Every method that reports about
// a lease calls it first, so a late scheduler makes no lease last longer. It does not release at
// once, because the holder may still use what the lock protects: the rest of the term is its time
// to stop. The last holder's Unlock releases earlier. e.mu must be held.
func (a *acquisition) expire(now time.Time) error {
	if !a.live() {
		return nil
	}
	reason := a.expiry(now)
	if reason == nil {
		return nil
	}
	a.endTenures(reason)
	a.on(orphanEvent)
	a.planned = a.term.Sent.Add(a.term.TTL)
	a.schedule()
	a.leaveToTerm()
	return reason
}

// endTenures ends the leases of a for good. The next waiter of the line gets its turn. If a waiter
// has not taken the tenure yet, that waiter keeps its place at the front and tries again. e.mu
// must be held.
func (a *acquisition) endTenures(reason error) {
	if t := a.tenure; t.state == pending {
		t.line, a.line = a.line, nil // the release of a must not leave the place of the waiter
	}
	for t := a.tenure; t != nil; t = t.next {
		if t.state != over {
			t.end(reason)
		}
	}
	a.leave(turn{kind: requestTurn})
	if reason != backend.ErrClosed { //nolint:errorlint // e.mu is locked, and no reason wraps it
		a.engine.warn(a.tenure.lock, "dlock: lease lost", reason)
	}
}

// accept makes a grant live and puts its lease into ref. A grant that came through Wait (waited) is
// renewed soon. It is stored before it is checked, so that the caller, which gives up after an
// error, also releases it.
func (a *acquisition) accept(l *Lock, grant *backend.Grant, waited bool, ref *Ref) error {
	e := a.engine
	e.mu.Lock()
	defer e.unlock()
	now := e.now()
	a.grant, a.term, a.repeat = grant, grant.Term, a.attempted
	if err := a.checkGrant(now); err != nil {
		return err
	}
	a.on(grantEvent)
	a.asking = nil
	t := a.begin(l, now, 0)
	a.planRenewal()
	if waited {
		a.planned = earlier(a.planned, now.Add(firstRenewal))
	}
	t.hold(ref)
	a.open(now)
	a.schedule()
	return nil
}

// checkGrant returns an error if the grant of a is unusable. After errBroken or errLate another
// owner may succeed. A fence below MaxFence leaves room for HandoffBits below 2^63. e.mu must be
// held.
func (a *acquisition) checkGrant(now time.Time) error {
	e := a.engine
	if err := a.checkOwner(a.grant); err != nil {
		a.grant = nil
		return err
	}
	switch {
	case a.grant.Fence >= backend.MaxFence:
		return fmt.Errorf("%w: the server's fence %d is not below 2^51",
			backend.ErrConflict, a.grant.Fence)
	case a.grant.Fence == 0 && e.caps.Fencing != backend.FenceNone:
		return fmt.Errorf("%w: the server gave no fence", backend.ErrConflict)
	case a.reason != nil:
		return errBroken
	case a.expiry(now) != nil:
		return errLate
	case e.closing.Err() != nil:
		return backend.ErrClosed
	}
	return nil
}

// checkOwner returns an error for the grant of another lock or another owner, by a mistake in the
// driver. It must not be renewed or released; what the request has left is. No waiter takes the
// owner over.
func (a *acquisition) checkOwner(grant *backend.Grant) error {
	if !isOther(grant, &a.request) {
		return nil
	}
	a.attempted, a.uncertain = true, true
	return fmt.Errorf("%w: %w", backend.ErrConflict, errOther(grant))
}

// errOther returns the error of a driver that mixed its answers up.
func errOther(grant *backend.Grant) error {
	return fmt.Errorf("the driver returned the grant of the owner %q of %q", grant.Owner, grant.Key)
}

// isOther reports whether a grant is not an answer to a request.
func isOther(grant *backend.Grant, req *backend.Request) bool {
	return grant.Key != req.Key || grant.Owner != req.Owner
}

// currentGrant returns the grant while leases stand on a. A Downgrade changes it.
func (a *acquisition) currentGrant() *backend.Grant {
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	return a.grant
}
