package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
)

// inbox receives the signals of the process. What was ignored when dlock was
// started, as by nohup, stays ignored, for the command as well.
type inbox chan os.Signal

// openInbox returns the inbox of the signals that end dlock while it has no
// command running.
func openInbox() inbox {
	in := make(inbox, 32) // a full one drops signals
	in.add(interrupts)
	return in
}

func (in inbox) add(signals []os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(in, sig)
		}
	}
}

// drain forgets what has come so far.
func (in inbox) drain() {
	for {
		select {
		case <-in:
		default:
			return
		}
	}
}

func (in inbox) close() { signal.Stop(in) }

// during runs fn with a context that the next signal cancels. If one came, the
// result is an interrupted, also where fn had done its work by then; a
// second one ends dlock at once.
func (in inbox) during(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case sig := <-in:
			in.close()
			cancel(interrupted{sig.(syscall.Signal)})
		case <-done:
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

// interruptible makes fn, which starts no command, the body of a command that
// ends with the first signal.
func interruptible(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		in := openInbox()
		defer in.close()
		return in.during(cmd.Context(), func(ctx context.Context) error { return fn(ctx, args) })
	}
}
