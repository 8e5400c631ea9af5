package conformance

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// crowdCases are the cases of fifty readers and of fifty permits, whose promises are times.
var crowdCases = []Case{
	{
		Name: "WriterAmongFiftyReadersIsPrompt",
		Mode: backend.Shared,
		Promise: "Among 50 readers of five clients that come all the time, a writer gets the " +
			"lock within 2 s.",
		run: writerAmongFiftyReadersIsPrompt,
	},
	{
		Name: "FiftyReadersAfterAWriterArePrompt",
		Mode: backend.Shared,
		Promise: "The 50 readers of five clients that wait for a writer all have the lock at " +
			"once, within 2 s of its Unlock.",
		run: fiftyReadersAfterAWriterArePrompt,
	},
	{
		Name: "KilledPermitsComeBack",
		Mode: backend.Permit,
		Promise: "Of 50 holders of permits three are killed: their permits are granted again " +
			"within their term and 1 s, and the other holders keep theirs.",
		run: killedPermitsComeBack,
	},
}

const (
	crowd        = 50 // readers, or holders of permits
	crowdClients = 5
	// crowdAnswers is the number of answers, one after the other, until a crowd has given way: a
	// server changes one name at a time.
	crowdAnswers = crowdClients + 3
	// crowdBound is the time limit for the next readers or the next writer of a crowd. Like a term
	// it is longer after a void observation, as is deathBound.
	crowdBound = 2 * time.Second
	// deathBound is the time limit, after the term of a killed holder, for the next holder.
	deathBound = time.Second
)

// crowdOf returns the lock of the case in five new clients, each with a tap.
func (f *fixture) crowdOf() (ms []dlock.RWMutex, taps []*tap) {
	f.Helper()
	for range crowdClients {
		c, t := f.tapped()
		ms, taps = append(ms, f.rwMutex(c)), append(taps, t)
	}
	return ms, taps
}

func writerAmongFiftyReadersIsPrompt(f *fixture) {
	due := f.span(crowdBound)
	ctx, stop := context.WithCancel(f.ctx)
	ms, _ := f.crowdOf()
	var seen atomic.Int64
	readers := async(func() {
		parallel(crowd, func(i int) {
			for ctx.Err() == nil {
				lease, err := ms[i%crowdClients].RLock(ctx)
				if err != nil {
					if ctx.Err() == nil {
						f.Errorf("RLock: %v", err)
					}
					return
				}
				seen.Add(1)
				time.Sleep(nap)
				f.unlock(lease)
			}
		})
	})
	defer func() { stop(); <-readers }()
	c := f.client()
	for range 3 {
		seen.Store(0)
		f.eventually(prompt, func() bool { return seen.Load() >= 2*crowd })
		asked := time.Now()
		lease := f.lock(c, f.name)
		f.inTimeOf(due, crowdAnswers, "a writer among 50 readers has the lock", asked, time.Now())
		f.unlock(lease)
	}
}

func fiftyReadersAfterAWriterArePrompt(f *fixture) {
	due := f.span(crowdBound)
	c := f.client()
	writer := f.lock(c, f.name)
	ms, taps := f.crowdOf()
	var served [crowd]time.Time
	var reading sync.WaitGroup
	reading.Add(crowd)
	leave := make(chan struct{})
	readers := async(func() {
		parallel(crowd, func(i int) {
			lease, err := ms[i%crowdClients].RLock(f.ctx)
			served[i] = time.Now()
			reading.Done()
			if err != nil {
				f.Errorf("RLock: %v", err)
				return
			}
			<-leave
			f.unlock(lease)
		})
	})
	for _, t := range taps {
		t.await(acquire, 1, wasBusy)
	}
	unlocked := time.Now()
	f.unlock(writer)
	if f.within(prompt, "all readers have the lock at once", async(reading.Wait)) {
		last := slices.MaxFunc(served[:], time.Time.Compare)
		f.inTimeOf(due, crowdAnswers, "50 readers have the lock of a writer", unlocked, last)
	}
	close(leave)
	<-readers
}

func killedPermitsComeBack(f *fixture) {
	const killed = 3
	late := f.span(deathBound)
	var kept, back []*dlock.Lease
	var ss [crowdClients]dlock.Semaphore
	for i := range ss {
		ss[i] = f.semaphore(f.client(dlock.WithTTL(f.ttl(6*time.Second))), crowd)
	}
	for i := range crowd - killed {
		kept = append(kept, f.permitOf(ss[i%crowdClients]))
	}
	due := f.killHolders(killed)
	waiter := f.semaphore(f.client(), crowd)
	var mu sync.Mutex
	waiters := async(func() {
		parallel(killed, func(int) {
			lease, err := waiter.Acquire(f.ctx)
			if err != nil {
				f.Errorf("Acquire: %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			back = append(back, lease)
		})
	})
	if !f.within(time.Until(due)+prompt, "the permits of killed holders are back", waiters) {
		return
	}
	f.inTimeOf(late, crowdAnswers, "the permits of killed holders are back", due, time.Now())
	_, err := waiter.TryAcquire(f.ctx)
	for _, lease := range kept {
		if err := lease.Err(); err != nil {
			f.Fatalf("a permit of another holder: %v", err)
		}
	}
	if err == nil {
		f.violation("%d holders of %d permits", crowd+1, crowd)
	}
	for _, lease := range slices.Concat(kept, back) {
		f.unlock(lease)
	}
}

// killHolders lets n processes acquire a permit each and then die. It returns when their permits
// must be free: at the end of their terms, or now if grants live with a connection.
func (f *fixture) killHolders(n int) (due time.Time) {
	f.Helper()
	for range n {
		d, closeDriver := f.open()
		g := f.grant(d, f.permit(crowd, f.brief()))
		closeDriver()
		if due = endOf(g.Term); f.caps.Session {
			due = time.Now()
		}
	}
	return due
}

// permitOf returns a permit of s, which must be free.
func (f *fixture) permitOf(s dlock.Semaphore) *dlock.Lease {
	f.Helper()
	lease, err := s.TryAcquire(f.ctx)
	if err != nil {
		f.Fatalf("TryAcquire of a free permit: %v", err)
	}
	return lease
}
