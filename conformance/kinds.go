package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// sharedCases are the cases of locks for readers and writers.
var sharedCases = []Case{
	{
		Name:    "ReadersShareALock",
		Mode:    backend.Shared,
		Promise: "Several owners hold a shared lock at once, and an exclusive one not meanwhile.",
		run:     readersShareALock,
	},
	{
		Name:    "WriterExcludesReaders",
		Mode:    backend.Shared,
		Promise: "While an exclusive lock is held, a shared one is refused.",
		run:     writerExcludesReaders,
	},
	{
		Name: "WaitingWriterIsNotOvertaken",
		Mode: backend.Shared,
		Promise: "A reader that comes after a writer that waits does not overtake it, and gets " +
			"the lock when the writer has left.",
		run: waitingWriterIsNotOvertaken,
	},
	{
		Name: "WaitingReadersAreServedTogether",
		Mode: backend.Shared,
		Promise: "The readers that wait for a writer all get the lock when it is released, and " +
			"a writer gets it after all of them.",
		run: waitingReadersAreServedTogether,
	},
	{
		Name:    "ReadersExpireOneByOne",
		Mode:    backend.Shared,
		Promise: "The end of one reader's term ends no other reader's.",
		run:     readersExpireOneByOne,
	},
	{
		Name:    "ReadersAreReleasedByOwner",
		Mode:    backend.Shared,
		Promise: "The release of one reader removes that reader alone.",
		run:     readersAreReleasedByOwner,
	},
	{
		Name:    "EveryReaderIsShown",
		Mode:    backend.Shared,
		Promise: "Inspect shows each reader of a lock, with its owner and its fence.",
		run:     everyReaderIsShown,
	},
	{
		Name: "BreakEndsOneReader",
		Mode: backend.Shared,
		Promise: "Break of one reader ends its lease alone, and Break without an owner ends all " +
			"readers.",
		run: breakEndsOneReader,
	},
	{
		Name:    "WriterGetsInAmongReaders",
		Mode:    backend.Shared,
		Promise: "A writer gets the lock although readers come all the time.",
		run:     writerGetsInAmongReaders,
	},
	{
		Name: "ReaderGetsInAmongWriters",
		Mode: backend.Shared,
		Promise: "A reader gets the lock although the writers of three clients come all the " +
			"time.",
		run: readerGetsInAmongWriters,
	},
	{
		Name: "ReadersAndWritersAreServedInOrder",
		Mode: backend.Shared,
		Promise: "Where the backend is always fair, readers and writers of different clients " +
			"are served in the order in which they began to wait; readers without a writer " +
			"between them hold the lock together.",
		run: readersAndWritersAreServedInOrder,
	},
	{
		Name: "ReadersOfAClientMakeNoTrip",
		Mode: backend.Shared,
		Promise: "The readers of one client that get the lock together cost one Acquire and one " +
			"Release, and a stream of them keeps no writer of another client waiting.",
		run: readersOfAClientMakeNoTrip,
	},
	{
		Name: "DeadWriterDelaysReadersNoMoreThanATerm",
		Mode: backend.Shared,
		Promise: "A writer that waits between readers, and whose process died, delays the " +
			"reader after it by at most a term, and 10 s if the reader before it stays.",
		run: deadWriterDelaysReadersNoMoreThanATerm,
	},
	{
		Name: "LostRepliesLoseNoReader",
		Mode: backend.Shared,
		Promise: "Whichever answer is lost while a client locks and unlocks as a reader, no " +
			"writer gets the lock of another reader, and afterwards a writer gets it.",
		Faults: true,
		run:    lostRepliesLoseNoReader,
	},
	{
		Name: "OneWriterOrManyReaders",
		Mode: backend.Shared,
		Promise: "Whatever clients do, there is one writer and no reader, or no writer and any " +
			"number of readers.",
		run: oneWriterOrManyReaders,
	},
}

