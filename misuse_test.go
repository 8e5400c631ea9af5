package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// TestNameIsFreeAfterAPanic checks that the next caller gets the lock after a driver panicked and
// the caller recovered, or after a Goexit in the driver.
func TestNameIsFreeAfterAPanic(t *testing.T) {
	t.Parallel()
	for how, escape := range map[string]func(){
		"panic":  func() { panic("a driver's") },
		"goexit": runtime.Goexit,
	} {
		for where, prepare := range map[string]func(d *script){
			"Acquire": func(d *script) {
				d.acquires = []acquireStep{
					func(context.Context, *backend.Request) (*backend.Grant, error) {
						escape()
						return nil, nil
					},
				}
			},
			"Wait": func(d *script) {
				d.acquires = []acquireStep{busy(backend.Busy{})}
				d.waits = []waitStep{
					func(context.Context, *backend.Request, *backend.Busy) (*backend.Grant, error) {
						escape()
						return nil, nil
					},
				}
			},
			"Release": func(d *script) {
				d.releases = []releaseStep{func(context.Context, *backend.Grant) error {
					escape()
					return nil
				}}
			},
		} {
			t.Run(where+" "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					d := newScript()
					prepare(d)
					c := open(t, d)
					go func() {
						defer func() { _ = recover() }()
						if lease, err := c.Lock(context.Background(), "x"); err == nil {
							_ = lease.Unlock(context.Background())
						}
					}()
					synctest.Wait()
					time.Sleep(time.Minute)
					lease, err := c.TryLock(t.Context(), "x")
					if err != nil {
						t.Fatal(err)
					}
					frees(t, lease)
					wantAt(t, "closed", closes(t, c), 0, 0)
				})
			})
		}
	}
}

// TestContextThatPanics passes a context that panics, such as an interface with a nil pointer. Only
// the call with that context fails, and it changes no state.
func TestContextThatPanics(t *testing.T) {
	t.Parallel()
	var ctx struct{ context.Context }
	for name, call := range map[string]func(c *dlock.Client, held *dlock.Lease){
		"Lock":     func(c *dlock.Client, _ *dlock.Lease) { _, _ = c.Lock(ctx, "x") },
		"TryLock":  func(c *dlock.Client, _ *dlock.Lease) { _, _ = c.TryLock(ctx, "x") },
		"Extend":   func(_ *dlock.Client, held *dlock.Lease) { _ = held.Extend(ctx) },
		"Context":  func(_ *dlock.Client, held *dlock.Lease) { _, _ = held.Context(ctx) },
		"Unlock":   func(_ *dlock.Client, held *dlock.Lease) { _ = held.Unlock(ctx) },
		"Shutdown": func(c *dlock.Client, _ *dlock.Lease) { _ = c.Shutdown(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := open(t, newScript())
				held := takes(t, c, "held")
				func() {
					defer func() { _ = recover() }()
					call(c, held)
					t.Error("the call did not panic")
				}()
				if err := held.Err(); err != nil {
					t.Fatal(err)
				}
				frees(t, held)
				frees(t, takes(t, c, "held"))
				frees(t, takes(t, c, "x"))
				wantAt(t, "closed", closes(t, c), 0, 0)
			})
		})
	}
}

// brittle is a context that panics at one call, counted from 0.
type brittle struct {
	context.Context
	calls *int // until the panic
}

func (b brittle) count() {
	if *b.calls--; *b.calls == -1 {
		panic("a context's")
	}
}

func (b brittle) Done() <-chan struct{} { b.count(); return b.Context.Done() }
func (b brittle) Err() error            { b.count(); return b.Context.Err() }
func (b brittle) Value(key any) any     { b.count(); return b.Context.Value(key) }

