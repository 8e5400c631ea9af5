package engine

import "time"

// tenure is the time for which one holder in this process has an acquisition, from the grant or the
// hand-off until the last of the holder's leases ends. An exclusive acquisition has one at a time,
// a shared one may have many. e.mu guards it, except acq, fence and local, which do not change, and
// lock. Only AcquireAll changes lock, before it returns the lease.
type tenure struct {
	acq *acquisition
	// The tenures of a shared acquisition are a list, the newest first. Only the last one of an
	// acquisition stays in the list when it is over.
	next, prev *tenure

	lock  *Lock // of the holder
	start time.Time
	fence uint64
	local int32 // hand-offs since the server's grant

	state  tenureState
	silent bool      // it was unlocked, and its end is noted with the outcome of the release
	line   *line     // its waiter stands at the front, if it ended before the waiter took it
	proven time.Time // its last deadline, once it is over
	leases *Lease    // the list of held ones, the newest first
	// first, with acquisition.first, saves 2 of 10 allocations of a pair of Lock and Unlock: most
	// acquisitions have one tenure with one lease.
	first Lease
}

// begin starts a tenure of a after the given number of hand-offs. It replaces the newest tenure if
// that is over, and otherwise comes before it in the list. The new tenure is pending. Its fence is
// 0 if the driver has no fences. e.mu must be held.
func (a *acquisition) begin(l *Lock, now time.Time, handoffs int) *tenure {
	t := &a.first
	if a.tenure != nil {
		t = new(tenure)
	}
	t.acq, t.lock, t.start, t.local = a, l, now, int32(handoffs)
	if f := a.grant.Fence; f != 0 {
		t.fence = f<<HandoffBits | uint64(handoffs)
	}
	if last := a.tenure; last != nil && last.state != over {
		t.next, last.prev = last, t
	}
	a.tenure = t
	return t
}

// isAlone reports whether a has no other tenure than t that is not over. e.mu must be held.
func (t *tenure) isAlone() bool { return t.next == nil && t.prev == nil }

// unlink takes t, which is over and not alone, out of the list of its acquisition. e.mu must be
// held.
func (t *tenure) unlink() {
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		t.acq.tenure = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	}
	t.next, t.prev = nil, nil
}

// hold makes t held and puts its first lease into ref. e.mu must be held.
func (t *tenure) hold(ref *Ref) {
	t.on(takeEvent, t.start)
	t.share(ref)
}

// covers returns an error if l requires a hold or a lock-delay that t does not have. e.mu must be
// held.
func (t *tenure) covers(l *Lock) error {
	maxHold := t.lock.MaxHold
	if l.MinHold > t.lock.MinHold || l.LockDelay > t.lock.LockDelay ||
		l.MaxHold > 0 && (maxHold == 0 || maxHold > l.MaxHold) {
		return errOtherHold
	}
	return nil
}

// share puts another lease on t into ref. e.mu must be held.
func (t *tenure) share(ref *Ref) {
	l := &t.first
	if l.tenure != nil {
		l = new(Lease)
	}
	l.tenure, l.ref, l.next = t, ref, t.leases
	ref.lease, t.leases = l, l
}

// remove takes l out of the list of leases. e.mu must be held.
func (t *tenure) remove(l *Lease) {
	place := &t.leases
	for *place != nil && *place != l {
		place = &(*place).next
	}
	if *place == l {
		*place, l.next = l.next, nil
	}
}

// end ends t and all its leases for the given reason. acq.ended then counts the leases whose Unlock
// is still to come; a dropped lease is not among them. If the beginning of a lease is not noted
// yet, announce notes its end afterwards. e.mu must be held.
func (t *tenure) end(reason error) {
	e := t.acq.engine
	t.on(endEvent, e.now())
	for l := t.leases; l != nil; l = l.next {
		if l.state == leaseHeld {
			t.acq.ended++
		}
		l.on(leaseEndEvent) // no effect if it was unlocked as Close began
		l.end(reason)
		if !l.trial && (l.announced || !e.notes.handles(Acquired)) {
			e.noteEnded(t, reason)
		}
	}
	t.leases = nil
}

// renews reports whether a needs renewals: its minimum hold is not over, or it has a lease that was
// not dropped, or its waiter is about to take it. A dropped lease is not renewed, so a lock whose
// holder forgot to unlock it becomes free at the end of its term. During an Export no renewal
// begins: its loss could mean that the grant has moved. e.mu must be held.
func (a *acquisition) renews() bool {
	if a.state == kept {
		return true
	}
	if a.state != granted || a.tenure.lock.NoRenewal || a.pin == inExport {
		return false
	}
	for t := a.tenure; t != nil; t = t.next {
		if t.isInUse() {
			return true
		}
	}
	return false
}

// isInUse reports whether t has a lease that was not dropped, or a waiter that is about to take it,
// or a minimum hold that is not over. e.mu must be held.
func (t *tenure) isInUse() bool {
	for l := t.leases; l != nil; l = l.next {
		if l.state == leaseHeld {
			return true
		}
	}
	return t.state == pending || t.mustStay(t.acq.engine.now())
}

// mustStay reports whether the minimum hold of t is not over. e.mu must be held.
func (t *tenure) mustStay(now time.Time) bool { return now.Sub(t.start) < t.lock.MinHold }
