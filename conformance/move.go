package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// downgradeCases are the cases of a writer that becomes a reader.
var downgradeCases = []Case{
	{
		Name:    "DowngradedWriterAdmitsReaders",
		Mode:    backend.Shared,
		Promise: "After a Downgrade readers get the lock, and a writer only after all of them.",
		run:     downgradedWriterAdmitsReaders,
	},
	{
		Name: "DowngradeLeavesNoGap",
		Mode: backend.Shared,
		Promise: "A writer that waits during a Downgrade gets the lock when the reader leaves, " +
			"and not before.",
		run: downgradeLeavesNoGap,
	},
	{
		Name:    "DowngradeWakesReaders",
		Mode:    backend.Shared,
		Promise: "A reader that waits during a Downgrade gets the lock at once.",
		run:     downgradeWakesReaders,
	},
	{
		Name: "DowngradedGrantIsAReaders",
		Mode: backend.Shared,
		Promise: "After a Downgrade the grant has the same fence, is renewed, and is released by " +
			"its owner alone.",
		run: downgradedGrantIsAReaders,
	},
	{
		Name: "DowngradedHolderIsTheSame",
		Mode: backend.Shared,
		Promise: "After a Downgrade Inspect shows the same owner and fence, and Observe reports " +
			"no change of the holder.",
		run: downgradedHolderIsTheSame,
	},
	{
		Name:    "RepeatedDowngradeIsTheSame",
		Mode:    backend.Shared,
		Promise: "A repeated Downgrade returns the same grant with another term.",
		run:     repeatedDowngradeIsTheSame,
	},
	{
		Name:    "DowngradeOfALostGrantIsALoss",
		Mode:    backend.Shared,
		Promise: "A Downgrade of a grant that is gone returns ErrLost and admits no other client.",
		run:     downgradeOfALostGrantIsALoss,
	},
	{
		Name:    "OnlyAWriterIsDowngraded",
		Mode:    backend.Shared,
		Promise: "A Downgrade of a reader's lease is an error, and the lease stays held.",
		run:     onlyAWriterIsDowngraded,
	},
	{
		Name: "LostReplyOfADowngradeIsRepeated",
		Mode: backend.Shared,
		Promise: "Whichever answer of a Downgrade is lost, the lease stays held, and a " +
			"repetition succeeds. After ErrUnavailable no reader is admitted.",
		Faults: true,
		run:    lostReplyOfADowngradeIsRepeated,
	},
}

// moveCases are the cases of a lease that passes to another process.
var moveCases = []Case{
	{
		Name: "ExportedLockIsKept",
		Move: true,
		Promise: "No client gets an exported lock before it is adopted, also if its client is " +
			"closed. The adopter's fence is not lower.",
		run: exportedLockIsKept,
	},
	{
		Name:    "HandleIsAdoptedOnce",
		Move:    true,
		Promise: "The second adoption of a handle is ErrLost, and does not affect the first.",
		run:     handleIsAdoptedOnce,
	},
	{
		Name:    "HandleEndsWithItsTerm",
		Move:    true,
		Promise: "An exported lock is free after its term, and its handle is then ErrLost.",
		run:     handleEndsWithItsTerm,
	},
	{
		Name: "ForgedHandleIsRefused",
		Move: true,
		Promise: "A handle that was changed, or is of another prefix, is refused, and so is a " +
			"ticket of which only the owner is known.",
		run: forgedHandleIsRefused,
	},
	{
		Name:    "ExportedLeaseHasEnded",
		Move:    true,
		Promise: "The lease that was exported has ended: Err and Unlock return ErrNotHeld.",
		run:     exportedLeaseHasEnded,
	},
	{
		Name:    "FormerOwnerIsAnother",
		Move:    true,
		Promise: "After an adoption the former owner can neither renew nor release the lock.",
		run:     formerOwnerIsAnother,
	},
	{
		Name: "RepeatedAdoptionIsTheSame",
		Move: true,
		Promise: "A repeated Adopt of one owner returns its grant again with a new term, for " +
			"which the server keeps it.",
		run: repeatedAdoptionIsTheSame,
	},
	{
		Name:    "AdoptedLeaseIsRenewedAndReleased",
		Move:    true,
		Promise: "An adopted lease outlives its term by renewals, and its Unlock frees the lock.",
		run:     adoptedLeaseIsRenewedAndReleased,
	},
	{
		Name:    "HandedOffLeaseKeepsItsFence",
		Move:    true,
		Promise: "The fence of an adopted lease counts the hand-offs before the export.",
		run:     handedOffLeaseKeepsItsFence,
	},
	{
		Name:    "PermitMoves",
		Move:    true,
		Mode:    backend.Permit,
		Promise: "A permit can be exported and adopted, and stays one permit.",
		run:     permitMoves,
	},
	{
		Name:    "ReaderMoves",
		Move:    true,
		Mode:    backend.Shared,
		Promise: "A reader's lease can be exported and adopted, and excludes writers throughout.",
		run:     readerMoves,
	},
	{
		Name: "DowngradedLeaseMoves",
		Move: true,
		Mode: backend.Shared,
		Promise: "A lease can be exported and adopted after a Downgrade. Its fence is not lower, " +
			"and it admits readers and excludes writers throughout.",
		run: downgradedLeaseMoves,
	},
	{
		Name: "LateRequestsKeepTheTicket",
		Move: true,
		Mode: backend.Shared,
		Promise: "A Downgrade or a Renew that is executed after the Export of its grant leaves " +
			"the ticket good, and after the adoption it changes nothing.",
		run: lateRequestsKeepTheTicket,
	},
}

