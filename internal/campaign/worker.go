//go:build unix

package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
)

const (
	// loopsPerWorker is at most 2: two loops of one process pass locks on inside the process.
	loopsPerWorker = 2
	seats          = 2 * loopsPerWorker // the loops that lock, and as many that adopt
	holdMax        = 40 * time.Millisecond
	retryPause     = 20 * time.Millisecond

	// leakPatience is the time after which goroutines that are still there are a leak. On a busy
	// machine Linux can take more than ten seconds to close an inotify descriptor.
	leakPatience = 30 * time.Second
)

// order is a message to a worker. Exactly one field is set.
type order struct {
	Hello  *hello        `json:"hello,omitempty"`
	Round  *lockOrder    `json:"round,omitempty"`
	Answer *answer       `json:"answer,omitempty"`
	Linger time.Duration `json:"linger,omitempty"` // of the present or the next critical section
	Finish bool          `json:"finish,omitempty"`

	Handoff *handoff `json:"handoff,omitempty"` // to adopt
}

// hello is the first order.
type hello struct {
	Worker, Life int
	Seed         uint64
	TTL          time.Duration
	Loops        int
	Alone        bool // the worker has its own process, so its goroutines are counted
}

// lockOrder names the locks of a round. Without names it ends the round: the loops make no new
// attempts.
type lockOrder struct {
	Round int
	Kind  LockKind
	Names []string
	Fair  bool
}

// report is a message of a worker. Exactly one field is set.
type report struct {
	Event  *Event  `json:"event,omitempty"`
	Access *access `json:"access,omitempty"`
	Bye    *bye    `json:"bye,omitempty"`

	Handoff *handoff `json:"handoff,omitempty"` // for another worker
}

// bye is the last report.
type bye struct {
	Leaked string `json:"leaked"` // goroutines and files that are left after Close; may be empty
	Error  string `json:"error"`  // of Close
}

// worker is one process of a campaign.
type worker struct {
	hello
	client   *dlock.Client
	lent     io.Closer
	linger   atomic.Int64
	round    atomic.Pointer[lockOrder]
	answers  [seats]chan answer
	handoffs chan handoff

	mu  sync.Mutex
	out *json.Encoder
}

// An Opener connects a worker to the server. If the connections of the client are lent to it, lent
// closes them after the client. Otherwise, lent is nil.
type Opener func(context.Context) (c *dlock.Client, lent io.Closer, err error)

// Serve runs a worker process. It executes the orders that arrive over conn, until the order to
// finish or until conn ends. open connects to the server.
func Serve(ctx context.Context, conn io.ReadWriter, open Opener) error {
	orders := json.NewDecoder(conn)
	var first order
	if err := orders.Decode(&first); err != nil || first.Hello == nil {
		return fmt.Errorf("campaign: no first order: %w", err)
	}
	w := &worker{
		hello: *first.Hello, out: json.NewEncoder(conn), handoffs: make(chan handoff, maxHandoffs),
	}
	for i := range w.answers {
		w.answers[i] = make(chan answer, 1)
	}
	ctx, finish := context.WithCancelCause(ctx)
	defer finish(nil)
	go w.obey(ctx, orders, finish) // ends with conn
	left := w.work(ctx, open)
	if err := context.Cause(ctx); !errors.Is(err, errFinished) {
		return err
	}
	return w.send(report{Bye: &left})
}

// maxHandoffs is the number of handles that can wait. More handles are forgotten.
const maxHandoffs = 16

var errFinished = errors.New("campaign: finished")

// obey executes orders until conn ends.
func (w *worker) obey(ctx context.Context, orders *json.Decoder, finish context.CancelCauseFunc) {
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			finish(fmt.Errorf("campaign: order: %w", err))
			return
		}
		switch {
		case o.Answer != nil:
			select {
			case w.answers[o.Answer.Loop] <- *o.Answer:
			case <-ctx.Done():
			}
		case o.Round != nil:
			w.round.Store(o.Round)
		case o.Linger > 0:
			w.linger.Store(int64(o.Linger))
		case o.Handoff != nil:
			select {
			case w.handoffs <- *o.Handoff:
			default:
			}
		case o.Finish:
			finish(errFinished)
		}
	}
}

// work runs the loops until ctx ends and closes the client. It returns the resources that are left
// then.
func (w *worker) work(ctx context.Context, open Opener) bye {
	before := count()
	endMeter := w.startMeter()
	err := w.runLoops(ctx, open)
	endMeter()
	var left bye
	if err != nil {
		left.Error = err.Error()
	}
	if w.Alone && w.client != nil {
		left.Leaked = leaked(before)
	}
	return left
}