// permitCases are the cases of semaphores.
var permitCases = []Case{
	{
		Name:    "PermitsAreLimited",
		Mode:    backend.Permit,
		Promise: "A semaphore has as many holders as its limit, and no more.",
		run:     permitsAreLimited,
	},
	{
		Name: "OtherLimitIsAConflict",
		Mode: backend.Permit,
		Promise: "While a semaphore is held, a request with another limit is ErrConflict, and " +
			"the error has both limits.",
		run: otherLimitIsAConflict,
	},
	{
		Name: "OtherKindIsAConflict",
		Mode: backend.Permit,
		Promise: "A name that is held as a semaphore is no mutex, and the other way round. The " +
			"error has the kind that is held.",
		run: otherKindIsAConflict,
	},
	{
		Name:    "ConflictConcernsItsCallerAlone",
		Mode:    backend.Permit,
		Promise: "An attempt for another kind of lock does not affect the attempts that fit.",
		run:     conflictConcernsItsCallerAlone,
	},
	{
		Name:    "PermitsExpireOneByOne",
		Mode:    backend.Permit,
		Promise: "The permit of a dead holder is free at the end of its term, and no other one.",
		run:     permitsExpireOneByOne,
	},
	{
		Name:    "ReleasedPermitGoesToAWaiter",
		Mode:    backend.Permit,
		Promise: "A released permit is granted to a waiter.",
		run:     releasedPermitGoesToAWaiter,
	},
	{
		Name:    "NoPermitTooMany",
		Mode:    backend.Permit,
		Promise: "Whatever clients do, no more permits are held than the limit, and none is lost.",
		run:     noPermitTooMany,
	},
	{
		Name:    "RepeatedRequestIsOnePermit",
		Mode:    backend.Permit,
		Promise: "A repeated Acquire of one owner takes one permit.",
		run:     repeatedRequestIsOnePermit,
	},
	{
		Name:    "PermitsAreReleasedByOwner",
		Mode:    backend.Permit,
		Promise: "The release of one permit frees that permit alone.",
		run:     permitsAreReleasedByOwner,
	},
	{
		Name:    "EveryPermitIsShown",
		Mode:    backend.Permit,
		Promise: "Inspect shows the limit of a semaphore, and each holder.",
		run:     everyPermitIsShown,
	},
	{
		Name: "BreakEndsOnePermit",
		Mode: backend.Permit,
		Promise: "Break of one holder of a permit ends its lease alone, and Break without an " +
			"owner ends all.",
		run: breakEndsOnePermit,
	},
	{
		Name: "PermitsAreServedInOrder",
		Mode: backend.Permit,
		Promise: "Where the backend is always fair, clients get permits in the order in which " +
			"they began to wait.",
		run: permitsAreServedInOrder,
	},
	{
		Name: "DeadPermitWaiterDelaysNoMoreThanATerm",
		Mode: backend.Permit,
		Promise: "A waiter for a permit whose process died delays the waiters behind it by at " +
			"most one term.",
		run: deadPermitWaiterDelaysNoMoreThanATerm,
	},
	{
		Name: "RestartKeepsPermits",
		Mode: backend.Permit,
		Promise: "After a restart of the server no more permits are held than the limit, and a " +
			"waiter gets a permit that is released.",
		Faults: true,
		Alone:  true,
		run:    restartKeepsPermits,
	},
	{
		Name: "LateRequestsReviveNoPermit",
		Mode: backend.Permit,
		Promise: "A renewal or a release of an expired permit that is executed late revives no " +
			"permit, and does not affect the next holder's permit.",
		run: lateRequestsReviveNoPermit,
	},
	{
		Name: "LostRepliesLoseNoPermit",
		Mode: backend.Permit,
		Promise: "Whichever answer is lost while a client acquires and releases a permit, no " +
			"permit is lost, and none is made.",
		Faults: true,
		run:    lostRepliesLoseNoPermit,
	},
}

// in returns req for another mode, with the limit of a semaphore.
func in(mode backend.Mode, limit int, req *backend.Request) *backend.Request {
	req.Mode, req.Limit = mode, limit
	return req
}

// reader returns the request of a reader that does not wait.
func (f *fixture) reader(ttl time.Duration) *backend.Request {
	return in(backend.Shared, 0, f.try(ttl))
}

// permit returns the request for one of limit permits, which does not wait.
func (f *fixture) permit(limit int, ttl time.Duration) *backend.Request {
	return in(backend.Permit, limit, f.try(ttl))
}

func readersShareALock(f *fixture) {
	d, other := f.driver(), f.driver()
	first := f.grant(d, f.reader(f.long()))
	second := f.grant(other, f.reader(f.long()))
	f.refused(other, f.try(f.long()))
	f.release(d, first)
	f.refused(d, f.try(f.long()))
	f.release(other, second)
	f.release(d, f.grant(d, f.try(f.long())))
}

func writerExcludesReaders(f *fixture) {
	d, other := f.driver(), f.driver()
	for range 3 {
		writer := f.grant(d, f.try(f.long()))
		f.refused(d, f.reader(f.long()))
		f.refused(other, f.reader(f.long()))
		f.release(d, writer)
		f.release(other, f.grant(other, f.reader(f.long())))
	}
}