// TestContextThatPanicsLater passes contexts that panic during or after the Lock. The call leaves
// no lock behind.
func TestContextThatPanicsLater(t *testing.T) {
	t.Parallel()
	work := func(context.Context, *dlock.Lease) error { return io.EOF }
	for name, call := range map[string]func(ctx context.Context, c *dlock.Client){
		"Do":    func(ctx context.Context, c *dlock.Client) { _ = c.Do(ctx, "x", work) },
		"Elect": func(ctx context.Context, c *dlock.Client) { _ = c.Elect(ctx, "x", work) },
		"LockAll": func(ctx context.Context, c *dlock.Client) {
			freesAll(c.LockAll(ctx, []string{"x"}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := open(t, newScript())
				for panics, calls := true, 0; panics; calls++ {
					left := calls
					func() {
						defer func() { panics = recover() != nil }()
						call(brittle{t.Context(), &left}, c)
					}()
					synctest.Wait()
					lease, err := c.TryLock(t.Context(), "x")
					if err != nil {
						t.Fatalf("after a panic of call %d: %v", calls, err)
					}
					frees(t, lease)
				}
			})
		})
	}
}

// freesAll unlocks the leases of a LockAll that did not panic.
func freesAll(m *dlock.MultiLease, err error) {
	if err == nil {
		_ = m.Unlock(context.Background())
	}
}

// TestGrantOfAnotherLock has a driver that answers with the grant of another lock or another owner,
// to an Acquire or in a Wait. Lock refuses it, and releases what its own request may have left. The
// other grant is neither renewed nor released.
func TestGrantOfAnotherLock(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(g *backend.Grant){
		"another lock":  func(g *backend.Grant) { g.Key = "other" },
		"another owner": func(g *backend.Grant) { g.Owner = strings.Repeat("f", 32) },
	} {
		for _, waits := range []bool{false, true} {
			t.Run(fmt.Sprint(name, waits), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					d := newScript()
					other := acquireStep(func(
						ctx context.Context, req *backend.Request,
					) (*backend.Grant, error) {
						g, err := d.grant(ctx, req)
						change(g)
						g.Term.TTL /= 10 // a waiter would renew it at once
						return g, err
					})
					d.acquires = []acquireStep{other}
					if waits {
						d.acquires = []acquireStep{busy(backend.Busy{})}
						d.waits = []waitStep{func(
							ctx context.Context, req *backend.Request, _ *backend.Busy,
						) (*backend.Grant, error) {
							return other(ctx, req)
						}}
					}
					refusesOther(t, d)
				})
			})
		}
	}
}

// refusesOther checks that the Lock of a driver, whose first grant is another's, fails.
func refusesOther(t *testing.T, d *script) {
	t.Helper()
	_, err := open(t, d).Lock(t.Context(), "x")
	wantErr(t, err, dlock.ErrConflict)
	synctest.Wait()
	own := d.of("acquire")[0]
	for _, r := range d.of("release") {
		if r.owner != own.owner {
			t.Errorf("the owner %s was released, want %s", r.owner, own.owner)
		}
	}
	if len(d.of("release")) == 0 || len(d.of("renew")) > 0 {
		t.Errorf("the calls are %s", d.story())
	}
}

// TestDowngradeToAnotherGrant has a driver that answers a Downgrade with the grant of another
// owner. The outcome is unknown, and the lease keeps its own grant.
func TestDowngradeToAnotherGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, another := newHooked()
		d.downgrade = func(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
			shared, err := d.movable.Downgrade(ctx, g)
			other := *shared
			other.Owner = strings.Repeat("f", 32)
			return &other, err
		}
		lease := takes(t, open(t, d), "x")
		wantErr(t, lease.Downgrade(t.Context()), dlock.ErrUncertain)
		frees(t, lease)
		next, err := open(t, another).TryLock(t.Context(), "x")
		if err != nil {
			t.Fatalf("the lock is not free: %v", err)
		}
		frees(t, next)
	})
}

