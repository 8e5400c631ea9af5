//go:build unix

package campaign

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// broken is a driver with one defect. If a function is nil, the sound driver is called.
type broken struct {
	backend.Driver
	acquire func(context.Context, backend.Driver, *backend.Request) (*backend.Grant, error)
	renew   func(context.Context, backend.Driver, *backend.Grant) (backend.Term, error)
	release func(context.Context, backend.Driver, *backend.Grant) error
	wait    func(
		context.Context, backend.Waiter, *backend.Request, *backend.Busy,
	) (*backend.Grant, error)
	downgrade func(context.Context, backend.Driver, *backend.Grant) (*backend.Grant, error)
	adopt     func(
		context.Context, backend.Mover, string, *backend.Request,
	) (*backend.Grant, error)
}

func (b *broken) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if b.acquire == nil {
		return b.Driver.Acquire(ctx, req)
	}
	return b.acquire(ctx, b.Driver, req)
}

func (b *broken) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	if b.renew == nil {
		return b.Driver.Renew(ctx, g)
	}
	return b.renew(ctx, b.Driver, g)
}

func (b *broken) Release(ctx context.Context, g *backend.Grant) error {
	if b.release == nil {
		return b.Driver.Release(ctx, g)
	}
	return b.release(ctx, b.Driver, g)
}

func (b *broken) Wait(
	ctx context.Context, req *backend.Request, busy *backend.Busy,
) (*backend.Grant, error) {
	w := b.Driver.(backend.Waiter)
	if b.wait == nil {
		return w.Wait(ctx, req, busy)
	}
	return b.wait(ctx, w, req, busy)
}

func (b *broken) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	if b.downgrade == nil {
		return b.Driver.(backend.Downgrader).Downgrade(ctx, g)
	}
	return b.downgrade(ctx, b.Driver, g)
}

func (b *broken) Export(ctx context.Context, g *backend.Grant) (string, error) {
	return b.Driver.(backend.Mover).Export(ctx, g)
}

func (b *broken) Adopt(
	ctx context.Context, ticket string, req *backend.Request,
) (*backend.Grant, error) {
	m := b.Driver.(backend.Mover)
	if b.adopt == nil {
		return m.Adopt(ctx, ticket, req)
	}
	return b.adopt(ctx, m, ticket, req)
}

// granted returns a driver that changes the grants of Acquire and Wait.
func granted(change func(*backend.Grant)) *broken {
	changed := func(g *backend.Grant, err error) (*backend.Grant, error) {
		if g == nil {
			return g, err
		}
		other := *g
		change(&other)
		return &other, err
	}
	return &broken{
		acquire: func(
			ctx context.Context, d backend.Driver, req *backend.Request,
		) (*backend.Grant, error) {
			return changed(d.Acquire(ctx, req))
		},
		wait: func(
			ctx context.Context, w backend.Waiter, req *backend.Request, b *backend.Busy,
		) (*backend.Grant, error) {
			return changed(w.Wait(ctx, req, b))
		},
	}
}

// server is the state that the broken drivers of one test share in addition to the sound server.
type server struct {
	mu    sync.Mutex
	now   map[string]*backend.Grant // the last grant of each name
	fence uint64
}

// holder records the present grant of a name.
func (s *server) holder(g *backend.Grant) *backend.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now[g.Key] = g
	return g
}

func (s *server) present(name string) *backend.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now[name]
}

// noting makes b record its grants in s.
func (s *server) noting(b *broken) *broken {
	b.acquire = func(
		ctx context.Context, d backend.Driver, req *backend.Request,
	) (*backend.Grant, error) {
		g, err := d.Acquire(ctx, req)
		if g != nil {
			s.holder(g)
		}
		return g, err
	}
	b.wait = func(
		ctx context.Context, w backend.Waiter, req *backend.Request, busy *backend.Busy,
	) (*backend.Grant, error) {
		g, err := w.Wait(ctx, req, busy)
		if g != nil {
			s.holder(g)
		}
		return g, err
	}
	return b
}

// forgetful hides a loss that the server pushes from the holder.
func forgetful(b *broken) *broken {
	b.acquire = func(
		ctx context.Context, d backend.Driver, req *backend.Request,
	) (*backend.Grant, error) {
		deaf := *req
		deaf.Lost = nil
		return d.Acquire(ctx, &deaf)
	}
	return b
}

// defect is a broken lock.
type defect struct {
	name  string
	rules []Rule
	make  func(*server) *broken
	set   func(*Settings) // for a defect that shows only under special conditions
}

