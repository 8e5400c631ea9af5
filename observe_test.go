package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// recorder is an Observer that records all events.
type recorder struct {
	mu     sync.Mutex
	kinds  []string
	events []dlock.Event
}

func (r *recorder) note(kind string, e dlock.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kinds, r.events = append(r.kinds, kind), append(r.events, e)
}

func (r *recorder) option() dlock.Option {
	return dlock.WithObserver(&dlock.Observer{
		Attempt:  func(_ context.Context, e dlock.Event) { r.note("attempt", e) },
		Acquired: func(_ context.Context, e dlock.Event) { r.note("acquired", e) },
		Renewed:  func(e dlock.Event) { r.note("renewed", e) },
		Ended:    func(e dlock.Event) { r.note("ended", e) },
	})
}

// story returns the kinds of all events in their order, joined by spaces.
func (r *recorder) story() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.kinds, " ")
}

// of returns the events of one kind.
func (r *recorder) of(kind string) (events []dlock.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, e := range r.events {
		if r.kinds[i] == kind {
			events = append(events, e)
		}
	}
	return events
}

func TestEventsOfALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, r := newScript(), &recorder{}
		d.acquires = []acquireStep{busy(backend.Busy{})}
		d.waits = []waitStep{lookAgain(time.Second)}
		d.renews = []renewStep{prove, renewFails(errServer)}
		c := open(t, d, r.option(), dlock.WithTTL(ttl))
		lease := takes(t, c, "x")
		for range 2 {
			time.Sleep(time.Second)
			_ = lease.Extend(t.Context())
		}
		frees(t, lease)
		synctest.Wait()
		if got := r.story(); got != "attempt acquired renewed renewed ended" {
			t.Fatalf("the events are %s", got)
		}
		attempt, acquired, failed, last := r.events[0], r.events[1], r.events[3], r.events[4]
		for _, e := range r.events {
			if e.Backend != "dlock_test" || e.Name != "x" ||
				e.Mode != backend.Exclusive || e.Local {
				t.Errorf("an event is %+v", e)
			}
		}
		if attempt.Owner != "" || attempt.Fence != 0 ||
			acquired.Owner != lease.Owner() || acquired.Fence != lease.Fence() {
			t.Errorf("%+v, %+v", attempt, acquired)
		}
		if acquired.Waited != time.Second || acquired.Err != nil ||
			acquired.Deadline.Sub(d.begun) != time.Second+life {
			t.Errorf("acquired: %+v", acquired)
		}
		if r.events[2].Err != nil || !errors.Is(failed.Err, errServer) ||
			last.Err != nil || last.Held != 2*time.Second {
			t.Errorf("renewed: %v, %v; ended: %+v", r.events[2].Err, failed.Err, last)
		}
	})
}

func TestEventsOfFailedAttempts(t *testing.T) {
	for _, test := range []struct {
		step acquireStep
		want error
	}{
		{busy(backend.Busy{}), dlock.ErrNotAcquired},
		{acquireFails(errUnavailable), dlock.ErrUnavailable},
		{acquireHangs, dlock.ErrUncertain},
	} {
		t.Run(test.want.Error(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, r := newScript(), &recorder{}
				d.acquires = []acquireStep{test.step}
				c := open(t, d, r.option())
				_, err := c.TryLock(t.Context(), "x")
				synctest.Wait()
				if got := r.story(); got != "attempt acquired" {
					t.Fatalf("the events are %s", got)
				}
				e := r.of("acquired")[0]
				if !errors.Is(e.Err, test.want) || !errors.Is(e.Err, err) ||
					e.Name != "x" || e.Owner != "" {
					t.Errorf("acquired: %+v, returned: %v", e, err)
				}
			})
		})
	}
}

// TestEventsAfterADowngrade checks that the events of a lease have its mode at their time. After a
// Downgrade without an answer the lease goes on as a writer's.
func TestEventsAfterADowngrade(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		failure error
		want    backend.Mode
	}{{nil, backend.Shared}, {errServer, backend.Exclusive}} {
		synctest.Test(t, func(t *testing.T) {
			d, _ := newHooked()
			d.downgrade = func(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
				shared, err := d.movable.Downgrade(ctx, g)
				return shared, errors.Join(err, test.failure)
			}
			r := &recorder{}
			lease := takes(t, open(t, d, r.option()), "x")
			if err := lease.Extend(t.Context()); err != nil {
				t.Error(err)
			}
			wantErr(t, lease.Downgrade(t.Context()), test.failure)
			if err := lease.Extend(t.Context()); err != nil {
				t.Error(err)
			}
			frees(t, lease)
			synctest.Wait()
			var modes []backend.Mode
			for _, e := range r.events {
				modes = append(modes, e.Mode)
			}
			const writer = backend.Exclusive
			want := []backend.Mode{writer, writer, writer, test.want, test.want}
			if !slices.Equal(modes, want) {
				t.Errorf("the events are %s\nwith the modes %v, want %v", r.story(), modes, want)
			}
		})
	}
}

