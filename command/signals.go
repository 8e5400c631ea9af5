package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dlock-go/dlock/command/internal/guard"
)

// inbox receives the signals of the process. If SIGHUP or SIGINT was ignored when dlock
// started, as under nohup, it stays ignored, for the command as well. Package os/signal
// keeps no other signals ignored.
type inbox chan os.Signal

// openInbox returns an inbox for the signals that end dlock while no command runs.
func openInbox() inbox {
	in := make(inbox, 32) // a full inbox drops signals
	in.add(guard.Interrupts)
	return in
}

func (in inbox) add(signals []os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(in, sig)
		}
	}
}

// drain drops all signals that have arrived. It returns the first one of
// guard.Interrupts among them, or nil.
func (in inbox) drain() (interrupt os.Signal) {
	for {
		select {
		case sig := <-in:
			if interrupt == nil && slices.Contains(guard.Interrupts, sig) {
				interrupt = sig
			}
		default:
			return interrupt
		}
	}
}

func (in inbox) close() { signal.Stop(in) }

// end closes the inbox. It returns the first of guard.Interrupts that was not received, or nil.
func (in inbox) end() (interrupt os.Signal) {
	in.close() // it returns when all signals have arrived
	return in.drain()
}

// during runs fn with a context. The first signal of guard.Interrupts cancels the context. during
// then returns an interrupted, even if fn has completed its work. A second signal ends dlock at
// once.
func (in inbox) during(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case sig := <-in:
				if !slices.Contains(guard.Interrupts, sig) {
					continue
				}
				in.close()
				cancel(interrupted{sig.(syscall.Signal)})
			case <-done:
			}
			return
		}
	})
	err := fn(ctx)
	close(done)
	watcher.Wait()
	if signal, ok := errors.AsType[interrupted](context.Cause(ctx)); ok {
		return signal
	}
	return err
}

// interruptible turns fn, which starts no process, into the body of a subcommand that
// ends with the first signal.
func interruptible(
	fn func(ctx context.Context, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		in := openInbox()
		defer in.close()
		return in.during(cmd.Context(), func(ctx context.Context) error { return fn(ctx, args) })
	}
}
