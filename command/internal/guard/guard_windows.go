package guard

import (
	"os"
	"syscall"
	"time"
)

// Name is empty: on Windows there is no guard process.
const Name = ""

// Interrupts are the signals that end dlock while no command runs.
var Interrupts = []os.Signal{os.Interrupt, syscall.SIGTERM}

// Relayed is empty: the console sends its events to the command itself.
var Relayed []os.Signal

// Guard runs the command. Windows has no process groups, so dlock cannot reach processes that the
// command has started.
type Guard struct {
	process *os.Process
	state   *os.ProcessState
	done    chan os.Signal // closed when the command has ended and was waited for
}

// Start starts the command c. An error is a *StartError.
func Start(c Command, _ time.Time) (*Guard, error) {
	process, err := os.StartProcess(c.Path, c.Args, &os.ProcAttr{Env: c.Env, Files: c.Files[:]})
	if err != nil {
		return nil, CannotRun(c.Args[0], err)
	}
	g := &Guard{process: process, done: make(chan os.Signal)}
	go func() { // until the command has ended
		g.state, _ = process.Wait()
		close(g.done)
	}()
	return g, nil
}

// Leave does nothing.
func (g *Guard) Leave(bool) {}

// Close does nothing.
func (g *Guard) Close(time.Duration) {}

// Changed is closed when the command has ended.
func (g *Guard) Changed() <-chan os.Signal { return g.done }

// Ended reports whether the command has ended.
func (g *Guard) Ended() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

// Alive reports whether the command runs.
func (g *Guard) Alive() bool { return !g.Ended() }

// Late returns false: there is no deadline.
func (g *Guard) Late() bool { return false }

// Abandoned returns false: no guard process can be killed.
func (g *Guard) Abandoned() bool { return false }

// Failure returns nil: Start reports each failure.
func (g *Guard) Failure() error { return nil }

// Mute returns false: there is no guard process.
func (g *Guard) Mute() bool { return false }

// Lost returns false: no guard process can be killed.
func (g *Guard) Lost() (lost bool, interrupt os.Signal) { return false, nil }

// Forward does nothing: the console sends its events to the command itself.
func (g *Guard) Forward(os.Signal) {}

// Terminate does nothing: Windows has no SIGTERM, so only Kill ends the command, when the grace is
// over.
func (g *Guard) Terminate() {}

// Kill ends the command, but not the processes that it has started.
func (g *Guard) Kill() { _ = g.process.Kill() }

// Until does nothing.
func (g *Guard) Until(time.Time) {}

// End returns the exit code of the command.
func (g *Guard) End() (code int, sig syscall.Signal, key bool) {
	if g.state == nil { // it could not be waited for
		return 1, 0, false
	}
	return g.state.ExitCode(), 0, false
}

// Help is the part of the help about the end of COMMAND, and about the terminal.
const Help = `
The lock is renewed while COMMAND runs. If it is lost, dlock ends COMMAND when --grace
is over, without a warning, because Windows has no SIGTERM. Processes that COMMAND has
started go on without the lock. If dlock is stopped or killed, nothing ends COMMAND.

Ctrl-C reaches COMMAND from the console. Windows has no locks in files, so dlock needs
the URL of a server.
`