// unwoken returns a driver whose waiters are never woken.
func unwoken(*server) *broken {
	return &broken{wait: func(
		ctx context.Context, _ backend.Waiter, _ *backend.Request, _ *backend.Busy,
	) (*backend.Grant, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
}

// calm sets a campaign in which every hand-off is judged.
func calm(s *Settings) {
	s.Faults, s.Workers = map[Kind]Class{Linger: X}, 3
	s.TTL, s.Round, s.Duration = time.Second, time.Second, 12*time.Second
}

// defects are broken locks. At least one of the rules must detect the defect.
var defects = []defect{
	{"no fence", []Rule{RuleB, RuleD}, func(*server) *broken {
		return granted(func(g *backend.Grant) { g.Fence = 0 })
	}, nil},
	{"a fence that stands still", []Rule{RuleB}, func(*server) *broken {
		return granted(func(g *backend.Grant) { g.Fence = 7 })
	}, nil},
	{"a fence that goes back", []Rule{RuleB}, func(s *server) *broken {
		return granted(func(g *backend.Grant) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.fence++
			g.Fence = 1<<40 - s.fence
		})
	}, nil},
	{"a term from the answer", []Rule{RuleA, RuleE}, func(*server) *broken {
		b := granted(func(g *backend.Grant) { g.Term.Sent = time.Now() })
		b.renew = func(
			ctx context.Context, d backend.Driver, g *backend.Grant,
		) (backend.Term, error) {
			term, err := d.Renew(ctx, g)
			term.Sent = time.Now()
			return term, err
		}
		return b
	}, func(s *Settings) { s.Faults = map[Kind]Class{Fade: X} }},
	{"a term that is too long", []Rule{RuleA, RuleE}, func(*server) *broken {
		b := granted(func(g *backend.Grant) { g.Term.TTL *= 4 })
		b.renew = func(
			ctx context.Context, d backend.Driver, g *backend.Grant,
		) (backend.Term, error) {
			term, err := d.Renew(ctx, g)
			term.TTL *= 4
			return term, err
		}
		return b
	}, nil},
	{"no atomic acquisition", []Rule{RuleA, RuleE}, func(s *server) *broken {
		return &broken{acquire: func(
			ctx context.Context, d backend.Driver, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := d.Acquire(ctx, req)
			if errors.Is(err, backend.ErrNotAcquired) && s.present(req.Key) == nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.fence++
				term := backend.Term{Sent: time.Now(), TTL: req.TTL}
				return &backend.Grant{Request: *req, Term: term, Fence: 1<<50 + s.fence}, nil
			}
			return g, err
		}}
	}, nil},
	{"release of another's", []Rule{RuleA, RuleE, RuleK}, func(s *server) *broken {
		b := s.noting(&broken{})
		b.release = func(ctx context.Context, d backend.Driver, g *backend.Grant) error {
			err := d.Release(ctx, g)
			if now := s.present(g.Key); errors.Is(err, backend.ErrNotHeld) && now != nil {
				err = d.Release(ctx, now)
			}
			return err
		}
		return b
	}, nil},
	{"no owner check in a renewal", []Rule{RuleA, RuleE}, func(s *server) *broken {
		b := s.noting(&broken{})
		noting := b.acquire
		b.acquire = func(
			ctx context.Context, d backend.Driver, req *backend.Request,
		) (*backend.Grant, error) {
			deaf := *req
			deaf.Lost = nil
			return noting(ctx, d, &deaf)
		}
		b.renew = func(
			ctx context.Context, d backend.Driver, g *backend.Grant,
		) (backend.Term, error) {
			term, err := d.Renew(ctx, g)
			if now := s.present(g.Key); errors.Is(err, backend.ErrLost) && now != nil {
				return d.Renew(ctx, now)
			}
			return term, err
		}
		return b
	}, nil},
	{"a loss that is never reported", []Rule{RuleA, RuleE}, func(*server) *broken {
		b := forgetful(&broken{})
		b.renew = func(
			ctx context.Context, d backend.Driver, g *backend.Grant,
		) (backend.Term, error) {
			term, err := d.Renew(ctx, g)
			if errors.Is(err, backend.ErrLost) {
				return backend.Term{Sent: time.Now(), TTL: g.TTL}, nil
			}
			return term, err
		}
		return b
	}, nil},
	{"a renewal that creates again", []Rule{RuleA, RuleE}, func(*server) *broken {
		b := forgetful(&broken{})
		b.renew = func(
			ctx context.Context, d backend.Driver, g *backend.Grant,
		) (backend.Term, error) {
			term, err := d.Renew(ctx, g)
			for errors.Is(err, backend.ErrLost) { // as soon as the lock is free
				again, busy := d.Acquire(ctx, &g.Request)
				if busy == nil {
					return again.Term, nil
				}
				if !sleep(ctx, time.Millisecond) {
					return term, ctx.Err()
				}
			}
			return term, err
		}
		return b
	}, nil},
	{"a renewal that does nothing", []Rule{RuleA, RuleE}, func(*server) *broken {
		return &broken{renew: func(
			_ context.Context, _ backend.Driver, g *backend.Grant,
		) (backend.Term, error) {
			return backend.Term{Sent: time.Now(), TTL: g.TTL}, nil
		}}
	}, nil},
	{"a wake-up that is lost", []Rule{RuleD}, unwoken, calm},
	{"a release that is forgotten", []Rule{RuleD, RuleG}, func(s *server) *broken {
		b := s.noting(&broken{})
		b.release = func(_ context.Context, d backend.Driver, g *backend.Grant) error {
			go func() { // the grant is renewed until the end
				for range 1000 {
					_, _ = d.Renew(context.Background(), g)
					time.Sleep(10 * time.Millisecond)
				}
			}()
			return nil
		}
		return b
	}, nil},
	{"a server that grants while it is held", []Rule{RuleA, RuleE}, func(s *server) *broken {
		return &broken{acquire: func(
			ctx context.Context, d backend.Driver, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := d.Acquire(ctx, req)
			busy, ok := errors.AsType[*backend.Busy](err)
			if !ok {
				return g, err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.fence++; s.fence%20 != 0 {
				return nil, busy
			}
			term := backend.Term{Sent: time.Now(), TTL: req.TTL}
			return &backend.Grant{Request: *req, Term: term, Fence: busy.Fence + 1}, nil
		}}
	}, nil},
}

// intruder returns a driver that grants a taken lock to one in so many requests that isChosen.
func intruder(s *server, many uint64, isChosen func(*backend.Request) bool) *broken {
	b := s.noting(&broken{})
	noting := b.acquire
	b.acquire = func(
		ctx context.Context, d backend.Driver, req *backend.Request,
	) (*backend.Grant, error) {
		g, err := noting(ctx, d, req)
		if !errors.Is(err, backend.ErrNotAcquired) || !isChosen(req) {
			return g, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fence++; s.fence%many != 0 {
			return nil, err
		}
		term := backend.Term{Sent: time.Now(), TTL: req.TTL}
		return &backend.Grant{Request: *req, Term: term, Fence: 1<<50 + s.fence}, nil
	}
	return b
}

// of returns the settings of a defect that only locks of one kind show.
func of(k LockKind) func(*Settings) {
	return func(s *Settings) { s.Kinds = []LockKind{k} }
}

// kindDefects are broken locks of one kind.
var kindDefects = []defect{
	{"a writer in addition to a reader", []Rule{RuleA, RuleE}, func(s *server) *broken {
		return intruder(s, 20, func(req *backend.Request) bool {
			held := s.present(req.Key)
			return req.Mode == backend.Exclusive && held != nil && held.Mode == backend.Shared
		})
	}, of(Readers)},
	{"a reader in addition to a writer", []Rule{RuleA, RuleE}, func(s *server) *broken {
		return intruder(s, 20, func(req *backend.Request) bool {
			held := s.present(req.Key)
			return req.Mode == backend.Shared && held != nil && held.Mode == backend.Exclusive
		})
	}, of(Readers)},
	{"a writer with the fence of a reader", []Rule{RuleB}, func(*server) *broken {
		return granted(func(g *backend.Grant) { g.Fence = g.Fence &^ 7 })
	}, of(Readers)},
	{"a reader's loss that is never reported", []Rule{RuleA}, func(*server) *broken {
		b := forgetful(&broken{})
		b.renew = func(
			ctx context.Context, d backend.Driver, g *backend.Grant,
		) (backend.Term, error) {
			term, err := d.Renew(ctx, g)
			if errors.Is(err, backend.ErrLost) && g.Mode == backend.Shared {
				return backend.Term{Sent: time.Now(), TTL: g.TTL}, nil
			}
			return term, err
		}
		return b
	}, func(s *Settings) {
		of(Readers)(s)
		s.Faults = map[Kind]Class{Break: F}
	}},
	{"a writer that is not woken", []Rule{RuleD}, unwoken, func(s *Settings) {
		calm(s)
		of(Readers)(s)
	}},
	{"a permit that wakes no waiter", []Rule{RuleD}, unwoken, func(s *Settings) {
		calm(s)
		of(Permits)(s)
	}},
	{"a permit too many", []Rule{RuleA, RuleE}, func(s *server) *broken {
		return intruder(s, 20, func(*backend.Request) bool { return true })
	}, of(Permits)},
	{"permits with one fence", []Rule{RuleB}, func(*server) *broken {
		return granted(func(g *backend.Grant) { g.Fence = 7 })
	}, of(Permits)},
	{"two leaders", []Rule{RuleA, RuleE}, func(s *server) *broken {
		return intruder(s, 20, func(*backend.Request) bool { return true })
	}, of(Leader)},
	{"a leader that is not deposed", []Rule{RuleA, RuleE}, func(*server) *broken {
		b := forgetful(&broken{})
		b.renew = func(
			_ context.Context, _ backend.Driver, g *backend.Grant,
		) (backend.Term, error) {
			return backend.Term{Sent: time.Now(), TTL: g.TTL}, nil
		}
		return b
	}, of(Leader)},
	{"a handle used twice", []Rule{RuleA, RuleE}, func(*server) *broken {
		return &broken{adopt: func(
			ctx context.Context, m backend.Mover, ticket string, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := m.Adopt(ctx, ticket, req)
			if errors.Is(err, backend.ErrLost) {
				term := backend.Term{Sent: time.Now(), TTL: req.TTL}
				return &backend.Grant{Request: *req, Term: term, Fence: 1 << 50}, nil
			}
			return g, err
		}}
	}, of(Moved)},
	{"a Downgrade with a gap", []Rule{RuleA, RuleE}, func(*server) *broken {
		return &broken{downgrade: func(
			ctx context.Context, d backend.Driver, g *backend.Grant,
		) (*backend.Grant, error) {
			if err := d.Release(ctx, g); err != nil {
				return nil, err
			}
			again := g.Request
			again.Mode = backend.Shared
			for sleep(ctx, time.Millisecond) {
				shared, err := d.Acquire(ctx, &again)
				if err == nil {
					return &backend.Grant{Request: again, Term: shared.Term, Fence: g.Fence}, nil
				}
			}
			return nil, ctx.Err()
		}}
	}, of(Readers)},
	{"a half-taken set", []Rule{RuleA, RuleE}, func(s *server) *broken {
		return intruder(s, 4, func(req *backend.Request) bool { return !req.Queue })
	}, of(All)},
	{"a set that is half freed", []Rule{RuleD, RuleG}, func(s *server) *broken {
		b := s.noting(&broken{})
		b.release = func(ctx context.Context, d backend.Driver, g *backend.Grant) error {
			if !strings.HasSuffix(g.Key, "-1") {
				return d.Release(ctx, g)
			}
			go func() { // the grant is renewed until the end
				for range 1000 {
					_, _ = d.Renew(context.Background(), g)
					time.Sleep(10 * time.Millisecond)
				}
			}()
			return nil
		}
		return b
	}, of(All)},
}

// quick returns settings for a campaign of some seconds.
func quick(name string) Settings {
	return Settings{
		Server: strings.ReplaceAll(name, " ", "-"), TTL: 300 * time.Millisecond,
		Round: 2500 * time.Millisecond, Duration: 2 * time.Second,
		Locks: 1, Seed: 1, Fair: true, Shared: true, Faults: allFaults,
	}
}

var allFaults = map[Kind]Class{
	Kill: X, KillWaiter: X, Linger: X, Cut: X, Reset: X, Latency: X, LostReply: X, Fade: X,
	Break: F,
}

// TestSoundLockPasses checks that a sound lock of each kind causes no false alarm.
func TestSoundLockPasses(t *testing.T) {
	s := quick("sound")
	s.Kinds = LockKinds()
	v := campaign(t, s, func(d backend.Driver) backend.Driver { return d })
	show(t, v)
	if len(v.Violations) > 0 {
		t.Error("a sound lock did not pass")
	}
	if v.Figures.Grants < minGrants {
		t.Errorf("there were only %d grants", v.Figures.Grants)
	}
	for _, k := range s.Kinds {
		if v.Figures.Kinds[k].Grants == 0 {
			t.Errorf("no grant of the kind %s", k)
		}
	}
}

// TestSoundMovesPass checks the same for leases that move and for writers that become readers, in
// more rounds of class X.
func TestSoundMovesPass(t *testing.T) {
	t.Parallel()
	for _, k := range []LockKind{Moved, Readers} {
		s := quick("sound " + string(k))
		s.Kinds, s.Duration, s.Faults = []LockKind{k}, 12*time.Second, maps.Clone(allFaults)
		delete(s.Faults, Break)
		v := campaign(t, s, func(d backend.Driver) backend.Driver { return d })
		show(t, v)
		if len(v.Violations) > 0 {
			t.Errorf("a sound lock of the kind %s did not pass", k)
		}
		moved := 0
		for _, grants := range v.ledger.grants {
			for _, g := range grants {
				if g.source != nil {
					moved++
				}
			}
		}
		if moved == 0 {
			t.Errorf("no lease of the kind %s has a source", k)
		}
	}
}

// TestElection checks that each leader of a sound lock is killed and followed by another one.
func TestElection(t *testing.T) {
	t.Parallel()
	s := quick("election")
	s.TTL, s.Elections = time.Second, 3
	v := campaign(t, s, func(d backend.Driver) backend.Driver { return d })
	show(t, v)
	e := v.Figures.Election
	if len(v.Violations) > 0 || e == nil || e.Gap.N != s.Elections || e.Terms <= s.Elections {
		t.Errorf("the election is %+v", e)
	}
}

// TestElectionWithoutSuccessor checks that a leader without a successor is a violation.
func TestElectionWithoutSuccessor(t *testing.T) {
	t.Parallel()
	s := quick("no-successor")
	s.Elections = 3
	v := campaign(t, s, func(d backend.Driver) backend.Driver {
		return &broken{Driver: d, acquire: func(
			ctx context.Context, d backend.Driver, req *backend.Request,
		) (*backend.Grant, error) {
			lasting := *req
			lasting.TTL = time.Hour
			g, err := d.Acquire(ctx, &lasting)
			if err != nil {
				return nil, err
			}
			return &backend.Grant{Request: *req, Fence: g.Fence, Term: backend.Term{
				Sent: g.Term.Sent, TTL: req.TTL,
			}}, nil
		}}
	})
	show(t, v)
	if !slices.ContainsFunc(v.Violations, func(x Violation) bool {
		return x.Rule == RuleD && strings.Contains(x.Text, "of 3 leaders")
	}) {
		t.Error("no violation of rule d")
	}
}

// TestBrokenLocksAreCaught checks that each broken lock violates one of its rules.
func TestBrokenLocksAreCaught(t *testing.T) { catch(t, defects) }

// TestBrokenKindsAreCaught checks the same for the defects of one kind of lock.
func TestBrokenKindsAreCaught(t *testing.T) { catch(t, kindDefects) }

// catch runs a campaign with each broken lock. All campaigns run at the same time, because they
// mostly wait.
func catch(t *testing.T, defects []defect) {
	t.Helper()
	verdicts := make([]*Verdict, len(defects))
	var all sync.WaitGroup
	for i, defect := range defects {
		all.Go(func() {
			for n := 1; n <= attempts; n++ {
				if verdicts[i] = defect.judge(t, n); defect.isCaught(verdicts[i]) {
					return
				}
			}
		})
	}
	all.Wait()
	for i, defect := range defects {
		t.Run(defect.name, func(t *testing.T) {
			v := verdicts[i]
			if !defect.isCaught(v) {
				t.Errorf("no rule of %v is violated; the violations are %v",
					defect.rules, v.Figures.Violations)
			}
			show(t, v)
			if files, err := v.Keep(t.TempDir()); err != nil || len(files) == 0 {
				t.Errorf("Keep = %v, %v", files, err)
			}
		})
	}
}

// attempts is the number of campaigns that a broken lock may pass. Each campaign has longer terms
// than the one before, because the lag of a slow machine can excuse a violation in short terms.
const attempts = 4

// judge runs the n-th campaign with the broken lock.
func (d *defect) judge(t *testing.T, n int) *Verdict {
	t.Helper()
	s := quick(d.name)
	if d.set != nil {
		d.set(&s)
	}
	scale := time.Duration(n)
	s.Seed, s.TTL, s.Round, s.Duration = uint64(n), scale*s.TTL, scale*s.Round, scale*s.Duration
	shared := &server{now: make(map[string]*backend.Grant)}
	return campaign(t, s, func(inner backend.Driver) backend.Driver {
		b := d.make(shared)
		b.Driver = inner
		return b
	})
}

// isCaught reports whether the verdict has a violation of a rule of the defect.
func (d *defect) isCaught(v *Verdict) bool {
	return slices.ContainsFunc(v.Violations, func(x Violation) bool {
		return slices.Contains(d.rules, x.Rule)
	})
}

func campaign(t *testing.T, s Settings, wrap func(backend.Driver) backend.Driver) *Verdict {
	t.Helper()
	h, err := Run(t.Context(), lab(s, wrap))
	if err != nil {
		t.Error(err)
	}
	return Judge(h)
}

func show(t *testing.T, v *Verdict) {
	t.Helper()
	var text strings.Builder
	v.WriteReport(&text)
	t.Log(text.String())
}
