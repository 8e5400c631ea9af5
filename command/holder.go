package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// partingWait is how long dlock stays to free a lock that it has not got, or has
// lost: where its server is away the TTL frees it.
const partingWait = time.Second

// holder holds one lock for one command.
type holder struct {
	*app
	flags   *lockFlags
	name    string
	signals inbox
	renewed chan struct{} // filled by each renewal
	client  *dlock.Client
	lease   *dlock.Lease
	held    bool // until the command had ended: Close frees it in good order
}

// tell is say with --verbose.
func (h *holder) tell(format string, args ...any) {
	if h.flags.verbose {
		h.say(format, args...)
	}
}

// acquire connects and takes the lock, within --wait.
func (h *holder) acquire(ctx context.Context, raw string) (err error) {
	if wait := h.flags.wait; wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	watch := dlock.WithObserver(&dlock.Observer{Renewed: h.noteRenewal})
	if h.client, err = h.flags.dial(ctx, h.app, h.parameters(raw), watch); err != nil {
		return err
	}
	if err := h.flags.fit(h.client.Capabilities()); err != nil {
		return err
	}
	if err := h.refuseNested(ctx); err != nil {
		return err
	}
	h.tell("waiting for %q", h.name)
	if h.lease, err = h.lock(ctx); err != nil {
		return h.notAcquired(err)
	}
	return h.freshen(ctx)
}

// parameters sets those of the URL that follow from the flags.
func (h *holder) parameters(raw string) string {
	if h.flags.flags.Changed("ttl") { // a session on the server follows the TTL of the URL
		raw = withParameter(raw, "ttl", h.flags.ttl.String())
	}
	if strings.HasPrefix(raw, "file:") {
		raw = withParameter(raw, "endless", "1") // a job that is stopped keeps its lock
		if !h.flags.leave {
			raw = withParameter(raw, "inherit", "1") // a job keeps its lock until it is ended, if dlock is killed
		}
	}
	return raw
}

// ownersVariable has the owners of the locks under which a command runs.
const ownersVariable = "DLOCK_OWNERS"

// refuseNested fails if dlock runs under the lock that it is to take: it would wait for itself.
func (h *holder) refuseNested(ctx context.Context) error {
	owners := strings.Fields(h.getenv(ownersVariable))
	if len(owners) == 0 {
		return nil
	}
	for _, holder := range h.holders(ctx) {
		if slices.Contains(owners, holder.Owner) {
			return &exitError{code: h.flags.conflictCode, err: fmt.Errorf(
				"%q: this command runs under it already, by %s: it would wait for itself", h.name, describe(&holder))}
		}
	}
	return nil
}

// notAcquired gives the error of a lock that was not acquired its exit code, and says who holds
// it. A server that did not answer is the cause, whatever time was given.
func (h *holder) notAcquired(err error) error {
	reason := ""
	switch {
	case errors.Is(err, dlock.ErrUnavailable):
		return err
	case errors.Is(err, dlock.ErrNotAcquired):
	case errors.Is(err, context.DeadlineExceeded):
		reason = fmt.Sprintf(" within %v", h.flags.wait)
	default:
		return err
	}
	err = fmt.Errorf("%q: not acquired%s", h.name, reason)
	ctx, cancel := context.WithTimeout(context.Background(), partingWait)
	defer cancel()
	if holders := h.holders(ctx); len(holders) > 0 {
		err = fmt.Errorf("%w: held by %s", err, describe(&holders[0]))
	}
	return &exitError{code: h.flags.conflictCode, err: err}
}

// holders returns nothing where that is not known.
func (h *holder) holders(ctx context.Context) []backend.Holder {
	info, err := h.client.Inspect(ctx, h.name)
	if err != nil {
		return nil
	}
	return info.Holders
}

// noteRenewal wakes the supervisor.
func (h *holder) noteRenewal(dlock.Event) {
	select {
	case h.renewed <- struct{}{}:
	default:
	}
}