// TestErrorWithoutASentinel has a driver that returns the error of its connection. The caller can
// test for ErrUnavailable.
func TestErrorWithoutASentinel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, reset := newScript(), errors.New("connection reset by peer")
		d.renews = []renewStep{renewFails(reset)}
		d.inspect = func(context.Context) (*backend.Info, error) { return nil, reset }
		c := open(t, d)
		lease := takes(t, c, "x")
		wantErr(t, lease.Extend(t.Context()), dlock.ErrUnavailable, reset)
		_, err := c.Inspect(t.Context(), "x")
		wantErr(t, err, dlock.ErrUnavailable, reset)
		frees(t, lease)
	})
}

// nothing is a driver whose methods return neither a result nor an error.
type nothing struct{ *script }

func (nothing) Acquire(_ context.Context, req *backend.Request) (*backend.Grant, error) {
	if req.Key == "sound" {
		return &backend.Grant{Request: *req, Term: termOf(req.TTL), Fence: 1}, nil
	}
	return nil, nil
}

func (nothing) Renew(context.Context, *backend.Grant) (backend.Term, error) {
	return backend.Term{}, nil
}
func (nothing) Inspect(context.Context, string) (*backend.Info, error) { return nil, nil }
func (nothing) List(context.Context, string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) { yield(nil, nil) }
}

// TestDriverThatReturnsNothing checks that such a driver causes an error, which names the operation
// and the lock.
func TestDriverThatReturnsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		c := open(t, nothing{newScript()}, dlock.WithTTL(ttl), dlock.WithLogger(slog.New(log)))
		lease := takes(t, c, "sound", dlock.WithoutRenewal())
		_, lockErr := c.Lock(t.Context(), "x", dlock.WithTTL(time.Second))
		_, tryErr := c.TryLock(t.Context(), "x")
		_, inspectErr := c.Inspect(t.Context(), "x")
		var listErr error
		for _, listErr = range c.List(t.Context(), "x") {
		}
		for op, err := range map[string]error{
			"lock": lockErr, "try-lock": tryErr, "inspect": inspectErr, "list": listErr,
			"extend": lease.Extend(t.Context()),
		} {
			if err == nil || !strings.Contains(err.Error(), "neither a result nor an error") ||
				!strings.Contains(err.Error(), "dlock: "+op+` "`) {
				t.Errorf("%s: %v", op, err)
			}
		}
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if text := log.read(); len(text) != 1 || !strings.Contains(text[0], "name=sound") {
			t.Errorf("the log is %q, want one line about the renewal of sound", text)
		}
	})
}

// TestDriverThatReportsALossTwice checks a driver that reports a loss twice, late, or after Close.
// The lease ends once, and no other lease ends.
func TestDriverThatReportsALossTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, r, log := newScript(), &recorder{}, &lines{}
		c := open(t, d, r.option(), dlock.WithLogger(slog.New(log)))
		told, sound := takes(t, c, "told"), takes(t, c, "sound")
		tell := d.of("acquire")[0].req.Lost
		tell(errServer)
		tell(backend.ErrLost)
		wantErr(t, told.Unlock(t.Context()), errServer)
		again := takes(t, c, "told")
		tell(backend.ErrLost)
		for _, lease := range []*dlock.Lease{sound, again} {
			if err := lease.Err(); err != nil {
				t.Error(err)
			}
		}
		closes(t, c)
		tell(backend.ErrLost)
		d.of("acquire")[1].req.Lost(backend.ErrLost)
		synctest.Wait()
		wantErr(t, told.Err(), errServer)
		wantErr(t, sound.Err(), dlock.ErrClosed)
		if ends, text := r.of("ended"), log.read(); len(ends) != 3 || len(text) != 1 {
			t.Errorf("%d events; the log is %q", len(ends), text)
		}
	})
}

