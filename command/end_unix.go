//go:build unix

package command

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/command/internal/guard"
)

// endBySignal ends the process by the signal that ended the command, as a shell expects. A loop
// around dlock then ends with the same key. The signal of a key is for all of dlock's group, but
// the terminal sent it only to the command's group. So endBySignal sends it to dlock's group. It
// returns if the process survives the signal, as the first process of a container does. It also
// returns for signals by which a Go program does not simply end.
func endBySignal(sig syscall.Signal, key bool) {
	if key {
		guard.Catch(sig)
		_ = syscall.Kill(0, sig)
	}
	switch {
	case sig != syscall.SIGINT && sig != syscall.SIGTERM && sig != syscall.SIGHUP:
		return // such as SIGQUIT, by which a Go program does not simply end
	case os.Getpid() == 1, signal.Ignored(sig):
		return // it would survive the signal
	}
	signal.Reset(sig)
	if syscall.Kill(os.Getpid(), sig) == nil {
		time.Sleep(killWait) // another thread may receive the signal
	}
}