// downgrade sends a Downgrade, which must succeed.
func (f *fixture) downgrade(d backend.Driver, g *backend.Grant) *backend.Grant {
	f.Helper()
	down, ok := d.(backend.Downgrader)
	if !ok {
		f.Fatalf("the driver has readers, but is no Downgrader")
	}
	shared, err := down.Downgrade(f.ctx, g)
	if err != nil {
		f.Fatalf("Downgrade: %v", err)
	}
	return shared
}

func downgradedWriterAdmitsReaders(f *fixture) {
	d, other := f.driver(), f.driver()
	shared := f.downgrade(d, f.grant(d, f.try(f.long())))
	reader := f.grant(other, f.reader(f.long()))
	f.refused(other, f.try(f.long()))
	f.release(d, shared)
	f.refused(d, f.try(f.long()))
	f.release(other, reader)
	f.release(d, f.grantSoon(d, f.try(f.long())))
}

func downgradeLeavesNoGap(f *fixture) {
	c := f.client()
	for i := range 3 {
		name := fmt.Sprintf("%s/%d", f.name, i) // no waiter has queued for it before
		other, t := f.tapped()
		lease := f.lock(c, name)
		next := f.lockAsync(other, name)
		t.await(acquire, 1, wasBusy)
		if err := lease.Downgrade(f.ctx); err != nil {
			f.Fatalf("Downgrade: %v", err)
		}
		select {
		case <-next.done:
			f.violation("a writer got the lock of a reader")
		case <-time.After(10 * nap):
		}
		f.held(c, lease)
		f.unlock(lease)
		writer := f.granted(next, prompt)
		f.fenceGrew(lease.Fence(), writer.Fence())
		f.unlock(writer)
	}
}

func downgradeWakesReaders(f *fixture) {
	f.timed()
	for range 3 {
		c := f.client()
		other, t := f.tapped()
		lease := f.lock(c, f.name)
		var reader *dlock.Lease
		var err error
		done := async(func() { reader, err = f.rwMutex(other).RLock(f.ctx) })
		t.await(acquire, 1, wasBusy)
		time.Sleep(asleep) // harmless if it does not wait yet
		begun := time.Now()
		if err := lease.Downgrade(f.ctx); err != nil {
			f.Fatalf("Downgrade: %v", err)
		}
		if !f.doneBy(begun, "the reader has the lock", done) {
			return
		}
		if err != nil {
			f.Fatalf("RLock: %v", err)
		}
		f.unlock(lease)
		f.unlock(reader)
	}
}