// TestDriverThatAnswersAfterClose checks that a grant which arrives after Close does not become a
// lease, and that the log has the name of its lock, which stays taken. Close has given up the
// request.
func TestDriverThatAnswersAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{
			func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
				time.Sleep(time.Minute)
				return d.grant(ctx, req)
			},
		}
		log := &lines{}
		c := open(t, d, dlock.WithLogger(slog.New(log)))
		late := lockBehind(t.Context(), c, "late")
		synctest.Wait()
		if took := closes(t, c); took > 6*time.Second {
			t.Errorf("Close took %v", took)
		}
		wantErr(t, (<-late).err, dlock.ErrClosed)
		synctest.Wait()
		wantStory(t, d, "acquire close")
		want := []string{
			`WARN "dlock: Close did not wait for all" ` +
				`error=context deadline exceeded: 1 calls are under way`,
			`WARN "dlock: not released after Close, the lock may stay taken for its TTL" name=late`,
		}
		if text := log.read(); !slices.Equal(text, want) {
			t.Errorf("the log is %q, want %q", text, want)
		}
	})
}

// TestDriverThatPanicsWithAnError checks that the event of a renewal carries the error with which
// the driver panicked.
func TestDriverThatPanicsWithAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, r := newScript(), &recorder{}
		d.renews = []renewStep{func(context.Context, *backend.Grant) (backend.Term, error) {
			panic(errServer)
		}}
		lease := takes(t, open(t, d, dlock.WithTTL(ttl), r.option()), "x")
		time.Sleep(ttl / 2)
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
		wantErr(t, r.of("renewed")[0].Err, errServer)
	})
}

// TestContextsOfADriverEndWithItsCalls checks that the context of each driver call ends with the
// call. A goroutine of the driver that waits for the context then ends as well.
func TestContextsOfADriverEndWithItsCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		contexts := map[string]context.Context{}
		d.acquires = []acquireStep{
			func(ctx context.Context, _ *backend.Request) (*backend.Grant, error) {
				contexts["Acquire"] = ctx
				return nil, &backend.Busy{}
			},
		}
		d.waits = []waitStep{
			func(ctx context.Context, _ *backend.Request, _ *backend.Busy) (*backend.Grant, error) {
				contexts["Wait"] = ctx
				return nil, nil
			},
		}
		d.renews = []renewStep{func(ctx context.Context, g *backend.Grant) (backend.Term, error) {
			contexts["Renew"] = ctx
			return prove(ctx, g)
		}}
		d.releases = []releaseStep{func(ctx context.Context, _ *backend.Grant) error {
			contexts["Release"] = ctx
			return nil
		}}
		d.inspect = func(ctx context.Context) (*backend.Info, error) {
			contexts["Inspect"] = ctx
			return &backend.Info{Key: "x"}, nil
		}
		d.breakLock = func(ctx context.Context) error {
			contexts["Break"] = ctx
			return nil
		}
		c := open(t, d)
		_, err := c.Inspect(t.Context(), "x")
		if err = errors.Join(err, c.Break(t.Context(), "x", "")); err != nil {
			t.Error(err)
		}
		lease := takes(t, c, "x")
		if err := lease.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		frees(t, lease)
		for name, ctx := range contexts {
			if !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("%s: %v", name, ctx.Err())
			}
		}
		if len(contexts) != 6 {
			t.Errorf("the calls are %s", d.story())
		}
	})
}

// TestDriverThatCancelsItself checks that a cancellation inside the driver does not become
// ErrClosed while the client is open.
func TestDriverThatCancelsItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{acquireFails(context.Canceled)}
		_, err := open(t, d).TryLock(t.Context(), "x")
		wantErr(t, err, dlock.ErrUncertain, context.Canceled)
		wantNoErr(t, err, dlock.ErrClosed)
	})
}