// startMeter records the lag of a worker that has its own process, until end is called.
func (w *worker) startMeter() (end func()) {
	stop := make(chan struct{})
	var meter sync.WaitGroup
	if w.Alone {
		meter.Go(func() { meterLag(stop, w.record) })
		meter.Go(func() { meterChain(stop, w.record) })
	}
	return func() {
		close(stop)
		meter.Wait()
	}
}

// runLoops opens the client, runs the loops until ctx ends, and returns the error of Close. A
// server that stands still lets Close fail, which is no error. What is left then is found later.
func (w *worker) runLoops(ctx context.Context, open Opener) error {
	if !w.connect(ctx, open) {
		return nil
	}
	w.record(Event{Op: Started})
	var loops sync.WaitGroup
	for i := range w.Loops {
		loops.Go(func() { newLoop(w, i).run(ctx) })
		loops.Go(func() { newLoop(w, loopsPerWorker+i).adoptAll(ctx) })
	}
	loops.Wait()
	err := w.client.Close()
	if errors.Is(err, dlock.ErrUnavailable) {
		err = nil
	}
	if w.lent != nil {
		err = errors.Join(err, w.lent.Close())
	}
	return err
}

// connect opens the client. The server may be unavailable, so connect retries until ctx ends.
func (w *worker) connect(ctx context.Context, open Opener) bool {
	for {
		var err error
		if w.client, w.lent, err = open(ctx); err == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(retryPause):
		}
	}
}

func (w *worker) send(r report) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Encode(r)
}

// record sends e before it returns, so that the engine gets e even if the process is killed
// immediately afterwards. An error means that the engine has ended. Then the orders end, which ends
// the worker.
func (w *worker) record(e Event) {
	if e.At == 0 {
		e.At = Now()
	}
	e.Worker, e.Life = w.Worker, w.Life
	_ = w.send(report{Event: &e})
}

// loop repeatedly locks and unlocks.
type loop struct {
	*worker
	id     int
	try    int
	random *rand.Rand
}

func newLoop(w *worker, id int) *loop {
	source := rand.NewPCG(w.Seed, uint64(w.Worker)<<32|uint64(w.Life)<<8|uint64(id))
	return &loop{worker: w, id: id, random: rand.New(source)}
}

func (l *loop) run(ctx context.Context) {
	for ctx.Err() == nil {
		round := l.round.Load()
		if round == nil || len(round.Names) == 0 || !l.visit(ctx, round) {
			l.pause(ctx, retryPause)
		}
	}
}

func (l *loop) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (l *loop) note(e Event) {
	e.Loop, e.Try = l.id, l.try
	l.record(e)
}

// visit makes one attempt to lock. If it gets a lease, it uses the lease and unlocks.
func (l *loop) visit(ctx context.Context, round *lockOrder) (granted bool) {
	l.try++
	lock := round.Kind.lock()
	names := lock.choose(l.random, round.Names)
	limit := l.limit()
	waitCtx, cancel := context.WithCancel(ctx)
	if limit > 0 {
		waitCtx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	opts := []dlock.Option{dlock.WithTTL(l.TTL)}
	if round.Fair {
		opts = append(opts, dlock.WithFair())
	}
	for part, name := range names {
		l.note(Event{
			Op: Ask, Part: part, Name: name, Round: round.Round, Limited: limit > 0,
		})
	}
	h, err := lock.request(waitCtx, l, names, opts)
	if err != nil {
		l.note(Event{Op: Refused, Name: names[0], Error: classify(err)})
		return false
	}
	l.hold(ctx, round.Round, lock, h)
	return true
}

// limit returns the time limit of an attempt. Mostly there is none. Sometimes the limit is so short
// that the attempt is cancelled while a request is under way or while the loop is in a queue.
func (l *loop) limit() time.Duration {
	switch l.random.IntN(20) {
	case 0:
		return time.Duration(1 + l.random.Int64N(int64(3*time.Millisecond)))
	case 1:
		return time.Duration(1 + l.random.Int64N(int64(100*time.Millisecond)))
	}
	return 0
}

// hold uses the leases, and unlocks or exports them. It records a loss of a lease at once.
func (l *loop) hold(ctx context.Context, round int, lock *lock, h *holding) {
	l.noteAll(h, Event{Op: Granted, Reader: h.reader})
	unlocking := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		if at, lost := awaitLoss(h.lost, h.err, unlocking); lost {
			l.noteAll(h, Event{Op: Lost, At: at})
		}
	})
	if lock.isSet { // the loss of one lease ends the set, which the judge checks
		for part, lease := range h.leases {
			watch.Go(func() {
				if at, lost := awaitLoss(lease.Lost(), lease.Err, unlocking); lost {
					l.note(Event{Op: Lost, At: at, Part: part, Name: lease.Name()})
				}
			})
		}
	}
	l.use(ctx, lock, h)
	if h.downgrade != nil {
		if l.downgrade(ctx, h); h.isDowngraded {
			l.use(ctx, lock, h)
		}
	}
	exports := lock.moves && l.random.IntN(oneExported) == 0
	if !exports || !l.export(ctx, round, h) {
		l.noteAll(h, Event{Op: Unlock})
		err := h.unlock(ctx)
		l.noteAll(h, Event{Op: Unlocked, Error: classify(err)})
	}
	close(unlocking)
	watch.Wait()
}

