package engine

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// HandoffBits is the number of low bits of a fence that count the hand-offs inside a process.
const HandoffBits = 12

// Config is what an engine is made with.
type Config struct {
	Driver backend.Driver
	// Notify passes notes to an Observer and a logger, one at a time, on the engine's goroutine
	// for notes. Kinds are the kinds of notes that it handles.
	Notify func(*Note)
	Kinds  Kind

	now func() time.Time // the clock of a test; nil: time.Now
}

// Settings are the properties of a lock. The root package has checked them against the
// capabilities of the driver.
type Settings struct {
	Mode         backend.Mode // 0 is backend.Exclusive
	Limit        int          // of a semaphore, else 0
	TTL          time.Duration
	LockDelay    time.Duration
	MinHold      time.Duration
	MaxHold      time.Duration
	PollInterval time.Duration
	Handoff      int
	Meta         string
	Fair         bool
	Reentrant    bool
	NoRenewal    bool

	isTrial bool // of a lease that may not last; see AcquireAll
}

// mode returns the mode of the requests.
func (s *Settings) mode() backend.Mode { return cmp.Or(s.Mode, backend.Exclusive) }

// Lock is a name with its settings.
type Lock struct {
	Name string // the user's, for events
	Key  string // with the client's prefix
	*Settings
}

// Engine acquires, renews, hands off and releases the locks of one client. It is safe for
// concurrent use. Close must be called to stop it.
type Engine struct {
	driver     backend.Driver
	caps       backend.Capabilities
	waiter     backend.Waiter       // nil: the engine polls
	batch      backend.BatchRenewer // nil: renewals are sent one by one
	pipeliner  backend.Pipeliner    // nil: releases are answered first
	combiner   backend.Combiner     // nil: a request is about one lock
	downgrader backend.Downgrader   // nil: a writer cannot become a reader
	mover      backend.Mover        // nil: a grant cannot pass to another process

	now func() time.Time

	closing      context.Context // ends with ErrClosed when Close begins
	startClosing context.CancelCauseFunc
	working      context.Context // ends when Close stops what runs in the background
	abort        context.CancelFunc
	jobs         sync.WaitGroup // all goroutines of the engine except the one for notes
	notes        notes

	// mu guards the fields below and the state of every acquisition, tenure, lease and line. It
	// is never held while code of a driver or of a user runs.
	mu    sync.Mutex
	lines map[string]*line
	spare *line
	live  int // acquisitions with leases, or with a minimum hold that is not over
	open  int // acquisitions that were granted or given up, and that the server may still have
	freed int // the part of open that is released or lost; its releases are repeated
	ends  []end
	schedule
	outbox
	ending
}

// New returns an engine and starts its scheduler.
func New(c Config) *Engine {
	e := &Engine{
		driver: c.Driver, caps: c.Driver.Capabilities(), lines: make(map[string]*line), now: c.now,
	}
	if e.now == nil {
		e.now = time.Now
	}
	e.processed = e.now()
	e.notes.init(c.Notify, c.Kinds)
	if e.caps.Notify {
		e.waiter, _ = c.Driver.(backend.Waiter)
	}
	e.batch, _ = c.Driver.(backend.BatchRenewer)
	e.pipeliner, _ = c.Driver.(backend.Pipeliner)
	e.combiner, _ = c.Driver.(backend.Combiner)
	if e.caps.Modes&backend.Shared != 0 {
		e.downgrader, _ = c.Driver.(backend.Downgrader)
	}
	if e.caps.Move {
		e.mover, _ = c.Driver.(backend.Mover)
	}
	e.closing, e.startClosing = context.WithCancelCause(context.Background())
	e.working, e.abort = context.WithCancel(context.Background())
	e.wakeUp = make(chan struct{}, 1)
	e.quiet = make(chan struct{})
	e.processed = e.now()
	e.jobs.Go(func() { e.run(e.working) })
	return e
}

// Enter begins a call that may send requests. Close waits for it. If Enter returns nil, Leave
// must be called at the end of the call. It returns ErrClosed if Close has begun, or ctx's error
// if ctx has ended.
func (e *Engine) Enter(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	if ctx.Err() != nil {
		return ContextError(ctx)
	}
	e.mu.Lock()
	defer e.unlock()
	if e.closing.Err() != nil {
		return backend.ErrClosed
	}
	e.calls++
	return nil
}

// Leave ends a call.
func (e *Engine) Leave() {
	e.mu.Lock()
	defer e.unlock()
	e.calls--
}

// WhileOpen returns a context that ends with ctx or when Close begins, and a function that frees
// it.
func (e *Engine) WhileOpen(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.closing, func() { cancel(backend.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