func waitingWriterIsNotOvertaken(f *fixture) {
	d, other := f.driver(), f.driver()
	reader := f.grant(d, f.reader(f.long()))
	writer := f.request(f.long())
	f.refused(other, writer)
	f.refused(d, f.reader(f.long()))
	f.undo(other, writer)
	late := f.grantSoon(d, f.reader(f.long()))
	f.release(d, reader)
	f.release(d, late)
}

func waitingReadersAreServedTogether(f *fixture) {
	const readers = 4
	c := f.client()
	writer := f.lock(c, f.name)
	var reading, served sync.WaitGroup
	served.Add(readers)
	leave := make(chan struct{})
	for range readers {
		m := f.rwMutex(f.client())
		reading.Go(func() {
			lease, err := m.RLock(f.ctx)
			served.Done()
			if err != nil {
				f.Errorf("RLock: %v", err)
				return
			}
			<-leave
			f.unlock(lease)
		})
	}
	f.unlock(writer)
	f.within(prompt, "all readers have the lock at once", async(served.Wait))
	next := f.lockAsync(c, f.name)
	close(leave)
	reading.Wait()
	f.unlock(f.granted(next, prompt))
}

func readersExpireOneByOne(f *fixture) {
	f.withoutSession()
	d, other := f.driver(), f.driver()
	brief := f.grant(d, f.reader(f.short()))
	end := time.Now().Add(brief.Term.TTL) // the server counts the term from the execution
	long := f.grant(other, f.reader(f.long()))
	f.eventually(prompt, func() bool {
		_, err := f.renew(other, long)
		return err != nil || time.Now().After(end)
	})
	third := f.grant(d, f.reader(f.long())) // the request detects the expiry
	if _, err := f.renew(other, long); err != nil {
		f.Errorf("renewal of the reader with a long term: %v", err)
	}
	_, err := f.renew(d, brief)
	f.isErr("renewal of the expired reader", err, backend.ErrLost)
	f.refused(d, f.try(f.long()))
	f.release(other, long)
	f.release(d, third)
}

func readersAreReleasedByOwner(f *fixture) {
	d, other := f.driver(), f.driver()
	first, second := f.grant(d, f.reader(f.long())), f.grant(other, f.reader(f.long()))
	f.release(other, second)
	f.isErr("a second release", f.tryRelease(f.ctx, other, second), backend.ErrNotHeld)
	if _, err := f.renew(d, first); err != nil {
		f.Errorf("renewal of the other reader: %v", err)
	}
	f.refused(other, f.try(f.long()))
	f.release(d, first)
}

func everyReaderIsShown(f *fixture) {
	if !f.caps.Inspect {
		return // InspectShowsTheHolder checks that it is refused
	}
	d, other, c := f.driver(), f.driver(), f.client()
	first, second := f.grant(d, f.reader(f.long())), f.grant(other, f.reader(f.long()))
	info, err := c.Inspect(f.ctx, f.name)
	if err != nil {
		f.Fatalf("Inspect: %v", err)
	}
	shown := make(map[string]uint64)
	for _, h := range info.Holders {
		shown[h.Owner] = h.Fence
	}
	if len(shown) != 2 || info.Mode != backend.Shared {
		f.Errorf("Inspect of two readers: %+v", info)
	}
	for _, g := range []*backend.Grant{first, second} {
		fence, ok := shown[g.Owner]
		if !ok || fence>>12 != g.Fence {
			f.Errorf("the reader %s with the fence %d is not in %+v", g.Owner, g.Fence, info)
		}
	}
	f.release(d, first)
	f.release(other, second)
}

func breakEndsOneReader(f *fixture) {
	if f.breakUnsupported() {
		return
	}
	d, other, c := f.driver(), f.driver(), f.client()
	var readers []*backend.Grant
	for range 3 {
		readers = append(readers, f.grant(d, f.reader(f.long())))
	}
	if err := c.Break(f.ctx, f.name, readers[0].Owner); err != nil {
		f.Errorf("Break of one reader: %v", err)
	}
	_, err := f.renew(d, readers[0])
	f.isErr("renewal of the broken reader", err, backend.ErrLost)
	for _, g := range readers[1:] {
		if _, err := f.renew(d, g); err != nil {
			f.Errorf("renewal of another reader: %v", err)
		}
	}
	f.refused(other, f.try(f.long()))
	if err := c.Break(f.ctx, f.name, ""); err != nil {
		f.Errorf("Break of all readers: %v", err)
	}
	f.release(other, f.grant(other, f.try(f.long())))
	_, err = f.renew(d, readers[1])
	f.isErr("renewal after a break of all", err, backend.ErrLost)
}

