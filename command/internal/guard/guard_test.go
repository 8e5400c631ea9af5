//go:build unix

package guard

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// A signal for dlock's group can end the guard before the guard has its own group. Lost then
// returns the signal, whether or not dlock has received it.
func TestGuardEndedBySignalOfTheGroup(t *testing.T) {
	for sig, want := range map[syscall.Signal]os.Signal{
		syscall.SIGINT: syscall.SIGINT, syscall.SIGKILL: nil,
	} {
		cmd := exec.CommandContext(t.Context(),
			"sh", "-c", "kill -s $0 $$; sleep 1000", strconv.Itoa(int(sig)))
		_ = cmd.Run()
		g := &Guard{
			changes: make(chan os.Signal, 1), own: cmd.ProcessState.Sys().(syscall.WaitStatus),
		}
		g.note(answerLost, "")
		if lost, got := g.Lost(); !lost || got != want {
			t.Errorf("after signal %v: lost %v, interrupt %v, want %v", sig, lost, got, want)
		}
	}
}
