package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// TestReasonOfALoss checks that Err, the cause of a context, the error of Do, the event and the log
// all carry the reason of a loss, also if the driver returns a mere ErrLost. Err still returns it
// after Unlock.
func TestReasonOfALoss(t *testing.T) {
	t.Parallel()
	unrenewed := []dlock.Option{dlock.WithoutRenewal()}
	maxHold := []dlock.Option{dlock.WithMaxHold(time.Second)}
	refused := fmt.Errorf("%w: refused", backend.ErrUnavailable)
	for _, test := range []struct {
		name   string
		opts   []dlock.Option
		lose   func(d *script)
		reason string
		target error
	}{
		{"deadline", unrenewed, nil, "not renewed before its deadline", nil},
		{"maximum hold", maxHold, nil, "its maximum hold is over", nil},
		{
			"deadline after failures", nil, renewing(renewFails(refused)),
			"not renewed before its deadline: the last renewal failed: " + refused.Error(), nil,
		},
		{
			"deadline after silence", nil, renewing(renewHangs),
			"not renewed before its deadline: the last renewal failed: no answer in time", nil,
		},
		{
			"renewal", nil, renewing(renewFails(errors.Join(backend.ErrLost, errServer))),
			errServer.Error(), errServer,
		},
		{
			"renewal without a reason", nil, renewing(renewFails(backend.ErrLost)),
			"the server had it no more when it was renewed", nil,
		},
		{"push", nil, pushing(errServer), errServer.Error(), errServer},
		{
			"push without a reason", nil, pushing(backend.ErrLost),
			"the server reported that it is gone", nil,
		},
		{"push of nothing", nil, pushing(nil), "the server reported that it is gone", nil},
		{
			"release", nil, releasing(errors.Join(backend.ErrLost, errServer)),
			errServer.Error(), errServer,
		},
		{
			"release without a reason", nil, releasing(backend.ErrLost),
			"the server had it no more when it was released", nil,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, r, log := newScript(), &recorder{}, &lines{}
				c := open(t, d, r.option(), dlock.WithLogger(slog.New(log)), dlock.WithTTL(ttl))
				var lease *dlock.Lease
				var ctx context.Context
				atRelease := strings.HasPrefix(test.name, "release")
				work := func(inner context.Context, l *dlock.Lease) error {
					if lease, ctx = l, inner; test.lose != nil {
						test.lose(d)
					}
					if !atRelease {
						<-ctx.Done()
					}
					return nil
				}
				errs := map[string]error{"Do": c.Do(t.Context(), "x", work, test.opts...)}
				synctest.Wait()
				errs["Err"] = lease.Err()
				if !atRelease { // there the work returns before the loss is detected
					errs["cause"] = context.Cause(ctx)
				}
				if ends := r.of("ended"); len(ends) == 1 {
					errs["event"] = ends[0].Err
				} else {
					t.Errorf("the events are %v", ends)
				}
				for where, err := range errs {
					text := strings.ReplaceAll(err.Error(), "dlock: ", "")
					if !errors.Is(err, dlock.ErrLost) || errors.Is(err, dlock.ErrNotHeld) ||
						errors.Is(err, dlock.ErrUnavailable) ||
						!strings.Contains(text, strings.ReplaceAll(test.reason, "dlock: ", "")) ||
						test.target != nil && !errors.Is(err, test.target) {
						t.Errorf("%s: %v, want ErrLost: %s", where, err, test.reason)
					}
				}
				warnings := slices.DeleteFunc(log.read(), func(line string) bool {
					return !strings.HasPrefix(line, "WARN")
				})
				if len(warnings) != 1 || !strings.Contains(warnings[0], test.reason) {
					t.Errorf("the warnings are %q, want one with %q", warnings, test.reason)
				}
			})
		})
	}
}

// renewing returns a function that sets the answer of d to all renewals.
func renewing(step renewStep) func(d *script) {
	return func(d *script) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.renews = repeat(1000, step)
	}
}

// pushing returns a function that reports the loss of the first grant of d.
func pushing(cause error) func(d *script) {
	return func(d *script) { d.of("acquire")[0].req.Lost(cause) }
}

// releasing returns a function that sets the error of the next release of d.
func releasing(err error) func(d *script) {
	return func(d *script) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.releases = []releaseStep{releaseFails(err)}
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
