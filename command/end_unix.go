//go:build unix

package command

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// endBySignal ends the process by the signal that has ended the command, as a shell expects it: a
// loop around dlock then ends with the key that has ended the command. The key was for all of
// dlock's group; the terminal has sent it to that of the command alone. It returns where the
// process outlives the signal, as the first process of a container does, and for signals that a
// program in Go does not simply end by.
func endBySignal(sig syscall.Signal, key bool) {
	if sig != syscall.SIGINT && sig != syscall.SIGTERM && sig != syscall.SIGHUP {
		return
	}
	signal.Reset(sig)
	target := os.Getpid()
	if key {
		target = 0
	}
	if syscall.Kill(target, sig) == nil {
		time.Sleep(killWait) // another thread may take the signal
	}
}
