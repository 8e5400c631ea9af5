package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/command/internal/guard"
)

// partingWait is how long dlock waits at its end for the release of a lock that it did not acquire,
// or has lost. If the server does not answer, the TTL frees the lock.
const partingWait = time.Second

// parting is how long before the end of a minimum hold dlock unlocks if there is a maximum hold.
// The library keeps the lock until the end.
const parting = time.Second

// holder holds one lock for one command.
type holder struct {
	*app
	flags   *lockFlags
	name    string
	signals inbox
	renewed chan struct{} // filled by each renewal
	client  *dlock.Client
	lease   *dlock.Lease
	// outer is a holder of the lock under which dlock itself runs, or nil. dlock must not wait for
	// it.
	outer *backend.Holder
	// minEnd is the end of the minimum hold.
	minEnd time.Time
	// held is true if the lock was held until the command had ended. Then close waits until the
	// lock is released, and otherwise for partingWait at most.
	held bool
	// isKept is true if close has to release the lock at minEnd.
	isKept bool

	interrupt os.Signal // a signal that ends dlock after the command has ended, or nil
	forwarded os.Signal // see supervisor
}

// tell calls say if --verbose is set.
func (h *holder) tell(format string, args ...any) {
	if h.flags.verbose {
		h.say(format, args...)
	}
}

// acquire connects and acquires the lock. With --wait, both together take at most that time.
func (h *holder) acquire(ctx context.Context, raw string) (err error) {
	unlimited := ctx // a lock that is held is no wait
	if wait := h.flags.wait; wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	watch := dlock.WithObserver(&dlock.Observer{Renewed: h.noteRenewal})
	if h.client, err = h.flags.dial(ctx, h.app, h.parameters(raw), watch); err != nil {
		return h.within(ctx, err)
	}
	if err := h.flags.fit(h.client.Capabilities()); err != nil {
		return err
	}
	if err := h.refuseNested(ctx); err != nil {
		return h.within(ctx, h.notAcquired(err))
	}
	h.tell("waiting for %q", h.name)
	if h.lease, err = h.lock(ctx); err != nil {
		return h.within(ctx, h.notAcquired(err))
	}
	h.minEnd = time.Now().Add(h.flags.minHold)
	return h.freshen(unlimited)
}

// parameters returns raw with the parameters that follow from the flags.
func (h *holder) parameters(raw string) string {
	if h.flags.flags.Changed("ttl") { // a session on the server follows the TTL of the URL
		raw = withParameter(raw, "ttl", h.flags.ttl.String())
	}
	if strings.HasPrefix(raw, "file:") {
		raw = withParameter(raw, "endless", "1") // a job that is stopped keeps its lock
		raw = withParameter(raw, "block", "1")   // this process has one waiter
		if !h.flags.leave {
			// If dlock is killed, the job keeps its lock until the job has ended.
			raw = withParameter(raw, "inherit", "1")
		}
	}
	return raw
}

// ownersVariable names the environment variable with the owners of all locks
// under which a command runs.
const ownersVariable = "DLOCK_OWNERS"

// errNested is the error of a lock under which dlock itself runs.
var errNested = errors.New("this command runs under it already")