func downgradedGrantIsAReaders(f *fixture) {
	d, other := f.driver(), f.driver()
	g := f.grant(d, f.try(f.long()))
	shared := f.downgrade(d, g)
	if shared.Fence != g.Fence || shared.Owner != g.Owner || shared.Mode != backend.Shared {
		f.Errorf("the grant %+v became %+v", g, shared)
	}
	if _, err := f.renew(d, shared); err != nil {
		f.Errorf("Renew: %v", err)
	}
	reader := f.grant(other, f.reader(f.long()))
	f.release(other, reader)
	if _, err := f.renew(d, shared); err != nil {
		f.Errorf("Renew after another reader has left: %v", err)
	}
	f.release(d, shared)
	f.isErr("a second release", f.tryRelease(f.ctx, d, shared), backend.ErrNotHeld)
}

func downgradedHolderIsTheSame(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client(dlock.WithTTL(f.long()))
	lease := f.lock(c, f.name)
	o := f.observe(other)
	defer o.cancel()
	isSame := func(h backend.Holder) bool {
		return h.Owner == lease.Owner() && h.Fence == lease.Fence()
	}
	_ = f.next(o)
	if err := lease.Downgrade(f.ctx); err != nil {
		f.Fatalf("Downgrade: %v", err)
	}
	info, err := other.Inspect(f.ctx, f.name)
	if err != nil || len(info.Holders) != 1 || !isSame(info.Holders[0]) {
		f.Errorf("Inspect: %+v, %v, want owner %q and fence %d",
			info, err, lease.Owner(), lease.Fence())
	}
	reader, err := f.rwMutex(other).TryRLock(f.ctx)
	if err != nil {
		f.Fatalf("TryRLock: %v", err)
	}
	info = f.next(o) // the reader is the first change
	if len(info.Holders) != 2 || !slices.ContainsFunc(info.Holders, isSame) {
		f.Errorf("with a second reader %+v is observed, want also owner %q with fence %d",
			info, lease.Owner(), lease.Fence())
	}
	f.unlock(reader)
	f.unlock(lease)
	o.cancel()
	f.within(prompt, "the loop ends", o.done)
}

func repeatedDowngradeIsTheSame(f *fixture) {
	d := f.driver()
	g := f.grant(d, f.try(f.long()))
	first := f.downgrade(d, g)
	for _, from := range []*backend.Grant{g, first} {
		again := f.downgrade(d, from)
		f.sameGrant(first, again)
		if again.Fence != g.Fence || again.Mode != backend.Shared {
			f.violation("the second Downgrade returned %+v after %+v", again, first)
		}
	}
	f.release(d, first)
}

func downgradeOfALostGrantIsALoss(f *fixture) {
	d, other := f.driver(), f.driver()
	g := f.grant(d, f.try(f.long()))
	f.release(d, g)
	_, err := d.(backend.Downgrader).Downgrade(f.ctx, g)
	f.isErr("Downgrade of a released grant", err, backend.ErrLost)
	next := f.grantSoon(other, f.try(f.long()))
	_, err = d.(backend.Downgrader).Downgrade(f.ctx, g)
	f.isErr("Downgrade of another's lock", err, backend.ErrLost)
	f.refused(d, f.reader(f.long()))
	f.release(other, next)
}

func onlyAWriterIsDowngraded(f *fixture) {
	m := f.rwMutex(f.client())
	lease, err := m.RLock(f.ctx)
	if err != nil {
		f.Fatalf("RLock: %v", err)
	}
	if err := lease.Downgrade(f.ctx); err == nil {
		f.Errorf("Downgrade of a reader succeeded")
	}
	if err := lease.Err(); err != nil {
		f.Errorf("the lease has ended: %v", err)
	}
	f.unlock(lease)
}