// awaitLoss waits until a lease ends or is unlocked. It reports whether the lease was lost, and
// when the worker detected that.
func awaitLoss(
	lost <-chan struct{}, reason func() error, unlocking <-chan struct{},
) (Instant, bool) {
	select {
	case <-unlocking:
		return 0, false
	case <-lost:
		at := Now() // before reason, which may wait for the client
		return at, errors.Is(reason(), dlock.ErrLost)
	}
}

// noteAll records e for each lease of h, with the same time: now, unless e has one.
func (l *loop) noteAll(h *holding, e Event) {
	if e.At == 0 {
		e.At = Now()
	}
	for part, lease := range h.leases {
		e.Part, e.Name = part, lease.Name()
		if e.Op == Granted {
			e.Fence = lease.Fence()
		}
		l.note(e)
	}
}

// use is the critical section. A writer adds one to both counters of each resource, and a reader
// reads them twice. Both are careless on purpose: they do not check their leases before the second
// access, so only the fences protect the resources.
func (l *loop) use(ctx context.Context, lock *lock, h *holding) {
	var accesses []access
	isReader := h.reader || h.isDowngraded
	for part, lease := range h.leases {
		a := access{
			Loop: l.id, Try: l.try, Part: part, Name: lease.Name(), Fence: lease.Fence(),
			Reader: isReader,
		}
		if h.isDowngraded {
			a.Part = 1 // for the judge, a Downgrade begins another grant
		}
		if !lock.isGuard() {
			continue
		}
		if got, ok := l.access(ctx, a); ok {
			a.Write, a.Fenced, a.Plain = !isReader, got.Fenced+1, got.Plain+1
			accesses = append(accesses, a)
		}
	}
	for d := l.random.Int64N(int64(holdMax)); d > 0; d = l.linger.Swap(0) {
		l.pause(ctx, time.Duration(d))
	}
	for _, a := range accesses {
		l.access(ctx, a)
	}
}

func (l *loop) access(ctx context.Context, a access) (answer, bool) {
	if l.send(report{Access: &a}) != nil {
		return answer{}, false
	}
	select {
	case got := <-l.answers[l.id]:
		return got, true
	case <-ctx.Done():
		return answer{}, false
	}
}

// classify returns a name for the error of a Lock or of an Unlock. The empty string means success.
// Every leader that resigned has an error, so this error is the last in the list.
func classify(err error) string {
	for _, class := range []struct {
		err  error
		name string
	}{
		{dlock.ErrLost, "lost"},
		{dlock.ErrNotHeld, "not held"},
		{dlock.ErrUncertain, "uncertain"},
		{dlock.ErrUnavailable, "unavailable"},
		{dlock.ErrClosed, "closed"},
		{context.Canceled, "canceled"},
		{context.DeadlineExceeded, "deadline"},
		{errResigned, ""},
	} {
		if errors.Is(err, class.err) {
			return class.name
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// resources are the resources that a client can leak.
type resources struct{ goroutines, files int }

func count() resources {
	r := resources{goroutines: runtime.NumGoroutine()}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil { // other systems do not count files
		r.files = len(open)
	}
	return r
}

// leaked waits until there are no more goroutines and files than before. If they stay, it describes
// them.
func leaked(before resources) string {
	for end := time.Now().Add(leakPatience); ; time.Sleep(retryPause) {
		now := count()
		if now.goroutines <= before.goroutines && now.files <= before.files {
			return ""
		}
		if time.Now().After(end) {
			var stacks strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			return fmt.Sprintf("there are %d goroutines and %d files more than before; %s",
				now.goroutines-before.goroutines, now.files-before.files, stacks.String())
		}
	}
}