// stream locks and unlocks all the time, on four goroutines for each of locks. leases counts what
// it has acquired. stop ends it, and returns when its goroutines have ended.
func (f *fixture) stream(
	locks ...func(context.Context) (*dlock.Lease, error),
) (leases *atomic.Int64, stop func()) {
	ctx, cancel := context.WithCancel(f.ctx)
	leases = new(atomic.Int64)
	var running sync.WaitGroup
	for _, lock := range slices.Repeat(locks, 4) {
		running.Go(func() {
			for ctx.Err() == nil {
				lease, err := lock(ctx)
				if err != nil {
					continue
				}
				leases.Add(1)
				time.Sleep(nap)
				f.unlock(lease)
			}
		})
	}
	return leases, func() { cancel(); running.Wait() }
}

func writerGetsInAmongReaders(f *fixture) {
	var locks []func(context.Context) (*dlock.Lease, error)
	for range 3 {
		locks = append(locks, f.rwMutex(f.client(dlock.WithTTL(f.long()))).RLock)
	}
	reads, stop := f.stream(locks...)
	defer stop()
	c := f.client(dlock.WithTTL(f.long()))
	for range 3 {
		before := reads.Load()
		f.eventually(prompt, func() bool { return reads.Load() > before })
		f.unlock(f.lockWithin(c, prompt, f.name))
	}
}

func readerGetsInAmongWriters(f *fixture) {
	var locks []func(context.Context) (*dlock.Lease, error)
	for range 3 {
		locks = append(locks, f.rwMutex(f.client(dlock.WithTTL(f.long()))).Lock)
	}
	writes, stop := f.stream(locks...)
	defer stop()
	m := f.rwMutex(f.client(dlock.WithTTL(f.long())))
	for range 3 {
		before := writes.Load()
		f.eventually(prompt, func() bool { return writes.Load() > before })
		f.unlock(f.granted(f.begin(m.RLock), prompt))
	}
}

func readersAndWritersAreServedInOrder(f *fixture) {
	f.withQueue()
	lease := f.lock(f.client(), f.name)
	l := &line{f: f}
	for i := range inLine {
		c, t := f.tapped()
		m := f.rwMutex(c)
		if i%3 < 2 { // two readers, and then a writer
			l.join(t, i/3*2, f.begin(m.RLock))
		} else {
			l.join(t, i/3*2+1, f.begin(m.Lock))
		}
	}
	f.unlock(lease)
	l.check()
}

func readersOfAClientMakeNoTrip(f *fixture) {
	const readers = 20
	c, t := f.tapped()
	other := f.client()
	m := f.rwMutex(c)
	writer := f.lock(other, f.name)
	var waiting [readers]*pending
	for i := range waiting {
		waiting[i] = f.begin(m.RLock)
	}
	t.await(acquire, 1, wasBusy)
	time.Sleep(asleep) // until all of them wait in the line of the client
	f.unlock(writer)
	var leases []*dlock.Lease
	for _, p := range waiting {
		leases = append(leases, f.granted(p, prompt))
	}
	for _, lease := range leases {
		f.unlock(lease)
	}
	calls, _ := t.snapshot()
	grants := count(calls, acquire, wasGranted) + count(calls, wait, wasGranted)
	if releases := t.number(release); grants != 1 || releases != 1 {
		f.Errorf("%d readers of a client cost %d grants and %d releases, want 1 and 1",
			readers, grants, releases)
	}
	f.writerAmongReadersOf(m, other)
}

// writerAmongReadersOf checks that a client gets the lock as a writer, among readers of m that come
// all the time.
func (f *fixture) writerAmongReadersOf(m dlock.RWMutex, c *dlock.Client) {
	f.Helper()
	reads, stop := f.stream(m.RLock)
	defer stop()
	f.eventually(prompt, func() bool { return reads.Load() > 10 })
	f.unlock(f.lockWithin(c, prompt, f.name))
}

// placeBound is the time after which the place of a dead waiter ends even if its term is shorter.
const placeBound = 10 * time.Second

func deadWriterDelaysReadersNoMoreThanATerm(f *fixture) {
	for _, stays := range []bool{false, true} { // the reader in front of the dead writer
		reader := f.soon("TryRLock", f.rwMutex(f.client()).TryRLock)
		dead, deadTap := f.tapped(dlock.WithTTL(f.brief()))
		c, t := f.tapped()
		f.lockAsync(dead, f.name)
		deadTap.await(acquire, 1, wasBusy)
		next := f.begin(f.rwMutex(c).RLock)
		if f.caps.Fair == backend.FairAlways { // otherwise the reader may overtake the writer
			t.await(acquire, 1, wasBusy)
		}
		deadTap.kill()
		due := time.Now().Add(f.brief())
		if stays {
			due = time.Now().Add(max(f.brief(), placeBound))
		} else {
			f.unlock(reader)
		}
		f.unlock(f.grantedBy(next, due))
		if stays {
			f.unlock(reader)
		}
	}
}