// TestEachLeaseEndsOnce checks that each lease has exactly one end event, whatever ends it.
func TestEachLeaseEndsOnce(t *testing.T) {
	unrenewed := []dlock.Option{dlock.WithoutRenewal()}
	minHold := []dlock.Option{dlock.WithMinHold(time.Second)}
	maxHold := []dlock.Option{dlock.WithMaxHold(time.Second)}
	for _, test := range []struct {
		name string
		opts []dlock.Option
		end  func(t *testing.T, c *dlock.Client, d *script, lease *dlock.Lease)
		want error
	}{
		{"unlocked", nil, func(t *testing.T, _ *dlock.Client, _ *script, lease *dlock.Lease) {
			t.Helper()
			frees(t, lease)
			_ = lease.Unlock(t.Context())
		}, nil},
		{"reported lost", nil, func(t *testing.T, _ *dlock.Client, d *script, lease *dlock.Lease) {
			t.Helper()
			d.of("acquire")[0].req.Lost(backend.ErrLost)
			_ = lease.Unlock(t.Context())
		}, dlock.ErrLost},
		{"expired", unrenewed, func(_ *testing.T, _ *dlock.Client, _ *script, lease *dlock.Lease) {
			<-lease.Lost()
		}, dlock.ErrLost},
		{
			"expired, seen by Err", unrenewed,
			func(_ *testing.T, _ *dlock.Client, _ *script, lease *dlock.Lease) {
				time.Sleep(life)
				_ = lease.Err()
			},
			dlock.ErrLost,
		},
		{
			"expired, seen by Unlock", unrenewed,
			func(t *testing.T, _ *dlock.Client, _ *script, lease *dlock.Lease) {
				t.Helper()
				time.Sleep(life)
				wantErr(t, lease.Unlock(t.Context()), dlock.ErrLost)
			},
			dlock.ErrLost,
		},
		{
			"maximum hold", maxHold,
			func(_ *testing.T, _ *dlock.Client, _ *script, lease *dlock.Lease) {
				<-lease.Lost()
			},
			dlock.ErrLost,
		},
		{
			"minimum hold", minHold,
			func(t *testing.T, _ *dlock.Client, _ *script, lease *dlock.Lease) {
				t.Helper()
				frees(t, lease)
			},
			nil,
		},
		{
			"minimum hold, then lost", minHold,
			func(t *testing.T, _ *dlock.Client, d *script, lease *dlock.Lease) {
				t.Helper()
				frees(t, lease)
				d.of("acquire")[0].req.Lost(backend.ErrLost)
			},
			nil,
		},
		{"closed", nil, func(t *testing.T, c *dlock.Client, _ *script, lease *dlock.Lease) {
			t.Helper()
			closes(t, c)
			_ = lease.Unlock(t.Context())
		}, dlock.ErrClosed},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, r := newScript(), &recorder{}
				c := open(t, d, r.option(), dlock.WithTTL(ttl))
				test.end(t, c, d, takes(t, c, "x", test.opts...))
				time.Sleep(time.Minute)
				synctest.Wait()
				ends := r.of("ended")
				if len(ends) != 1 || !errors.Is(ends[0].Err, test.want) {
					t.Errorf("the ends are %+v", ends)
				}
			})
		})
	}
}

func TestEventsOfReentrantLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, r := newScript(), &recorder{}
		c := open(t, d, r.option(), dlock.WithReentrant())
		outer := takes(t, c, "x")
		ctx, cancel := outer.Context(t.Context())
		defer cancel()
		var inner []*dlock.Lease
		for range 3 {
			lease, err := c.Lock(ctx, "x")
			if err != nil {
				t.Fatal(err)
			}
			inner = append(inner, lease)
		}
		frees(t, inner[0])
		synctest.Wait()
		if n := len(r.of("ended")); n != 1 {
			t.Errorf("%d ends after one Unlock", n)
		}
		d.of("acquire")[0].req.Lost(backend.ErrLost)
		synctest.Wait()
		acquired, ended := len(r.of("acquired")), len(r.of("ended"))
		if acquired != 4 || ended != 4 {
			t.Errorf("%d leases were acquired, %d have ended", acquired, ended)
		}
	})
}

func TestEventsOfHandOffs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, r := newScript(), &recorder{}
		c := open(t, d, r.option())
		lease := takes(t, c, "x")
		fences := []uint64{lease.Fence()}
		for _, waiter := range queueUp(t, c, "x", 3) {
			time.Sleep(time.Millisecond)
			frees(t, lease)
			lease = (<-waiter).lease
			fences = append(fences, lease.Fence())
		}
		frees(t, lease)
		synctest.Wait()
		for i, e := range r.of("acquired") {
			waited := time.Duration(i) * time.Millisecond
			if e.Local != (i > 0) || e.Fence != fences[i] || e.Waited != waited {
				t.Errorf("acquired: %+v", e)
			}
		}
		var ends []uint64
		for _, e := range r.of("ended") {
			ends = append(ends, e.Fence)
			if e.Err != nil || e.Held > time.Millisecond {
				t.Errorf("ended: %+v", e)
			}
		}
		if slices.Sort(ends); !slices.Equal(ends, fences) {
			t.Errorf("the ended leases have the fences %v, want %v", ends, fences)
		}
	})
}

