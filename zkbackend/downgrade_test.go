package zkbackend

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestDowngradeLetsNoWriterIn checks a writer that waits behind a writer that becomes a reader. The
// waiter is woken, but it gets the lock only when the reader leaves. The server may report the
// Downgrade only after a reconnection, and then reports no more than the end of the node.
func TestDowngradeLetsNoWriterIn(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	for name, reconnects := range map[string]bool{"connected": false, "reconnected": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holder := openURL(t, s.URL)
			waiter, p := isolated(t, s, "")
			g := raw.Acquire(t, holder, raw.Request(t, patience))
			req := raw.Request(t, patience)
			place := raw.Busy(t, waiter, req).State.(*position)
			heal := func() {}
			if reconnects {
				heal = p.Cut(t)
			}
			shared, err := holder.Downgrade(t.Context(), g)
			must(t, err)
			if reconnects {
				p.Reset(t)
			}
			heal()
			within(t, "the waiter is woken", place.ahead.fired)
			again := raw.Busy(t, waiter, req)
			raw.Release(t, holder, shared)
			_, err = waiter.Wait(t.Context(), req, again)
			must(t, err)
			raw.Release(t, waiter, raw.Acquire(t, waiter, req))
		})
	}
}

// TestLossDuringADowngrade checks that a request without the turn finds no loss while a Downgrade
// replaces the node, and afterwards. The watch of the former node may report its end at any time.
func TestLossDuringADowngrade(t *testing.T) {
	t.Parallel()
	s := &session{ctx: t.Context()}
	a := &acquisition{session: s}
	newWatch := func() *watch { return &watch{fired: make(chan struct{})} }
	a.own.Store(newWatch())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100_000 {
			a.moving.Store(true)
			s.fireWatch(a.own.Load(), errDeleted)
			a.own.Store(newWatch())
			a.moving.Store(false)
		}
	}()
	for {
		if gone := a.gone(); gone != nil {
			t.Errorf("a false loss: %v", gone)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// unanswered makes d the holder of a lock, as it is after a Downgrade that had no answer. execute
// executes the Downgrade. The server reports only the end of the writer's node, as it does after a
// reconnection.
func unanswered(t *testing.T, d *driver, lost func(error)) (g *backend.Grant, execute func()) {
	t.Helper()
	req := raw.Request(t, patience)
	req.Lost = lost
	g = raw.Acquire(t, d, req)
	a := d.find(g)
	within(t, "the node is watched", a.own.Load().armed)
	a.moving.Store(true)
	return g, func() {
		t.Helper()
		own := a.own.Load()
		_, err := d.session.conn.Multi(
			&zk.DeleteRequest{Path: a.node, Version: -1},
			&zk.CreateRequest{
				Path: a.readerNode(), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral,
			})
		must(t, err)
		within(t, "the driver detects the end of the writer's node", own.fired)
	}
}

// TestUnansweredDowngradeIsNoLoss checks a Downgrade without an answer, which the server may
// execute late. The grant is renewed, downgraded, acquired, swept, and its end is a loss.
func TestUnansweredDowngradeIsNoLoss(t *testing.T) {
	t.Parallel()
	d, other := openURL(t, testenv.ZooKeeper(t).URL), openURL(t, testenv.ZooKeeper(t).URL)
	lost := make(chan struct{})
	var broken atomic.Bool
	g, execute := unanswered(t, d, func(error) {
		if !broken.Load() {
			t.Error("a Downgrade is reported as a loss")
		}
		close(lost)
	})
	renew := func() {
		t.Helper()
		_, err := d.Renew(t.Context(), g)
		must(t, err)
	}
	a := d.find(g)
	renew() // the request may still be executed
	execute()
	must(t, d.sweep(a))
	renew()
	shared, err := d.Downgrade(t.Context(), g)
	must(t, err)
	if shared.Fence != g.Fence || a.kind != kind.Reader || a.moving.Load() {
		t.Errorf("the grant %+v became %+v", g, shared)
	}
	again := raw.Acquire(t, d, &g.Request)
	if again.Fence != g.Fence {
		t.Errorf("the fence %d became %d", g.Fence, again.Fence)
	}
	broken.Store(true)
	must(t, other.Break(t.Context(), g.Key, g.Owner))
	within(t, "the driver reports the loss", lost)
}

// TestReleaseAfterAnUnansweredDowngrade checks that a release removes the node, whether the
// Downgrade was executed or not.
func TestReleaseAfterAnUnansweredDowngrade(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.ZooKeeper(t).URL)
	for _, executed := range []bool{false, true} {
		g, execute := unanswered(t, d, func(err error) { t.Errorf("Lost: %v", err) })
		if executed {
			execute()
		}
		raw.Release(t, d, g)
		raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, patience)))
	}
}