func lostRepliesLoseNoReader(f *fixture) {
	const answers = 6
	opts := []dlock.Option{dlock.WithTTL(f.long()), dlock.WithLocalHandoff(0)}
	c, other := f.client(opts...), f.client(opts...)
	m := f.rwMutex(c)
	kept := f.soon("TryRLock", f.rwMutex(other).TryRLock)
	visit := func() {
		f.unlockUncertainly(f.granted(f.begin(m.RLock), prompt))
	}
	visit() // opens the connection, so that only answers to RLock and Unlock are lost
	for nth := range answers {
		f.faults.DropReply(f, nth+1)
		visit()
		visit()
	}
	f.settle(other)
	if err := kept.Err(); err != nil {
		f.Errorf("the lease of the other reader: %v", err)
	}
	if _, err := c.TryLock(f.ctx, f.name); err == nil {
		f.violation("a writer got the lock of a reader")
	}
	f.unlock(kept)
	f.unlock(f.lock(c, f.name))
}

func oneWriterOrManyReaders(f *fixture) {
	var inside atomic.Int64 // readers, and a thousand for each writer
	enter := func(n int64) {
		if now := inside.Add(n); now > 1000 || n == 1000 && now != n {
			f.violation("%d writers and %d readers", now/1000, now%1000)
		}
		time.Sleep(time.Millisecond)
		inside.Add(-n)
	}
	var all sync.WaitGroup
	for range 3 {
		m := f.rwMutex(f.client(dlock.WithTTL(f.long())))
		for i := range 4 {
			lock, n := m.RLock, int64(1)
			if i == 0 {
				lock, n = m.Lock, 1000
			}
			all.Go(func() {
				for range 10 {
					lease, err := lock(f.ctx)
					if err != nil {
						f.Errorf("lock: %v", err)
						return
					}
					enter(n)
					f.unlock(lease)
				}
			})
		}
	}
	all.Wait()
}

func permitsAreLimited(f *fixture) {
	const limit = 3
	d, other := f.driver(), f.driver()
	var grants []*backend.Grant
	for range limit {
		grants = append(grants, f.grant(d, f.permit(limit, f.long())))
	}
	f.refused(other, f.permit(limit, f.long()))
	f.refused(d, f.permit(limit, f.long()))
	for i, g := range grants {
		if i > 0 && g.Fence == grants[i-1].Fence && g.Fence != 0 {
			f.Errorf("two permits have the fence %d", g.Fence)
		}
	}
	f.release(d, grants[0])
	next := f.grantSoon(other, f.permit(limit, f.long()))
	f.refused(d, f.permit(limit, f.long()))
	f.release(other, next)
	f.release(d, grants[1])
	f.release(d, grants[2])
}

func otherLimitIsAConflict(f *fixture) {
	d, other := f.driver(), f.driver()
	g := f.grant(d, f.permit(3, f.long()))
	for _, limit := range []int{2, 4} {
		_, err := f.acquire(other, f.permit(limit, f.long()))
		f.isErr("Acquire with another limit", err, backend.ErrConflict)
		f.hasText("Acquire with another limit", err, "limit 3", fmt.Sprintf("limit %d", limit))
	}
	f.release(d, g)
	f.release(other, f.grant(other, f.permit(4, f.long())))
}

func otherKindIsAConflict(f *fixture) {
	d, other := f.driver(), f.driver()
	permit := f.grant(d, f.permit(3, f.long()))
	_, err := f.acquire(other, f.try(f.long()))
	f.isErr("Acquire of a mutex with the name of a semaphore", err, backend.ErrConflict)
	f.hasText("Acquire of a mutex with the name of a semaphore", err, "by a semaphore", "limit 3")
	f.release(d, permit)
	mutex := f.grant(other, f.try(f.long()))
	_, err = f.acquire(d, f.permit(3, f.long()))
	f.isErr("Acquire of a permit with the name of a mutex", err, backend.ErrConflict)
	f.hasText("Acquire of a permit with the name of a mutex", err, "by a lock", "limit 3")
	f.release(other, mutex)
}

func conflictConcernsItsCallerAlone(f *fixture) {
	d, other, third := f.driver(), f.driver(), f.driver()
	g := f.grant(d, f.permit(3, f.long()))
	for range f.rounds(20) {
		mutex := f.request(f.long())
		var err error
		done := async(func() { _, err = f.acquire(third, mutex) })
		f.release(other, f.grantSoon(other, f.permit(3, f.long())))
		<-done
		f.isErr("Acquire of a mutex with the name of a semaphore", err, backend.ErrConflict)
	}
	f.release(d, g)
}