func lostReplyOfADowngradeIsRepeated(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client(dlock.WithTTL(f.long()))
	readers := f.rwMutex(other)
	for nth := range 3 {
		lease := f.lock(c, f.name)
		f.faults.DropReply(f, nth+1)
		for isKnown := true; ; { // that the lease is a writer's
			err := lease.Downgrade(f.ctx)
			if err == nil {
				break
			}
			isUncertain := errors.Is(err, dlock.ErrUncertain)
			if lost := lease.Err(); lost != nil || !isUncertain &&
				!errors.Is(err, dlock.ErrUnavailable) {
				f.Fatalf("Downgrade: %v, the lease: %v", err, lost)
			}
			if isKnown = isKnown && !isUncertain; isKnown {
				if _, err := readers.TryRLock(f.ctx); err == nil {
					f.violation("a reader got the lock of a writer")
				}
			}
			time.Sleep(nap)
		}
		f.settle(other)
		reader, err := readers.TryRLock(f.ctx)
		if err != nil {
			f.Fatalf("TryRLock after a Downgrade: %v", err)
		}
		f.unlock(reader)
		f.unlock(lease)
	}
}

// export exports a lease, which must succeed.
func (f *fixture) export(lease *dlock.Lease) (handle string) {
	f.Helper()
	handle, err := lease.Export(f.ctx)
	if err != nil {
		f.Fatalf("Export: %v", err)
	}
	return handle
}

// adopt adopts a handle, which must succeed.
func (f *fixture) adopt(c *dlock.Client, handle string) *dlock.Lease {
	f.Helper()
	lease, err := c.Adopt(f.ctx, handle)
	if err != nil {
		f.Fatalf("Adopt: %v", err)
	}
	return lease
}

func exportedLockIsKept(f *fixture) {
	c, other, third := f.client(dlock.WithTTL(f.long())), f.client(), f.client()
	lease := f.lock(c, f.name)
	next := f.lockAsync(third, f.name)
	handle := f.export(lease)
	if err := c.Close(); err != nil {
		f.Errorf("Close: %v", err)
	}
	if _, err := other.TryLock(f.ctx, f.name); err == nil {
		f.violation("an exported lock was granted to another client")
	}
	adopted := f.adopt(other, handle)
	if adopted.Fence() < lease.Fence() || adopted.Name() != f.name {
		f.Errorf("the fence %d of %q after %d", adopted.Fence(), adopted.Name(), lease.Fence())
	}
	f.held(other, adopted)
	select {
	case <-next.done:
		f.violation("the waiter got the lock in between")
	default:
	}
	f.unlock(adopted)
	waiter := f.granted(next, prompt)
	f.fenceGrew(adopted.Fence(), waiter.Fence())
	f.unlock(waiter)
}

func handleIsAdoptedOnce(f *fixture) {
	c, other, third := f.client(), f.client(), f.client()
	handle := f.export(f.lock(c, f.name))
	adopted := f.adopt(other, handle)
	for _, client := range []*dlock.Client{other, third, c} {
		_, err := client.Adopt(f.ctx, handle)
		f.isErr("a second Adopt", err, dlock.ErrLost)
	}
	f.held(other, adopted)
	f.unlock(adopted)
	_, err := third.Adopt(f.ctx, handle)
	f.isErr("an Adopt after the Unlock", err, dlock.ErrLost)
}

func handleEndsWithItsTerm(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.short())), f.client()
	lease := f.lock(c, f.name)
	handle := f.export(lease)
	next := f.lockWithin(other, f.short()+prompt, f.name)
	f.fenceGrew(lease.Fence(), next.Fence())
	_, err := c.Adopt(f.ctx, handle)
	f.isErr("Adopt after the term", err, dlock.ErrLost)
	f.held(other, next)
	f.unlock(next)
}

func forgedHandleIsRefused(f *fixture) {
	c, d := f.client(), f.driver()
	lease := f.lock(c, f.name)
	owner := lease.Owner()
	handle := f.export(lease)
	changed := []byte(handle) // in the ticket, which comes last
	changed[len(changed)-8] ^= 1
	for _, bad := range []string{
		"", "dlock1.", handle[:len(handle)-2], strings.Repeat("x", len(handle)), handle + "=",
		string(changed),
	} {
		if _, err := c.Adopt(f.ctx, bad); err == nil {
			f.violation("the handle %.8q… was adopted", bad)
		} else if strings.Contains(err.Error(), handle) {
			f.Errorf("the error shows the handle: %v", err)
		}
	}
	for _, ticket := range []string{owner, owner + ".", owner + ".x", "." + owner} {
		_, err := d.(backend.Mover).Adopt(f.ctx, ticket, f.try(f.long()))
		f.isErr("Adopt by the owner alone", err, backend.ErrLost)
	}
	f.unlock(f.adopt(c, handle))
	f.otherPrefixIsRefused()
}

