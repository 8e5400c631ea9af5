package dlock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// TestReasonOfALoss checks that Err, the cause of a context, the error of Do, the event and the log
// all carry the reason of a loss. Err still returns it after Unlock.
func TestReasonOfALoss(t *testing.T) {
	t.Parallel()
	unrenewed := []dlock.Option{dlock.WithoutRenewal()}
	maxHold := []dlock.Option{dlock.WithMaxHold(time.Second)}
	for _, test := range []struct {
		name   string
		opts   []dlock.Option
		lose   func(d *script)
		reason string
		target error
	}{
		{"deadline", unrenewed, nil, "not renewed before its deadline", nil},
		{"maximum hold", maxHold, nil, "its maximum hold is over", nil},
		{"renewal", nil, func(d *script) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.renews = []renewStep{renewFails(errors.Join(backend.ErrLost, errServer))}
		}, errServer.Error(), errServer},
		{"push", nil, func(d *script) {
			d.of("acquire")[0].req.Lost(errServer)
		}, errServer.Error(), errServer},
		{"release", nil, func(d *script) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.releases = []releaseStep{releaseFails(errors.Join(backend.ErrLost, errServer))}
		}, errServer.Error(), errServer},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, r, log := newScript(), &recorder{}, &lines{}
				c := open(t, d, r.option(), dlock.WithLogger(slog.New(log)), dlock.WithTTL(ttl))
				var lease *dlock.Lease
				var ctx context.Context
				work := func(inner context.Context, l *dlock.Lease) error {
					if lease, ctx = l, inner; test.lose != nil {
						test.lose(d)
					}
					if test.name != "release" {
						<-ctx.Done()
					}
					return nil
				}
				errs := map[string]error{"Do": c.Do(t.Context(), "x", work, test.opts...)}
				synctest.Wait()
				errs["Err"] = lease.Err()
				if test.name != "release" { // there the work returns before the loss is detected
					errs["cause"] = context.Cause(ctx)
				}
				if ends := r.of("ended"); len(ends) == 1 {
					errs["event"] = ends[0].Err
				} else {
					t.Errorf("the events are %v", ends)
				}
				for where, err := range errs {
					if !errors.Is(err, dlock.ErrLost) || errors.Is(err, dlock.ErrNotHeld) ||
						!strings.Contains(err.Error(), test.reason) ||
						test.target != nil && !errors.Is(err, test.target) {
						t.Errorf("%s: %v, want ErrLost: %s", where, err, test.reason)
					}
				}
				if text := log.read(); len(text) != 1 || !strings.Contains(text[0], test.reason) {
					t.Errorf("the log is %q, want one line with %q", text, test.reason)
				}
			})
		})
	}
}

// TestUnlockAfterAMaximumHold checks that Unlock after a maximum hold releases the lock at once,
// unless the lock has a lock-delay.
func TestUnlockAfterAMaximumHold(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{0, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			d := newScript()
			c := open(t, d, dlock.WithTTL(ttl), dlock.WithMaxHold(time.Second),
				dlock.WithLockDelay(delay))
			lease := takes(t, c, "x")
			<-lease.Lost()
			wantErr(t, lease.Unlock(t.Context()), dlock.ErrLost)
			time.Sleep(time.Minute)
			want := time.Second
			if delay > 0 {
				want = ttl + delay // the end of the server's term
			}
			wantStory(t, d, "acquire release")
			wantAt(t, "released", d.of("release")[0].at, want, 0)
		})
	}
}