func permitsExpireOneByOne(f *fixture) {
	f.withoutSession()
	const limit = 2
	d, other := f.driver(), f.driver()
	brief := f.grant(d, f.permit(limit, f.short()))
	long := f.grant(d, f.permit(limit, f.long()))
	third := f.grantSoon(other, f.permit(limit, f.long()))
	if left := time.Until(endOf(brief.Term)); left > 0 {
		f.violation("a third permit of two, %v before the end of a term", left)
	}
	_, err := f.renew(d, brief)
	f.isErr("renewal of the expired permit", err, backend.ErrLost)
	if _, err := f.renew(d, long); err != nil {
		f.Errorf("renewal of the other permit: %v", err)
	}
	f.release(d, long)
	f.release(other, third)
}

func releasedPermitGoesToAWaiter(f *fixture) {
	const limit = 2
	holder, waiter := f.semaphore(f.client(), limit), f.semaphore(f.client(), limit)
	permits := make(chan *dlock.Lease, 2*limit)
	acquire := func(s dlock.Semaphore) {
		lease, err := s.Acquire(f.ctx)
		if err != nil {
			f.Errorf("Acquire: %v", err)
			return
		}
		permits <- lease
	}
	for range limit {
		acquire(holder)
	}
	waiting := async(func() { acquire(waiter); acquire(waiter) })
	for range 2 * limit {
		f.unlock(receive(f, prompt, "a permit is granted", permits))
	}
	f.within(prompt, "the waiters have the permits", waiting)
}

func noPermitTooMany(f *fixture) {
	const limit = 3
	var holders atomic.Int32
	var all sync.WaitGroup
	for range 3 {
		s := f.semaphore(f.client(dlock.WithTTL(f.long())), limit)
		for range 4 {
			all.Go(func() {
				for range 10 {
					lease, err := s.Acquire(f.ctx)
					if err != nil {
						f.Errorf("Acquire: %v", err)
						return
					}
					if n := holders.Add(1); n > limit {
						f.violation("%d holders of %d permits", n, limit)
					}
					time.Sleep(time.Millisecond)
					holders.Add(-1)
					f.unlock(lease)
				}
			})
		}
	}
	all.Wait()
	s := f.semaphore(f.client(), limit)
	for range limit {
		lease, err := s.TryAcquire(f.ctx)
		if err != nil {
			f.Fatalf("TryAcquire of a permit after all were released: %v", err)
		}
		defer f.unlock(lease)
	}
}

func repeatedRequestIsOnePermit(f *fixture) {
	const limit = 2
	d, other := f.driver(), f.driver()
	req := f.permit(limit, f.long())
	first := f.grant(d, req)
	for range 3 {
		f.sameGrant(first, f.grant(d, req))
	}
	second := f.grant(other, f.permit(limit, f.long()))
	f.refused(other, f.permit(limit, f.long()))
	f.release(d, first)
	third := f.grantSoon(other, f.permit(limit, f.long()))
	f.refused(d, f.permit(limit, f.long()))
	f.release(other, second)
	f.release(other, third)
}

func permitsAreReleasedByOwner(f *fixture) {
	const limit = 3
	d, other := f.driver(), f.driver()
	kept := f.grant(d, f.permit(limit, f.long()))
	gone := f.grant(other, f.permit(limit, f.long()))
	f.release(other, gone)
	f.isErr("a second release", f.tryRelease(f.ctx, other, gone), backend.ErrNotHeld)
	if _, err := f.renew(d, kept); err != nil {
		f.Errorf("renewal of the other permit: %v", err)
	}
	var rest []*backend.Grant
	for range limit - 1 {
		rest = append(rest, f.grantSoon(other, f.permit(limit, f.long())))
	}
	f.refused(other, f.permit(limit, f.long()))
	f.release(d, kept)
	for _, g := range rest {
		f.release(other, g)
	}
}

func everyPermitIsShown(f *fixture) {
	if !f.caps.Inspect {
		return // InspectShowsTheHolder checks that it is refused
	}
	const limit = 5
	d, c := f.driver(), f.client()
	var grants []*backend.Grant
	for range limit - 1 {
		grants = append(grants, f.grant(d, f.permit(limit, f.long())))
	}
	info, err := c.Inspect(f.ctx, f.name)
	if err != nil {
		f.Fatalf("Inspect: %v", err)
	}
	if info.Mode != backend.Permit || info.Limit != limit || len(info.Holders) != len(grants) {
		f.Errorf("Inspect of %d permits of %d: %+v", len(grants), limit, info)
	}
	for _, g := range grants {
		if !slices.ContainsFunc(info.Holders, func(h backend.Holder) bool {
			return h.Owner == g.Owner && h.Fence>>12 == g.Fence
		}) {
			f.Errorf("the holder %s with the fence %d is not in %+v", g.Owner, g.Fence, info)
		}
		f.release(d, g)
	}
}

