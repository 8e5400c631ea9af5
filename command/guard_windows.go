package command

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// interrupts are the signals that end dlock while no command runs.
var interrupts = []os.Signal{os.Interrupt, syscall.SIGTERM}

// guard runs the command. Windows has no process groups, so dlock cannot reach processes that the
// command has started.
type guard struct {
	cmd  *exec.Cmd
	done chan os.Signal // closed when the command has ended and was waited for
}

func startGuard(cmd *exec.Cmd, _ inbox, _ time.Time) (*guard, error) {
	g := &guard{cmd: cmd, done: make(chan os.Signal)}
	if err := cmd.Start(); err != nil {
		return nil, cannotRun(cmd.Args[0], err)
	}
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		close(g.done)
	}()
	return g, nil
}

func (g *guard) close(bool) {}

func (g *guard) changed() <-chan os.Signal { return g.done }

func (g *guard) ended() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

func (g *guard) alive() bool { return !g.ended() }

func (g *guard) late() bool { return false }

func (g *guard) failure() error { return nil }

func (g *guard) lost() (lost bool, interrupt os.Signal) { return false, nil }

// forward does nothing: the console sends its events to the command itself.
func (g *guard) forward(os.Signal) {}

// terminate does nothing: Windows has no SIGTERM, so only kill ends the
// command, when the grace is over.
func (g *guard) terminate() {}

// kill ends the command, but not the processes that it has started.
func (g *guard) kill() { _ = g.cmd.Process.Kill() }

func (g *guard) until(time.Time) {}

func (g *guard) end() (code int, sig syscall.Signal, key bool) {
	return g.cmd.ProcessState.ExitCode(), 0, false
}

// guardCommand is empty: on Windows there is no guard process.
const guardCommand = ""

func guardMain([]string) int { return exitUsage }

// platformHelp is the part of the help about the limits of this system.
const platformHelp = `
On Windows there is no SIGTERM: COMMAND is ended without a warning, when --grace is
over. Processes that it has started go on. If dlock is killed, nothing ends COMMAND.
Ctrl-C reaches COMMAND from the console.
`
