package zkbackend

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// earlierByTheWall returns t with a wall clock that is d behind and the same monotonic clock. So
// the present seems to come after a suspend of d. No function of package time can make such a time:
// the first word of a time.Time has the seconds of the wall clock above 30 bits of nanoseconds.
func earlierByTheWall(t time.Time, d time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) -= uint64(d/time.Second) << 30
	return t
}

// TestProofCountsASuspend checks that a proof counts from the last touch before a suspend, in which
// the monotonic clock stood still.
func TestProofCountsASuspend(t *testing.T) {
	t.Parallel()
	const timeout, suspend = 10 * time.Second, 4 * time.Second
	s := &session{}
	s.proof.negotiated(timeout)
	now := time.Now()
	s.proof.add(moment{sent: now, touched: earlierByTheWall(now, suspend)})
	if got := s.term(timeout); got.TTL != timeout-suspend {
		t.Errorf("a term of %v, want %v", got.TTL, timeout-suspend)
	}
}

// TestSuspendMakesAProofOld checks that a renewal after a suspend requests a proof.
func TestSuspendMakesAProofOld(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.ZooKeeper(t).URL)
	g := raw.Acquire(t, d, raw.Request(t, patience))
	p := &d.session.proof
	p.Lock()
	p.sent = earlierByTheWall(p.sent, patience)
	old := p.sent
	p.Unlock()
	renewed := d.RenewAll(t.Context(), []*backend.Grant{g})[0]
	if renewed.Err != nil || !renewed.Term.Sent.After(old) {
		t.Errorf("after a suspend: %v, with a proof that is %v younger",
			renewed.Err, renewed.Term.Sent.Sub(old))
	}
	raw.Release(t, d, g)
}

// TestProofCountsFromAnswers checks that a proof does not count from a request that the
// network delayed. Such a request had not reached a server.
func TestProofCountsFromAnswers(t *testing.T) {
	t.Parallel()
	const session, ttl = 10 * time.Second, 7 * time.Second
	s := testenv.NewZooKeeper(t, time.Second)
	d, p := isolated(t, s, "?session="+session.String())
	g := raw.Acquire(t, d, raw.Request(t, ttl))
	stalled := time.Now()
	deliver := p.Delay(t)
	time.Sleep(4 * time.Second) // no server receives the pings of this time
	answer := make(chan error, 1)
	renewal := time.Now()
	var end time.Time
	go func() {
		term, err := d.Renew(t.Context(), g)
		end = term.Sent.Add(term.TTL)
		answer <- err
	}()
	time.Sleep(100 * time.Millisecond)
	deliver()
	must(t, <-answer)
	if latest := stalled.Add(d.session.proof.granted()); end.After(latest) {
		t.Errorf("renewed %v after the stall began, the lease outlasts the leader's session by %v",
			renewal.Sub(stalled), end.Sub(latest))
	}
	raw.Release(t, d, g)
}

// TestProofNeedsAMajority checks that the answers of a leader without a majority do not prove the
// session. Such a leader still answers requests that need no majority. Another leader may already
// count the timeout of the session.
func TestProofNeedsAMajority(t *testing.T) {
	t.Parallel()
	e := testenv.Alone(t, testenv.ZooKeeperEnsemble)
	leader := e.Leader(t)
	d := openURL(t, leader.URL+"?session=30s")
	g := raw.Acquire(t, d, raw.Request(t, 20*time.Second))
	heal := e.Isolate(t, leader)
	isolated := time.Now()
	for time.Since(isolated) < 3*time.Second {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		term, err := d.Renew(ctx, g)
		cancel()
		if err == nil && term.Sent.After(isolated) {
			t.Errorf("renewed %v after the leader was isolated", term.Sent.Sub(isolated))
			break
		}
	}
	heal()
}
