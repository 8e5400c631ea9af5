package membackend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
)

// Entries returns how many entries the space of a driver has for names with a prefix.
func Entries(d backend.Driver, prefix string) int {
	s := d.(*driver).space
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for key := range s.locks {
		if strings.HasPrefix(key, prefix) {
			n++
		}
	}
	return n
}

// newSpace creates a space for one run of a test. It returns a function that opens a driver on the
// space.
func newSpace(t *testing.T) (connect func() *driver) {
	t.Helper()
	name := t.Name() + rand.Text()
	return func() *driver { return New(&Options{Space: name}).(*driver) }
}

func request(t *testing.T, owner string, ttl time.Duration) *backend.Request {
	t.Helper()
	return &backend.Request{
		Key: t.Name(), Owner: owner, TTL: ttl, Mode: backend.Exclusive, Queue: true,
	}
}

// TestExpiredEntriesAreNotCounted has three queue entries. Two of them expire, and one is
// refreshed.
func TestExpiredEntriesAreNotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSpace(t)()
		hold := request(t, "holder", time.Hour)
		if _, err := d.Acquire(t.Context(), hold); err != nil {
			t.Fatal(err)
		}
		enqueue := func(owner string) {
			req := request(t, owner, time.Minute)
			if _, err := d.Acquire(t.Context(), req); !errors.Is(err, backend.ErrNotAcquired) {
				t.Fatalf("Acquire: %v, want *Busy", err)
			}
		}
		waiters := func(want int) {
			t.Helper()
			info, err := d.Inspect(t.Context(), t.Name())
			if err != nil || info.Waiters != want {
				t.Errorf("Inspect: %+v, %v; want %d waiters", info, err, want)
			}
		}
		for _, owner := range []string{"a", "b", "c"} {
			enqueue(owner)
		}
		waiters(3)
		time.Sleep(30 * time.Second)
		enqueue("b")
		time.Sleep(30 * time.Second)
		waiters(1)
		time.Sleep(30 * time.Second)
		waiters(0)
		if err := d.Release(t.Context(), &backend.Grant{Request: *hold}); err != nil {
			t.Errorf("Release: %v", err)
		}
		if _, err := d.Acquire(t.Context(), request(t, "next", time.Minute)); err != nil {
			t.Errorf("an expired queue entry keeps the lock: %v", err)
		}
	})
}

// TestDeadWriterBetweenReaders has a writer that died in the queue while a reader holds the lock.
// The reader behind it gets the lock when the term of that entry ends.
func TestDeadWriterBetweenReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSpace(t)()
		hold, reader := request(t, "holder", time.Hour), request(t, "reader", time.Hour)
		hold.Mode, reader.Mode = backend.Shared, backend.Shared
		if _, err := d.Acquire(t.Context(), hold); err != nil {
			t.Fatal(err)
		}
		_, err := d.Acquire(t.Context(), request(t, "dead writer", time.Minute))
		if !errors.Is(err, backend.ErrNotAcquired) {
			t.Fatalf("Acquire of the writer: %v, want *Busy", err)
		}
		begun := time.Now()
		_, err = d.Acquire(t.Context(), reader)
		b, ok := errors.AsType[*backend.Busy](err)
		if !ok {
			t.Fatalf("Acquire of the reader: %v, want *Busy", err)
		}
		g, err := d.Wait(t.Context(), reader, b)
		if took := time.Since(begun); g == nil || err != nil || took != time.Minute {
			t.Errorf("Wait: %v, %v, after %v, want a grant after a minute", g, err, took)
		}
	})
}