// refuseNested returns an error if dlock already runs under the lock that it has to acquire: it
// would wait for itself. A nested reader, or a nested holder of a permit, gets the lock if it is
// granted at once. A reader would wait for ever if a writer waits already, and so would a permit if
// dlock runs under the last one.
func (h *holder) refuseNested(ctx context.Context) error {
	owners := strings.Fields(h.getenv(ownersVariable))
	if len(owners) == 0 {
		return nil
	}
	holders, err := h.holders(ctx)
	if errors.Is(err, dlock.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	isOuter := func(b backend.Holder) bool { return slices.Contains(owners, b.Owner) }
	i := slices.IndexFunc(holders, isOuter)
	if i < 0 {
		return nil
	}
	h.outer = &holders[i]
	if h.flags.shared || h.flags.limit > 0 {
		return nil
	}
	return h.nested()
}

// nested returns the error of a lock for which dlock must not wait.
func (h *holder) nested() error {
	return &exitError{code: h.flags.conflictCode, err: fmt.Errorf(
		"%q: %w, by %s: it could wait for itself", h.name, errNested, describe(h.outer))}
}

// notAcquired adds the exit code and the holder to the error of a lock that was not acquired. If
// the server did not answer, that is the cause, and notAcquired returns err without a change. A
// request that was under way at the end of --wait does not prove a silent server: notAcquired sends
// a second one.
func (h *holder) notAcquired(err error) error {
	isOver := errors.Is(err, context.DeadlineExceeded)
	if errors.Is(err, dlock.ErrUnavailable) || !isOver && !errors.Is(err, dlock.ErrNotAcquired) {
		return err
	}
	if h.outer != nil && !isOver {
		return h.nested()
	}
	ctx, cancel := context.WithTimeout(context.Background(), partingWait)
	defer cancel()
	holders, failed := h.holders(ctx)
	if failed != nil && errors.Is(err, dlock.ErrUncertain) {
		return err
	}
	reason := ""
	if isOver {
		reason = fmt.Sprintf(" within %v", h.flags.wait)
	}
	err = fmt.Errorf("%q: not acquired%s", h.name, reason)
	if len(holders) > 0 {
		err = fmt.Errorf("%w: held by %s", err, describe(&holders[0]))
	}
	return &exitError{code: h.flags.conflictCode, err: err}
}

// within adds the time of --wait to the error of a server that did not answer until then.
func (h *holder) within(ctx context.Context, err error) error {
	_, hasCode := errors.AsType[*exitError](err)
	end, hasEnd := ctx.Deadline()
	// ctx itself may end a little later than its deadline.
	if hasCode || exitCode(err) != exitUnavailable || !hasEnd || time.Now().Before(end) {
		return err
	}
	return fmt.Errorf("not acquired within %v: %w", h.flags.wait, err)
}

// holders returns the present holders of the lock.
func (h *holder) holders(ctx context.Context) ([]backend.Holder, error) {
	info, err := h.client.Inspect(ctx, h.name)
	if err != nil {
		return nil, err
	}
	return info.Holders, nil
}

// noteRenewal wakes the supervisor.
func (h *holder) noteRenewal(dlock.Event) {
	select {
	case h.renewed <- struct{}{}:
	default:
	}
}

// lock acquires the lock and waits as the flags require. All its errors name the operation "lock",
// including errors of TryLock.
func (h *holder) lock(ctx context.Context) (lease *dlock.Lease, err error) {
	acquire, err := h.flags.locker(h.client, h.name, h.outer != nil)
	if err != nil {
		defer func() { err = refused(err) }()
	} else {
		lease, err = acquire(ctx)
	}
	if failed, ok := errors.AsType[*dlock.Error](err); ok {
		named := *failed
		named.Op = "lock"
		return nil, &named
	}
	return lease, err
}

// refused adds the exit code to the error of a lock that was not made. No request was sent: if the
// server supports it, a flag has a wrong value.
func refused(err error) error {
	if errors.Is(err, dlock.ErrUnsupported) {
		return err
	}
	return &exitError{code: exitUsage, err: err}
}

// freshen renews a lease with less than half of its term, so that the command begins with
// most of a term. A lock that was granted in a queue may have a third of its term left,
// and the grace may be as long.
func (h *holder) freshen(ctx context.Context) error {
	term := h.flags.ttl
	if h.flags.maxHold > 0 {
		term = min(term, h.flags.maxHold)
	}
	if time.Until(h.lease.Deadline()) > term/2 {
		return nil
	}
	err := h.lease.Extend(ctx)
	if lost := h.lease.Err(); lost != nil {
		return lost
	}
	isEnough := time.Until(h.lease.Deadline()) > h.flags.grace+h.flags.headroom
	if isEnough || h.flags.onLost == onLostContinue {
		return nil // without an answer, the lease goes on
	}
	if err == nil {
		err = fmt.Errorf("%w: the answer to a renewal left the command no time",
			dlock.ErrUnavailable)
	}
	return err
}

// hold runs the command under the lock. Its error has the exit code of the
// command, and is nil for 0.
func (h *holder) hold(path string, argv []string) error {
	h.tell("holding %q, fence %d", h.name, h.lease.Fence())
	h.stopper.pause()
	defer h.stopper.resume() // after job.Close: the guard has given the terminal back
	h.signals.add(guard.Relayed)
	job, err := guard.Start(h.command(path, argv), h.jobEnd())
	if err != nil {
		return h.notRun(err)
	}
	lost := h.supervise(job)
	code, sig, key := job.End()
	if lost, interrupt := job.Lost(); lost {
		if interrupt != nil {
			h.interrupt = interrupt
		}
		if h.drain(); h.interrupt == nil {
			h.say("%q: the guard process of the command %s", h.name, fate(job))
		}
	}
	isForwarded := h.forwarded != nil && slices.Contains(guard.Interrupts, os.Signal(sig))
	if h.flags.minHold > 0 && (key || isForwarded) {
		h.interrupt = sig // it ends the minimum hold, too
	}
	job.Leave(h.flags.leave || h.flags.onLost == onLostContinue)
	defer job.Close(partingWait) // while the lock is released, the guard ends
	if failed := job.Failure(); failed != nil && lost == nil {
		return h.notRun(failed)
	}
	if lost == nil {
		h.tell("%s ended, freeing %q", argv[0], h.name)
		lost = h.unlock()
	}
	if lost != nil && h.flags.onLost == onLostKill {
		return lost
	}
	if lost, _ := job.Lost(); lost && h.interrupt != nil {
		return nil // the signal that ended the job ends dlock, too
	}
	if sig != 0 {
		return &exitError{code: exitSignal + int(sig), signal: sig, key: key}
	}
	if code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// notRun unlocks after a command that did not run, and returns the reason. The user does not have
// to wait for the end of a minimum hold to see it.
func (h *holder) notRun(reason error) error {
	err := errors.Join(reason, h.unlock())
	if h.isKept {
		h.say("%s", message(err))
		return seen{err}
	}
	return err
}

// fate describes the end of a guard that is lost.
func fate(job *guard.Guard) string {
	if job.Mute() {
		return "did not answer: dlock has killed it"
	}
	return "was killed"
}

// jobEnd returns the time at which the guard ends the job, unless a renewal moves it. It is zero if
// a loss does not end the job.
func (h *holder) jobEnd() time.Time {
	if h.flags.onLost == onLostContinue {
		return time.Time{}
	}
	return jobEnd(h.lease, h.flags.headroom)
}

// command returns the command before its start, with dlock's variables in its environment.
func (h *holder) command(path string, argv []string) guard.Command {
	env := exec.Cmd{Env: append(slices.Clip(h.env),
		"DLOCK_NAME="+h.name,
		"DLOCK_FENCE="+strconv.FormatUint(h.lease.Fence(), 10),
		ownersVariable+"="+strings.TrimSpace(h.getenv(ownersVariable)+" "+h.lease.Owner()))}
	return guard.Command{
		Program: ownProgram(), Path: path, Args: argv,
		Env:   env.Environ(), // each variable once, with its last value
		Files: [3]*os.File{h.stdin, h.stdout, h.stderr},
	}
}

// supervise waits for the end of the command. It returns an error if the lease ended first, or if a
// signal ended the wait.
func (h *holder) supervise(job *guard.Guard) error {
	keep := h.flags.onLost == onLostContinue
	s := &supervisor{
		lease: h.lease, process: job, signals: h.signals, renewed: h.renewed,
		grace: h.flags.grace, headroom: h.flags.headroom, keep: keep, leave: h.flags.leave,
		onLoss: func(cause error) {
			if keep {
				h.say("%q: %s: the command goes on without it", h.name, message(cause))
			} else {
				h.tell("%q: %s: ending the command", h.name, message(cause))
			}
		},
		onRest:  func() { h.tell("%q: ending the processes that the command left behind", h.name) },
		onStuck: func() { h.say("%q: %v: keeping the lock", h.name, errStuck) },
	}
	err := s.wait()
	h.forwarded = s.forwarded
	if s.interrupt != nil {
		h.interrupt = s.interrupt
	}
	switch {
	case errors.Is(err, dlock.ErrLost):
		return fmt.Errorf("%q: %w: the command was ended", h.name, err)
	case err != nil: // a signal has ended the wait
		return fmt.Errorf("%q: %w; %w", h.name, err, interrupted{s.interrupt.(syscall.Signal)})
	}
	return nil
}

// unlock releases the lock, or leaves that to close if the minimum hold is not over. It returns an
// error only if the lock was lost.
func (h *holder) unlock() error {
	h.held = true
	h.drain()
	if time.Until(h.minEnd) > 0 && h.lease.Err() == nil {
		h.isKept = true
		h.tell("keeping %q until --min-hold is over", h.name)
		return nil
	}
	if h.flags.minHold > 0 {
		h.tell("--min-hold is over already")
	}
	return h.release()
}

// release releases the lock. It returns an error only if the release finds that the lock was lost.
// A release without an answer is reported, but it is no failure of the command.
func (h *holder) release() error {
	err := h.signals.during(context.Background(), h.lease.Unlock)
	if signal, ok := errors.AsType[interrupted](err); ok {
		h.held, h.interrupt = false, signal.signal
		h.say("%q: not freed in good order: %v", h.name, signal.signal)
		return nil
	}
	switch {
	case errors.Is(err, dlock.ErrLost):
		h.held = false
		if h.flags.onLost == onLostContinue {
			h.say("%s", message(err))
		}
		return err
	case err != nil:
		h.say("%s: the lock is freed by its TTL", message(err))
	}
	return nil
}

// keep waits for the end of the minimum hold, and then releases the lock. It reports a loss,
// because another holder may begin. It returns false if a signal came first: the TTL then frees the
// lock.
func (h *holder) keep() bool {
	end := h.minEnd
	if h.flags.maxHold > 0 {
		end = end.Add(-parting) // if both holds are as long, the lease must not end first
	}
	over := time.NewTimer(time.Until(end))
	defer over.Stop()
	for h.drain(); h.interrupt == nil; {
		select {
		case <-h.lease.Lost():
			h.held = false
			h.say("%q: %s: another holder may have it before --min-hold is over",
				h.name, message(h.lease.Err()))
			return true
		case <-over.C:
			if lost := h.release(); lost != nil && h.flags.onLost == onLostKill {
				h.say("%q: %s", h.name, message(lost))
			}
			return true
		case sig := <-h.signals:
			if slices.Contains(guard.Interrupts, sig) {
				h.interrupt = sig
			}
		}
	}
	h.say("%q: not freed in good order: %v", h.name, h.interrupt)
	return false
}

// close releases a lock that --min-hold has kept, and closes the client, which frees a queue entry
// or a lost lock. A signal ends the wait, and the TTL then frees them.
func (h *holder) close() {
	if h.client == nil || h.isKept && !h.keep() {
		return
	}
	closed := make(chan error, 1)
	go func() { closed <- h.client.Close() }()
	var enough <-chan time.Time
	if h.drain(); h.interrupt != nil || !h.held { // a signal may have come before this wait
		enough = time.After(partingWait)
	}
	for {
		select {
		case err := <-closed:
			if err != nil {
				h.tell("%s", message(err))
			}
			return
		case <-enough:
			if h.held {
				h.say("%q: not freed in good order: %v", h.name, h.interrupt)
			}
			return
		case sig := <-h.signals:
			if slices.Contains(guard.Interrupts, sig) {
				h.interrupt = sig
				h.say("%q: not freed in good order: %v", h.name, sig)
				return
			}
		}
	}
}

// drain drops the signals that came for a command that has ended. It keeps a signal that ends
// dlock.
func (h *holder) drain() {
	if sig := h.signals.drain(); sig != nil {
		h.interrupt = sig
	}
}

// isTerminal reports whether a standard stream is a terminal.
func isTerminal(stream *os.File) bool { return term.IsTerminal(int(stream.Fd())) }