func breakEndsOnePermit(f *fixture) {
	if f.breakUnsupported() {
		return
	}
	const limit = 3
	d, other, c := f.driver(), f.driver(), f.client()
	var grants []*backend.Grant
	for range limit {
		grants = append(grants, f.grant(d, f.permit(limit, f.long())))
	}
	if err := c.Break(f.ctx, f.name, grants[0].Owner); err != nil {
		f.Errorf("Break of one holder: %v", err)
	}
	_, err := f.renew(d, grants[0])
	f.isErr("renewal of the broken permit", err, backend.ErrLost)
	for _, g := range grants[1:] {
		if _, err := f.renew(d, g); err != nil {
			f.Errorf("renewal of another permit: %v", err)
		}
	}
	next := f.grantSoon(other, f.permit(limit, f.long()))
	f.refused(other, f.permit(limit, f.long()))
	if err := c.Break(f.ctx, f.name, ""); err != nil {
		f.Errorf("Break of all holders: %v", err)
	}
	_, err = f.renew(other, next)
	f.isErr("renewal after a break of all", err, backend.ErrLost)
	f.release(other, f.grantSoon(other, f.try(f.long()))) // no semaphore is left
}

func permitsAreServedInOrder(f *fixture) {
	f.withQueue()
	const limit = 2
	c := f.client()
	kept := f.permitOf(f.semaphore(c, limit)) // so that one permit at a time is released
	permit := f.permitOf(f.semaphore(c, limit))
	l := &line{f: f}
	for i := range inLine {
		c, t := f.tapped()
		l.join(t, i, f.begin(f.semaphore(c, limit).Acquire))
	}
	f.unlock(permit)
	l.check()
	f.unlock(kept)
}

func deadPermitWaiterDelaysNoMoreThanATerm(f *fixture) {
	const limit = 2
	holder := f.semaphore(f.client(), limit)
	kept, permit := f.permitOf(holder), f.permitOf(holder)
	dead, deadTap := f.tapped(dlock.WithTTL(f.brief()))
	c, t := f.tapped()
	f.begin(f.semaphore(dead, limit).Acquire)
	deadTap.await(acquire, 1, wasBusy)
	waiter := f.begin(f.semaphore(c, limit).Acquire)
	t.await(acquire, 1, wasBusy)
	deadTap.kill()
	f.unlock(permit)
	f.unlock(f.grantedBy(waiter, time.Now().Add(f.brief())))
	f.unlock(kept)
}

func restartKeepsPermits(f *fixture) {
	const limit = 3
	c := f.client(dlock.WithTTL(f.ttl(20*time.Second)), dlock.WithLocalHandoff(0))
	holder := f.semaphore(c, limit)
	var held []*dlock.Lease
	for range limit {
		held = append(held, f.permitOf(holder))
	}
	other, t := f.tapped()
	waiter := f.begin(f.semaphore(other, limit).Acquire)
	t.await(acquire, 1, wasBusy)
	f.restart()
	canLose := f.caps.Fencing != backend.FenceDurable || f.caps.Session
	err := held[0].Unlock(f.ctx)
	lost := canLose && errors.Is(err, dlock.ErrLost)
	if err != nil && !lost && !errors.Is(err, dlock.ErrUncertain) {
		f.Errorf("Unlock: %v", err)
	}
	kept := []*dlock.Lease{f.granted(waiter, prompt)}
	for _, lease := range held[1:] {
		if f.isKept(lease) {
			kept = append(kept, lease)
		} else if !canLose {
			f.Errorf("a server that keeps its data lost a permit: %v", lease.Err())
		}
	}
	extra, err := f.semaphore(f.client(), limit).TryAcquire(f.ctx)
	if err == nil {
		f.unlock(extra)
	}
	for _, lease := range kept {
		if !f.isKept(lease) {
			f.violation("a permit that was held after the restart went to another holder")
		}
	}
	if err == nil && len(kept) == limit {
		f.violation("%d holders of %d permits", limit+1, limit)
	}
	for _, lease := range kept {
		f.unlock(lease)
	}
}