func TestObserverGetsTheContextOfTheCall(t *testing.T) {
	type key struct{}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := 0
		check := func(ctx context.Context, _ dlock.Event) {
			if ctx.Value(key{}) == "v" {
				seen++
			}
		}
		observer := &dlock.Observer{Attempt: check, Acquired: check}
		c := open(t, newScript(), dlock.WithObserver(observer))
		ctx := context.WithValue(t.Context(), key{}, "v")
		err := c.Do(ctx, "x", func(context.Context, *dlock.Lease) error { return nil })
		synctest.Wait()
		if err != nil || seen != 2 {
			t.Errorf("%v; %d events with the caller's context", err, seen)
		}
	})
}

func TestPartOfAnObserver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, newScript(), dlock.WithObserver(&dlock.Observer{}), dlock.WithTTL(ttl))
		lease := takes(t, c, "x")
		time.Sleep(time.Minute)
		frees(t, lease)
	})
}

// TestLog checks that the client logs background events, with the name of the lock. It does not log
// errors that a call returns to its caller.
func TestLog(t *testing.T) {
	for _, test := range []struct {
		name    string
		prepare func(d *script)
		do      func(t *testing.T, c *dlock.Client)
		want    []string
	}{
		{"all is well", nil, func(t *testing.T, c *dlock.Client) {
			t.Helper()
			lease := takes(t, c, "x")
			time.Sleep(time.Minute)
			frees(t, lease)
			_, _ = c.TryLock(t.Context(), "x")
		}, nil},
		{"lost", nil, func(t *testing.T, c *dlock.Client) {
			t.Helper()
			<-takes(t, c, "x", dlock.WithoutRenewal()).Lost()
			synctest.Wait()
		}, []string{
			`WARN "dlock: lease lost" name=x error=` +
				"dlock: lock lost: not renewed before its deadline",
		}},
		{"in danger", func(d *script) {
			d.renews = []renewStep{renewFails(errServer)}
		}, func(t *testing.T, c *dlock.Client) {
			t.Helper()
			takes(t, c, "x")
			time.Sleep(time.Minute)
		}, []string{
			`INFO "dlock: renewal failed, the lease is in danger" name=x error=the server refused`,
		}},
		{"not released", func(d *script) {
			d.releases = []releaseStep{releaseHangs}
		}, func(t *testing.T, c *dlock.Client) {
			t.Helper()
			wantErr(t, takes(t, c, "x").Unlock(t.Context()), dlock.ErrUncertain)
			time.Sleep(time.Minute)
		}, []string{
			`WARN "dlock: release not answered, repeating it" name=x error=` +
				"dlock: outcome unknown: dlock: backend unavailable: no answer in time",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				if test.prepare != nil {
					test.prepare(d)
				}
				log := &lines{}
				test.do(t, open(t, d, dlock.WithTTL(ttl), dlock.WithLogger(slog.New(log))))
				synctest.Wait()
				if got := log.read(); !slices.Equal(got, test.want) {
					t.Errorf("the log is %q\nwant %q", got, test.want)
				}
			})
		})
	}
}

// lines is a slog.Handler that keeps the level, the message, the name and the error of each record.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (*lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	line := fmt.Sprintf("%v %q", r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "name" || a.Key == "error" {
			line += " " + a.String()
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, line)
	return nil
}

func (l *lines) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *lines) WithGroup(string) slog.Handler      { return l }

func (l *lines) read() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.text)
}

// TestEndedReportsALossThatUnlockFinds checks that Observer.Ended reports a loss which Unlock is
// the first to detect.
func TestEndedReportsALossThatUnlockFinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.releases = []releaseStep{releaseFails(backend.ErrNotHeld)}
		var ends []error
		ended := func(e dlock.Event) { ends = append(ends, e.Err) }
		c := open(t, d, dlock.WithObserver(&dlock.Observer{Ended: ended}))
		wantErr(t, takes(t, c, "x").Unlock(t.Context()), dlock.ErrLost)
		synctest.Wait()
		if len(ends) != 1 || !errors.Is(ends[0], dlock.ErrLost) {
			t.Errorf("the observer received %v", ends)
		}
	})
}

// TestDroppedReentrantLeaseIsObserved checks that a dropped lease has an end event, so that as many
// leases end as were acquired.
func TestDroppedReentrantLeaseIsObserved(t *testing.T) {
	t.Parallel()
	d, log, r := newScript(), newSignal(), &recorder{}
	c := open(t, d, log.logger(), r.option(), dlock.WithReentrant(), dlock.WithTTL(realTTL))
	outer := takes(t, c, "x")
	ctx, cancel := outer.Context(t.Context())
	defer cancel()
	func() {
		if _, err := c.Lock(ctx, "x"); err != nil {
			t.Fatal(err)
		}
	}()
	log.wait(t, "dropped")
	frees(t, outer)
	closes(t, c)
	if acquired, ended := len(r.of("acquired")), len(r.of("ended")); acquired != 2 || ended != 2 {
		t.Errorf("%d leases were acquired, %d have ended", acquired, ended)
	}
}