// TestHandlersThatDoNotReturn checks that each handler which panics or ends its goroutine is logged
// once, by its name, and still gets the next event.
func TestHandlersThatDoNotReturn(t *testing.T) {
	t.Parallel()
	for how, escape := range map[string]func(){
		"it panicked: an observer's": func() { panic("an observer's") },
		"it ended its goroutine":     runtime.Goexit,
	} {
		synctest.Test(t, func(t *testing.T) {
			log, calls := &lines{}, map[string]int{}
			called := func(name string) {
				calls[name]++
				escape()
			}
			observer := &dlock.Observer{
				Attempt:  func(context.Context, dlock.Event) { called("Attempt") },
				Acquired: func(context.Context, dlock.Event) { called("Acquired") },
				Renewed:  func(dlock.Event) { called("Renewed") },
				Ended:    func(dlock.Event) { called("Ended") },
			}
			logger := dlock.WithLogger(slog.New(log))
			c := open(t, newScript(), logger, dlock.WithObserver(observer))
			for range 3 {
				lease := takes(t, c, "x")
				if err := lease.Extend(t.Context()); err != nil {
					t.Error(err)
				}
				frees(t, lease)
			}
			synctest.Wait()
			said := strings.Join(log.read(), "\n")
			for _, name := range []string{"Attempt", "Acquired", "Renewed", "Ended"} {
				line := `ERROR "dlock: Observer.` + name + ` did not return" name=x error=` + how
				if calls[name] != 3 || strings.Count(said, line) != 1 {
					t.Errorf("%s was called %d times; the log is\n%s\nwant once %s",
						name, calls[name], said, line)
				}
			}
		})
	}
}

// panicking is a log handler that panics once.
type panicking struct {
	lines
	panicked bool
}

func (p *panicking) Handle(ctx context.Context, r slog.Record) error {
	if !p.panicked {
		p.panicked = true
		panic("a logger's")
	}
	return p.lines.Handle(ctx, r)
}

// TestLoggerThatPanics checks that a panic of the logger is logged to that logger.
func TestLoggerThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &panicking{}
		c := open(t, newScript(), dlock.WithLogger(slog.New(log)))
		for range 2 {
			<-takes(t, c, "x", dlock.WithMaxHold(time.Second)).Lost()
			synctest.Wait()
		}
		text := log.read()
		const want = `ERROR "dlock: the logger did not return" name=x error=it panicked: a logger's`
		if len(text) != 2 || text[0] != want {
			t.Errorf("the log is %q", text)
		}
	})
}

// TestNilObserver checks that a nil Observer and a nil logger are valid.
func TestNilObserver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, newScript(), dlock.WithObserver(nil), dlock.WithLogger(nil))
		<-takes(t, c, "x", dlock.WithMaxHold(time.Second)).Lost()
		frees(t, takes(t, c, "y"))
	})
}

// TestEventsOfASlowObserverAreBounded checks that at most 4,096 events wait for a slow Observer.
// Further events are dropped, and the log reports their number.
func TestEventsOfASlowObserverAreBounded(t *testing.T) {
	for attempts, dropped := range map[int]int{4097: 0, 4098: 1, 5000: 903} {
		t.Run(fmt.Sprint(attempts), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				log, goOn, calls := &lines{}, make(chan struct{}), 0
				observer := &dlock.Observer{
					Attempt: func(context.Context, dlock.Event) { calls++; <-goOn },
				}
				logger := dlock.WithLogger(slog.New(log))
				c := open(t, newScript(), logger, dlock.WithObserver(observer))
				for range attempts {
					frees(t, takes(t, c, "x"))
					synctest.Wait()
				}
				close(goOn)
				synctest.Wait()
				var want []string
				if dropped > 0 {
					want = []string{fmt.Sprintf(
						`WARN "dlock: a slow Observer or logger has cost events" `+
							`error=%d events were dropped`, dropped)}
				}
				if text := log.read(); !slices.Equal(text, want) || calls != attempts-dropped {
					t.Errorf("%d events; the log is %q, want %q", calls, text, want)
				}
			})
		})
	}
}

