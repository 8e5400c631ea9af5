package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"golang.org/x/term"

	"github.com/dlock-go/dlock"
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

// acquire connects and takes the lock.
func (h *holder) acquire(ctx context.Context, raw string) (err error) {
	if h.flags.flags.Changed("ttl") { // a session on the server follows the TTL of the URL
		raw = withParameter(raw, "ttl", h.flags.ttl.String())
	}
	if h.client, err = h.flags.dial(ctx, h.app, raw); err != nil {
		return err
	}
	if err := h.flags.fit(h.client.Capabilities()); err != nil {
		return err
	}
	h.tell("waiting for %q", h.name)
	h.lease, err = h.lock(ctx)
	switch {
	case errors.Is(err, dlock.ErrUnavailable):
		return err
	case errors.Is(err, dlock.ErrNotAcquired):
		return &exitError{h.flags.conflictCode, err}
	case errors.Is(err, context.DeadlineExceeded):
		return &exitError{h.flags.conflictCode, fmt.Errorf("%q: not acquired within %v", h.name, h.flags.wait)}
	case err != nil:
		return err
	}
	return h.freshen(ctx)
}

// lock takes the lock, waiting as long as the flags say.
func (h *holder) lock(ctx context.Context) (*dlock.Lease, error) {
	f := h.flags
	if f.try || f.wait == 0 && f.flags.Changed("wait") {
		return h.client.TryLock(ctx, h.name, f.options()...)
	}
	if f.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.wait)
		defer cancel()
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
	group := !isTerminal(h.stdin)
	h.signals.add(relayed(group))
	child, err := startChild(h.command(path, argv), group)
	if err != nil {
		return errors.Join(err, h.unlock())
	}
	lost := h.supervise(child)
	if lost == nil {
		h.tell("%s ended, freeing %q", argv[0], h.name)
		lost = h.unlock()
	}
	if lost != nil && h.flags.onLost == onLostKill {
		return lost
	}
	if code := child.exitCode(); code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// command is the child before it starts.
func (h *holder) command(path string, argv []string) *exec.Cmd {
	return &exec.Cmd{
		Path: path, Args: argv,
		Env: append(slices.Clip(h.env),
			"DLOCK_NAME="+h.name,
			"DLOCK_FENCE="+strconv.FormatUint(h.lease.Fence(), 10)),
		Stdin: h.stdin, Stdout: h.stdout, Stderr: h.stderr,
	}
}

// supervise waits for the end of the command. The error says why the lease
// ended before it.
func (h *holder) supervise(child *child) error {
	keep := h.flags.onLost == onLostContinue
	s := &supervisor{
		lease: h.lease, process: child, signals: h.signals,
		grace: h.flags.grace, headroom: h.flags.headroom, keep: keep,
		onLoss: func(cause error) {
			if keep {
				h.say("%q: %s: the command goes on without it", h.name, message(cause))
			} else {
				h.tell("%q: %s: ending the command", h.name, message(cause))
			}
		},
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