// TestLossAfterAnUnansweredDowngrade checks that a Downgrade without an answer hides no loss, and
// that the driver forgets the grant.
func TestLossAfterAnUnansweredDowngrade(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.ZooKeeper(t).URL)
	for name, request := range map[string]func(*backend.Grant) error{
		"Downgrade": func(g *backend.Grant) error {
			_, err := d.Downgrade(t.Context(), g)
			return err
		},
		"Renew": func(g *backend.Grant) error {
			_, err := d.Renew(t.Context(), g)
			return err
		},
	} {
		for _, executed := range []bool{false, true} {
			g, execute := unanswered(t, d, nil)
			if executed {
				execute()
			}
			must(t, d.Break(t.Context(), g.Key, g.Owner))
			raw.WantIs(t, name, request(g), backend.ErrLost)
			if d.find(g) != nil {
				t.Errorf("%s: the driver keeps a lost grant", name)
			}
		}
	}
}

// TestLostReplyOfADowngrade checks that a Downgrade whose answer was lost is found.
func TestLostReplyOfADowngrade(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, p := isolated(t, s, "")
	for range 3 {
		g := raw.Acquire(t, d, raw.Request(t, patience))
		within(t, "the node is watched", d.find(g).own.Load().armed)
		p.DropReply(t, 1)
		shared, err := d.Downgrade(t.Context(), g)
		must(t, err)
		_, err = d.Renew(t.Context(), shared)
		must(t, err)
		raw.Release(t, d, shared)
	}
}

// TestUnprovenDowngrade checks the error of a Downgrade that was executed, and whose session cannot
// be proven because no server can be reached. With ErrUnavailable the holder would go on as a
// writer among readers.
func TestUnprovenDowngrade(t *testing.T) {
	t.Parallel()
	d, p := isolated(t, testenv.ZooKeeper(t), "")
	g := raw.Acquire(t, d, raw.Request(t, patience))
	a, s := d.find(g), d.session
	_, err := inTurn(t.Context(), a, func() (any, error) { return nil, d.downgrade(a, g.Meta) })
	must(t, err)
	p.Close()
	awaitFailure(s)
	stale := *g
	stale.TTL = 0 // no proof is young enough
	if _, err = d.Downgrade(t.Context(), &stale); err == nil ||
		errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("Downgrade: %v, want an unknown outcome", err)
	}
}

// TestDowngradeAfterAnUnansweredOne checks the error of a Downgrade that fails. An earlier one had
// no answer, and may be executed.
func TestDowngradeAfterAnUnansweredOne(t *testing.T) {
	t.Parallel()
	d, p := isolated(t, testenv.ZooKeeper(t), "")
	g, _ := unanswered(t, d, nil)
	p.Close()
	awaitFailure(d.session)
	if _, err := d.Downgrade(t.Context(), g); err == nil ||
		errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("Downgrade: %v, want an unknown outcome", err)
	}
}

// awaitFailure waits until the session has failed to connect.
func awaitFailure(s *session) {
	for failed := false; !failed; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		failed = s.failure != nil
		s.mu.Unlock()
	}
}

// TestRemovalDuringADowngrade checks that a removal finds the node of a reader that has replaced a
// listed node of a writer.
func TestRemovalDuringADowngrade(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.ZooKeeper(t).URL)
	g := raw.Acquire(t, d, raw.Request(t, patience))
	listed := false
	must(t, d.removeEntries(t.Context(), d.session, d.queue(g.Key), func(entries []entry) []entry {
		if !listed {
			listed = true
			_, err := d.Downgrade(t.Context(), g)
			must(t, err)
		}
		return entries
	}))
	raw.WantIs(t, "Release", d.Release(t.Context(), g), backend.ErrNotHeld)
}