// TestUseAfterClose checks that each method returns ErrUnavailable after Close and does nothing.
func TestUseAfterClose(t *testing.T) {
	t.Parallel()
	connect := newSpace(t)
	d, other := connect(), connect()
	req := request(t, "holder", time.Hour)
	g, err := d.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Acquire(t.Context(), request(t, "waiter", time.Hour))
	b, ok := errors.AsType[*backend.Busy](err)
	if !ok {
		t.Fatalf("Acquire: %v, want *Busy", err)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	ctx := t.Context()
	for name, use := range map[string]func() error{
		"Acquire": func() error {
			_, err := d.Acquire(ctx, request(t, "late", time.Hour))
			return err
		},
		"Renew":    func() error { _, err := d.Renew(ctx, g); return err },
		"RenewAll": func() error { return d.RenewAll(ctx, []*backend.Grant{g})[0].Err },
		"Release":  func() error { return d.Release(ctx, g) },
		"Wait": func() error {
			_, err := d.Wait(ctx, request(t, "waiter", time.Hour), b)
			return err
		},
		"Break":   func() error { return d.Break(ctx, req.Key, "") },
		"Inspect": func() error { _, err := d.Inspect(ctx, req.Key); return err },
		"List": func() error {
			for _, err := range d.List(ctx, "") {
				return err
			}
			return nil
		},
	} {
		if err := use(); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
	}
	info, err := other.Inspect(ctx, req.Key)
	if err != nil || len(info.Holders) != 1 || info.Holders[0].Owner != "holder" {
		t.Errorf("Inspect: %+v, %v; Close ends no lock", info, err)
	}
}

// TestLateRequestShortensNoTerm checks a request that begins before another request and is executed
// after it. It shortens no term.
func TestLateRequestShortensNoTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSpace(t)()
		req := request(t, "holder", time.Minute)
		// The parent is not the test's context, because only the bound may end late.
		late := bound.New(context.Background(), time.Hour) //nolint:usetesting // see above
		defer late.Cancel()
		time.Sleep(time.Second)
		g, err := d.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		renewal, err := d.Renew(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		again, err := d.Acquire(late, req)
		if err != nil || again.Fence < g.Fence {
			t.Fatalf("the late Acquire: %+v, %v", again, err)
		}
		info, err := d.Inspect(t.Context(), req.Key)
		if err != nil || len(info.Holders) != 1 {
			t.Fatalf("Inspect: %+v, %v", info, err)
		}
		term := renewal.Sent.Add(renewal.TTL)
		if end := time.Now().Add(info.Holders[0].TTL); end.Before(term) {
			t.Errorf("the lock ends %v before its answered term", term.Sub(end))
		}
	})
}

// TestExpiredNamesAreForgotten checks that locks which expire without a release do not use memory
// for ever, even if their names are never used again.
func TestExpiredNamesAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSpace(t)()
		for i := range 20 * minSwept {
			req := request(t, "holder", time.Minute)
			req.Key = fmt.Sprint(i)
			if _, err := d.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // so that 60 locks are held at a time
		}
		if n := Entries(d, ""); n > minSwept {
			t.Errorf("%d entries of 60 locks", n)
		}
	})
}

// TestBrokenOwnerIsNotGranted breaks two permits. The waiter of the second one has not received it
// yet, and requests it again while the first holder is being notified. The notification of the
// second one must not end a new grant.
func TestBrokenOwnerIsNotGranted(t *testing.T) {
	t.Parallel()
	d := newSpace(t)()
	permit := func(owner string) *backend.Request {
		req := request(t, owner, time.Hour)
		req.Mode, req.Limit = backend.Permit, 2
		return req
	}
	acquire := func(req *backend.Request) {
		t.Helper()
		if _, err := d.Acquire(t.Context(), req); err != nil {
			t.Fatalf("Acquire of %s: %v", req.Owner, err)
		}
	}
	notified, proceed, lost := make(chan bool), make(chan bool), 0
	first, second, third := permit("first"), permit("second"), permit("third")
	first.Lost = func(error) { notified <- true; <-proceed }
	second.Lost = func(error) { lost++ }
	acquire(first)
	acquire(third)
	if _, err := d.Acquire(t.Context(), second); !errors.Is(err, backend.ErrNotAcquired) {
		t.Fatalf("Acquire: %v, want *Busy", err)
	}
	if err := d.Release(t.Context(), &backend.Grant{Request: *third}); err != nil {
		t.Fatal(err)
	}
	broken := make(chan error)
	go func() { broken <- d.Break(t.Context(), t.Name(), "") }()
	<-notified
	if _, err := d.Acquire(t.Context(), second); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Acquire before the notification: %v, want ErrLost", err)
	}
	all := []*backend.Request{request(t, "second", time.Hour), request(t, "second", time.Hour)}
	all[0].Key += " other"
	_, failed, err := d.AcquireAll(t.Context(), all)
	if failed != 1 || !errors.Is(err, backend.ErrLost) {
		t.Errorf("AcquireAll before the notification: %v of %d, want ErrLost of 1", err, failed)
	}
	if n := Entries(d, all[0].Key); n > 0 {
		t.Error("AcquireAll leaves a lock")
	}
	acquire(third)
	close(proceed)
	if err := <-broken; err != nil || lost != 1 {
		t.Errorf("Break: %v, with %d notifications of the second holder", err, lost)
	}
	acquire(second)
}