// isKept reports whether the server has the grant of lease, which it may have lost.
func (f *fixture) isKept(lease *dlock.Lease) bool {
	f.Helper()
	var err error
	if !f.eventually(prompt, func() bool {
		err = lease.Extend(f.ctx)
		return err == nil || lease.Err() != nil
	}) {
		f.Errorf("Extend: %v", err)
	}
	return err == nil
}

func lateRequestsReviveNoPermit(f *fixture) {
	f.withoutSession()
	_ = ability[Delayer](f)
	const limit = 2
	for what, late := range map[string]func(context.Context, backend.Driver, *backend.Grant) error{
		"Renew": func(ctx context.Context, d backend.Driver, g *backend.Grant) error {
			_, err := d.Renew(ctx, g)
			return err
		},
		"Release": func(ctx context.Context, d backend.Driver, g *backend.Grant) error {
			return d.Release(ctx, g)
		},
	} {
		d := f.warm(f.driver())
		g := f.grant(d, f.permit(limit, f.ttl(2*time.Second)))
		p := f.delay(d, &g.Request)
		p.giveUp(what, func(ctx context.Context) error { return late(ctx, d, g) })
		next := f.driver()
		kept := f.grant(next, f.permit(limit, f.long()))
		second := f.grantSoon(next, f.permit(limit, f.long())) // when the term has ended
		p.deliver()
		third := f.driver()
		for range 10 { // the late request may be executed a little later
			f.refused(third, f.permit(limit, f.long()))
			for _, g := range []*backend.Grant{kept, second} {
				if _, err := f.renew(next, g); err != nil {
					f.Errorf("renewal of a permit after a late %s of another one: %v", what, err)
				}
			}
			time.Sleep(nap)
		}
		f.release(next, kept)
		f.release(next, second)
		first := f.grantSoon(third, f.permit(limit, f.long())) // none of the permits is lost
		f.release(third, f.grantSoon(third, f.permit(limit, f.long())))
		f.release(third, first)
	}
}

func lostRepliesLoseNoPermit(f *fixture) {
	const limit, answers = 2, 6
	opts := []dlock.Option{dlock.WithTTL(f.long()), dlock.WithLocalHandoff(0)}
	c, other := f.client(opts...), f.client(opts...)
	s := f.semaphore(c, limit)
	kept := f.permitOf(f.semaphore(other, limit))
	visit := func() {
		ctx, cancel := context.WithTimeout(f.ctx, prompt)
		defer cancel()
		lease, err := s.Acquire(ctx)
		if err != nil {
			f.Fatalf("Acquire: %v", err)
		}
		if err := lease.Unlock(f.ctx); err != nil && !errors.Is(err, dlock.ErrUncertain) {
			f.Errorf("Unlock: %v", err)
		}
	}
	visit() // opens the connection, so that only answers to Acquire and Unlock are lost
	for nth := range answers {
		f.faults.DropReply(f, nth+1)
		visit()
		visit()
	}
	f.settle(other)
	var free *dlock.Lease
	var err error
	if !f.eventually(prompt, func() bool {
		free, err = s.TryAcquire(f.ctx)
		return err == nil
	}) {
		f.Fatalf("TryAcquire of a free permit: %v", err)
	}
	if _, err := s.TryAcquire(f.ctx); err == nil {
		f.violation("a third permit of two")
	}
	f.unlock(free)
	f.unlock(kept)
}

// rwMutex returns the lock of the case for readers and writers.
func (f *fixture) rwMutex(c *dlock.Client) dlock.RWMutex {
	f.Helper()
	m, err := c.RWMutex(f.name)
	if err != nil {
		f.Fatalf("RWMutex: %v", err)
	}
	return m
}

// semaphore returns the semaphore of the case.
func (f *fixture) semaphore(c *dlock.Client, limit int) dlock.Semaphore {
	f.Helper()
	s, err := c.Semaphore(f.name, limit)
	if err != nil {
		f.Fatalf("Semaphore: %v", err)
	}
	return s
}

// mutex returns the lock of the case.
func (f *fixture) mutex(c *dlock.Client) dlock.Mutex {
	f.Helper()
	m, err := c.Mutex(f.name)
	if err != nil {
		f.Fatalf("Mutex: %v", err)
	}
	return m
}

// soon repeats try, which must succeed soon. Like grantSoon, it allows for a replica that lags.
func (f *fixture) soon(
	what string, try func(context.Context) (*dlock.Lease, error),
) (lease *dlock.Lease) {
	f.Helper()
	var err error
	if !f.eventually(prompt, func() bool {
		lease, err = try(f.ctx)
		return !errors.Is(err, dlock.ErrNotAcquired)
	}) || err != nil {
		f.Fatalf("%s of a free name: %v", what, err)
	}
	return lease
}