// TestCloseWaitsForEvents checks that Close waits for up to 100 ms for events that are being
// handled.
func TestCloseWaitsForEvents(t *testing.T) {
	for handling, want := range map[time.Duration]time.Duration{
		50 * time.Millisecond: 50 * time.Millisecond,
		time.Minute:           100 * time.Millisecond,
	} {
		t.Run(handling.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ended := func(dlock.Event) { time.Sleep(handling) }
				c := open(t, newScript(), dlock.WithObserver(&dlock.Observer{Ended: ended}))
				takes(t, c, "x")
				wantAt(t, "closed", closes(t, c), want, 0)
				time.Sleep(handling)
			})
		})
	}
}

// unsound is an error whose methods panic if the pointer is nil: as an error, it is not nil.
type unsound struct{ text string }

func (e *unsound) Error() string { return e.text }
func (e *unsound) Unwrap() error { return errors.New(e.text) }

// unreadable is an error whose As panics.
type unreadable struct{ error }

func (unreadable) As(any) bool { panic("As") }

// TestErrorThatPanics has a driver that returns errors whose methods panic. They cost no other lock
// its lease, and not the process.
func TestErrorThatPanics(t *testing.T) {
	var none *unsound
	for name, driver := range map[string]func() backend.Driver{
		"Renew": func() backend.Driver {
			d := newScript()
			d.renews = repeat(1000, renewStep(
				func(ctx context.Context, g *backend.Grant) (backend.Term, error) {
					if g.Key == "x" {
						return backend.Term{}, none
					}
					return prove(ctx, g)
				}))
			return d
		},
		"RenewAll": func() backend.Driver {
			d := batching{newScript()}
			d.renewAll = func(gs []*backend.Grant) []backend.Renewal {
				all := proveAll(gs)
				for i, g := range gs {
					if g.Key == "x" {
						all[i] = backend.Renewal{Err: none}
					}
				}
				return all
			}
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := open(t, driver(), dlock.WithTTL(ttl))
				x, y := takes(t, c, "x"), takes(t, c, "y")
				<-x.Lost()
				wantErr(t, x.Err(), dlock.ErrLost)
				if err := y.Err(); err != nil {
					t.Errorf("the other lease: %v", err)
				}
			})
		})
	}
	for name, call := range map[string]func(context.Context, *dlock.Client, *dlock.Lease) error{
		"Lock": func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			_, err := c.Lock(ctx, "y")
			return err
		},
		"TryLock": func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			_, err := c.TryLock(ctx, "y")
			return err
		},
		"Extend": func(ctx context.Context, _ *dlock.Client, lease *dlock.Lease) error {
			return lease.Extend(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				c := open(t, d, dlock.WithTTL(ttl))
				lease := takes(t, c, "x")
				for _, cause := range []error{none, unreadable{io.EOF}} {
					d.acquires = repeat(1000, acquireFails(cause))
					d.renews = []renewStep{renewFails(cause)}
					if err := call(t.Context(), c, lease); err == nil {
						t.Errorf("%T: there is no error", cause)
					}
				}
			})
		})
	}
	for name, unlock := range map[string]func(context.Context, *dlock.Client) error{
		"ReleaseAll": func(ctx context.Context, c *dlock.Client) error {
			m, err := c.LockAll(ctx, []string{"x", "y"})
			if err != nil {
				return err
			}
			return m.Unlock(ctx)
		},
		"Release": func(ctx context.Context, c *dlock.Client) error {
			lease, err := c.Lock(ctx, "x")
			if err != nil {
				return err
			}
			return lease.Unlock(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newCombining()
				d.releaseAlls = []releaseAllStep{
					func(context.Context, []*backend.Grant) []error { return []error{none, nil} },
				}
				d.releases = []releaseStep{
					func(context.Context, *backend.Grant) error { return none },
				}
				if err := unlock(t.Context(), open(t, d)); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			})
		})
	}
}
