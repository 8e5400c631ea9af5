package redisbackend

import (
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// requests returns requests for n locks.
func requests(t *testing.T, n int) (reqs []*backend.Request) {
	t.Helper()
	for i := range n {
		req := raw.Request(t, 10*time.Minute)
		req.Key = fmt.Sprintf("%s/%d", req.Key, i)
		reqs = append(reqs, req)
	}
	return reqs
}

// TestLocksWithoutTheirReplicas checks that several locks which too few replicas acknowledge are
// all released, and that a refusal needs no replicas.
func TestLocksWithoutTheirReplicas(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, holder := openURL(t, s.URL+"?wait=1&timeout=4s"), openURL(t, s.URL)
	reqs := requests(t, 3)
	_, _, err := d.AcquireAll(t.Context(), reqs)
	raw.WantIs(t, "AcquireAll", err, backend.ErrUnavailable)
	for _, req := range reqs {
		if n := do(t, admin(t, s), "exists", newKeys(req.Key).lock); n != int64(0) {
			t.Errorf("the lock %s is held", req.Key)
		}
	}
	theirs := *reqs[1]
	theirs.Owner = raw.Request(t, time.Minute).Owner
	held := raw.Acquire(t, holder, &theirs)
	_, failed, err := d.AcquireAll(t.Context(), reqs)
	raw.WantIs(t, "AcquireAll with a lock that is taken", err, backend.ErrNotAcquired)
	if failed != 1 {
		t.Errorf("the refusal is about lock %d", failed)
	}
	raw.Release(t, holder, held)
}

// TestLocksWithoutAFence checks that several locks are not acquired if no fence can be drawn, or
// not a fence for each of them.
func TestLocksWithoutAFence(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, lent := openURL(t, s.URL), admin(t, s)
	for _, last := range []string{"foreign", "4019025413685245"} {
		do(t, lent, "set", fenceKey, last)
		reqs := requests(t, 3)
		_, _, err := d.AcquireAll(t.Context(), reqs)
		raw.WantIs(t, "AcquireAll with the last fence "+last, err, backend.ErrConflict)
		for _, req := range reqs {
			if n := do(t, lent, "exists", newKeys(req.Key).lock); n != int64(0) {
				t.Errorf("the lock %s is held", req.Key)
			}
		}
		if fence := do(t, lent, "get", fenceKey); fence != last {
			t.Errorf("the fence is %v, was %s", fence, last)
		}
	}
}

// TestForeignQueueOfOneLock checks that a foreign value of a queue is a conflict of its lock.
func TestForeignQueueOfOneLock(t *testing.T) {
	t.Parallel()
	s := testenv.Redis(t)
	d, lent := openURL(t, s.URL), admin(t, s)
	reqs := requests(t, 3)
	queue := newKeys(reqs[1].Key).queue
	do(t, lent, "set", queue, "foreign")
	_, failed, err := d.AcquireAll(t.Context(), reqs)
	raw.WantIs(t, "AcquireAll", err, backend.ErrConflict)
	if failed != 1 {
		t.Errorf("the conflict is about lock %d", failed)
	}
	do(t, lent, "del", queue)
}

// TestQueuedLocksWithoutAFence checks that several locks are not acquired if no fence can be drawn
// for the waiters of one of them.
func TestQueuedLocksWithoutAFence(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, lent := openURL(t, s.URL), admin(t, s)
	reqs := requests(t, 3)
	holder, first, second := *reqs[1], *reqs[1], *reqs[1]
	first.Owner, second.Owner = raw.NewOwner(), raw.NewOwner()
	raw.Acquire(t, d, &holder)
	_ = raw.Busy(t, d, &first)
	_ = raw.Busy(t, d, &second)
	k := newKeys(holder.Key)
	do(t, lent, "set", fenceKey, "foreign")
	do(t, lent, "del", k.lock)
	for _, left := range []int64{1, 0, 0} {
		_, _, err := d.AcquireAll(t.Context(), reqs)
		raw.WantIs(t, "AcquireAll", err, backend.ErrConflict)
		if n := do(t, lent, "zcard", k.queue); n != left {
			t.Errorf("the queue has %d entries, want %d", n, left)
		}
	}
}