// otherPrefixIsRefused checks that the handle of one prefix is no handle of another prefix or of
// none, and is still good afterwards.
func (f *fixture) otherPrefixIsRefused() {
	f.Helper()
	here, there := f.name+"/here/", f.name+"/there/"
	c := f.prefixed(here)
	handle := f.export(f.lock(c, "x"))
	for prefix, other := range map[string]*dlock.Client{"": f.client(), there: f.prefixed(there)} {
		_, err := other.Adopt(f.ctx, handle)
		if err == nil {
			f.violation("a client with the prefix %q adopted a handle of %q", prefix, here)
			continue
		}
		f.hasText("Adopt by a client with another prefix", err,
			fmt.Sprintf("%q", here), fmt.Sprintf("%q", prefix))
	}
	f.unlock(f.adopt(c, handle))
}

func exportedLeaseHasEnded(f *fixture) {
	c := f.client()
	lease := f.lock(c, f.name)
	ctx, cancel := lease.Context(f.ctx)
	defer cancel()
	handle := f.export(lease)
	f.isErr("Err", lease.Err(), dlock.ErrNotHeld)
	f.within(prompt, "the context ends", ctx.Done())
	f.isErr("the cause", context.Cause(ctx), dlock.ErrNotHeld)
	f.within(prompt, "Lost is closed", lease.Lost())
	f.isErr("Unlock", lease.Unlock(f.ctx), dlock.ErrNotHeld)
	_, err := lease.Export(f.ctx)
	f.isErr("a second Export", err, dlock.ErrNotHeld)
	adopted := f.adopt(c, handle)
	f.held(c, adopted)
	f.unlock(adopted)
}

func formerOwnerIsAnother(f *fixture) {
	d, other := f.driver(), f.driver()
	g := f.grant(d, f.try(f.long()))
	ticket, err := d.(backend.Mover).Export(f.ctx, g)
	if err != nil {
		f.Fatalf("Export: %v", err)
	}
	adopted, err := other.(backend.Mover).Adopt(f.ctx, ticket, f.try(f.long()))
	if err != nil {
		f.Fatalf("Adopt: %v", err)
	}
	_, err = f.renew(d, g)
	f.isErr("Renew of the former owner", err, backend.ErrLost)
	f.isErr("its Release", f.tryRelease(f.ctx, d, g), backend.ErrNotHeld)
	if _, err := f.renew(other, adopted); err != nil {
		f.Errorf("Renew of the adopter: %v", err)
	}
	f.refused(d, f.try(f.long()))
	f.release(other, adopted)
}

func repeatedAdoptionIsTheSame(f *fixture) {
	d, other := f.driver(), f.driver()
	ttl := f.ttl(2 * time.Second)
	g := f.grant(d, f.try(ttl))
	ticket, err := d.(backend.Mover).Export(f.ctx, g)
	if err != nil {
		f.Fatalf("Export: %v", err)
	}
	req := f.try(ttl)
	last := &backend.Grant{Request: *req, Fence: g.Fence}
	for range 3 {
		time.Sleep(ttl / 4)
		adopted, err := other.(backend.Mover).Adopt(f.ctx, ticket, req)
		if err != nil {
			f.Fatalf("Adopt: %v", err)
		}
		f.sameGrant(last, adopted)
		last = adopted
	}
	if f.caps.Session {
		f.release(other, last)
		return
	}
	f.keptUntil(endOf(last.Term))
}

func adoptedLeaseIsRenewedAndReleased(f *fixture) {
	ttl := f.brief()
	c, other := f.client(dlock.WithTTL(ttl)), f.client()
	adopted := f.adopt(other, f.export(f.lock(c, f.name)))
	first := adopted.Deadline()
	if !f.eventually(2*ttl+prompt, func() bool { return adopted.Deadline().After(first) }) {
		f.Errorf("the lease is not renewed")
	}
	f.held(other, adopted)
	f.unlock(adopted)
	f.unlock(f.lockWithin(c, prompt, f.name))
}