// lock takes the lock, waiting as the flags say.
func (h *holder) lock(ctx context.Context) (*dlock.Lease, error) {
	f := h.flags
	if f.try || f.wait == 0 && f.flags.Changed("wait") {
		return h.client.TryLock(ctx, h.name, f.options()...)
	}
	return h.client.Lock(ctx, h.name, f.options()...)
}

// freshen sees to it that the command begins with most of a term: a lock that came
// out of a queue may have a third of it left, of which the grace is as much.
func (h *holder) freshen(ctx context.Context) error {
	if time.Until(h.lease.Deadline()) > h.flags.ttl/2 {
		return nil
	}
	return h.lease.Extend(ctx)
}

// hold runs the command under the lock and returns how it ended.
func (h *holder) hold(path string, argv []string) error {
	h.tell("holding %q, fence %d", h.name, h.lease.Fence())
	id := rand.Text()
	job, err := startJob(h.command(path, argv, id), h.signals, h.watchdog(id))
	if err != nil {
		return errors.Join(err, h.unlock())
	}
	lost := h.supervise(job)
	code, sig, key := job.end()
	job.close()
	if lost == nil {
		h.tell("%s ended, freeing %q", argv[0], h.name)
		lost = h.unlock()
	}
	if lost != nil && h.flags.onLost == onLostKill {
		return lost
	}
	if code != 0 {
		return &exitError{code: code, signal: sig, key: key}
	}
	return nil
}

// watchdog returns nil if it cannot be started: the command is then in dlock's care alone.
func (h *holder) watchdog(job string) *watchdog {
	w, err := startWatchdog(h.env, job)
	if err != nil {
		h.tell("no watchdog: %v", err)
	}
	return w
}

// command is the child before it starts.
func (h *holder) command(path string, argv []string, job string) *exec.Cmd {
	return &exec.Cmd{
		Path: path, Args: argv,
		Env: append(slices.Clip(h.env),
			"DLOCK_NAME="+h.name,
			"DLOCK_FENCE="+strconv.FormatUint(h.lease.Fence(), 10),
			ownersVariable+"="+strings.TrimSpace(h.getenv(ownersVariable)+" "+h.lease.Owner()),
			jobVariable+"="+job),
		Stdin: h.stdin, Stdout: h.stdout, Stderr: h.stderr,
	}
}

// supervise waits for the end of the command. The error says why the lease
// ended before it.
func (h *holder) supervise(job *job) error {
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
		onRest: func() { h.tell("%q: ending what the command has left behind", h.name) },
	}
	if err := s.wait(); err != nil {
		return fmt.Errorf("%q: %w: the command was ended", h.name, err)
	}
	return nil
}

// unlock frees the lock; its error is a loss that only the release found out.
// A release without an answer is not the command's failure.
func (h *holder) unlock() error {
	h.held = true
	err := h.lease.Unlock(context.Background())
	switch {
	case errors.Is(err, dlock.ErrLost):
		h.held = false
		if h.flags.onLost == onLostContinue {
			h.say("%s", message(err))
		}
		return err
	case err != nil:
		h.say("%s: the lock is freed by its TTL", message(err))
	case h.flags.minHold > 0:
		h.tell("keeping %q until --min-hold is over", h.name)
	}
	return nil
}

// close frees what is left: a queue entry, a lost lock, or one that --min-hold
// has kept. A signal ends the waiting, which leaves it to the TTL.
func (h *holder) close() {
	if h.client == nil {
		return
	}
	closed := make(chan error, 1)
	go func() { closed <- h.client.Close() }()
	var enough <-chan time.Time
	if !h.held {
		enough = time.After(partingWait)
	}
	h.signals.drain()
	for {
		select {
		case err := <-closed:
			if err != nil {
				h.tell("%s", message(err))
			}
			return
		case <-enough:
			return
		case sig := <-h.signals:
			if slices.Contains(interrupts, sig) {
				h.say("%q: not freed in good order: %v", h.name, sig)
				return
			}
		}
	}
}

// isTerminal reports whether a standard stream is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