func handedOffLeaseKeepsItsFence(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client()
	old, lease := f.handOff(c, f.name)
	_ = old
	adopted := f.adopt(other, f.export(lease))
	if adopted.Fence() < lease.Fence() {
		f.Errorf("the fence %d after %d", adopted.Fence(), lease.Fence())
	}
	f.unlock(adopted)
}

func permitMoves(f *fixture) {
	const limit = 2
	c, other := f.client(dlock.WithTTL(f.long())), f.client()
	mine, theirs := f.semaphore(c, limit), f.semaphore(other, limit)
	kept, err := theirs.TryAcquire(f.ctx)
	if err != nil {
		f.Fatalf("TryAcquire: %v", err)
	}
	moved, err := mine.TryAcquire(f.ctx)
	if err != nil {
		f.Fatalf("TryAcquire: %v", err)
	}
	adopted := f.adopt(other, f.export(moved))
	if _, err := theirs.TryAcquire(f.ctx); err == nil {
		f.violation("a third permit of two")
	}
	f.unlock(adopted)
	f.unlock(kept)
}

func readerMoves(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client()
	lease, err := f.rwMutex(c).RLock(f.ctx)
	if err != nil {
		f.Fatalf("RLock: %v", err)
	}
	handle := f.export(lease)
	if _, err := other.TryLock(f.ctx, f.name); err == nil {
		f.violation("a writer got the lock of an exported reader")
	}
	adopted := f.adopt(other, handle)
	if _, err := c.TryLock(f.ctx, f.name); err == nil {
		f.violation("a writer got the lock of an adopted reader")
	}
	f.unlock(adopted)
	f.unlock(f.lockWithin(c, prompt, f.name))
}

func downgradedLeaseMoves(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client()
	lease := f.lock(c, f.name)
	if err := lease.Downgrade(f.ctx); err != nil {
		f.Fatalf("Downgrade: %v", err)
	}
	handle := f.export(lease)
	admitsReaders := func(when string) {
		f.Helper()
		reader, err := f.rwMutex(c).TryRLock(f.ctx)
		if err != nil {
			f.Fatalf("TryRLock of a lease that was downgraded and %s: %v", when, err)
		}
		if _, err := other.TryLock(f.ctx, f.name); err == nil {
			f.violation("a writer got the lock of a reader that was %s", when)
		}
		f.unlock(reader)
	}
	admitsReaders("exported")
	adopted := f.adopt(other, handle)
	if adopted.Fence() < lease.Fence() {
		f.Errorf("the fence %d after %d", adopted.Fence(), lease.Fence())
	}
	admitsReaders("adopted")
	if err := adopted.Downgrade(f.ctx); err == nil {
		f.Errorf("the adopted lease is a writer's")
	}
	f.unlock(adopted)
	f.unlock(f.lockWithin(c, prompt, f.name))
}

func lateRequestsKeepTheTicket(f *fixture) {
	d, other := f.driver(), f.driver()
	g := f.grant(d, f.try(f.long()))
	shared := f.downgrade(d, g)
	ticket, err := d.(backend.Mover).Export(f.ctx, shared)
	if err != nil {
		f.Fatalf("Export: %v", err)
	}
	late := func() error { // the answer may be a loss, because the driver has forgotten the grant
		_, _ = f.renew(d, shared)
		_, err := d.(backend.Downgrader).Downgrade(f.ctx, g)
		return err
	}
	_ = late()
	f.refused(d, f.try(f.long()))
	adopted, err := other.(backend.Mover).Adopt(f.ctx, ticket, f.reader(f.long()))
	if err != nil {
		f.Fatalf("Adopt after late requests of the exporter: %v", err)
	}
	f.isErr("Downgrade of the former owner", late(), backend.ErrLost)
	if _, err := f.renew(other, adopted); err != nil {
		f.Errorf("Renew of the adopter: %v", err)
	}
	f.release(other, adopted)
	f.release(d, f.grantSoon(d, f.try(f.long())))
}
