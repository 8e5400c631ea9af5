package command

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// interrupts are the signals that end dlock while it has no command running.
var interrupts = []os.Signal{os.Interrupt, syscall.SIGTERM}

// job is the command. Windows has no process groups: what the command starts is out of reach.
type job struct {
	cmd  *exec.Cmd
	done chan os.Signal // closed when the command has ended and was waited for
}

func startJob(cmd *exec.Cmd, _ inbox, _ *watchdog) (*job, error) {
	j := &job{cmd: cmd, done: make(chan os.Signal)}
	if err := cmd.Start(); err != nil {
		return nil, cannotRun(cmd.Args[0], err)
	}
	go func() {
		_ = cmd.Wait() // ProcessState tells how it ended
		close(j.done)
	}()
	return j, nil
}

func (j *job) close() {}

func (j *job) changed() <-chan os.Signal { return j.done }

func (j *job) ended() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

func (j *job) alive() bool { return !j.ended() }

// forward does nothing: the console gives its events to the command itself.
func (j *job) forward(os.Signal) {}

// terminate leaves the command alone: Windows has no way to ask, so that kill
// at the end of the grace is all there is.
func (j *job) terminate() {}

// kill ends the command alone.
func (j *job) kill() { _ = j.cmd.Process.Kill() }

func (j *job) until(time.Time) {}

func (j *job) end() (code int, sig syscall.Signal, key bool) {
	return j.cmd.ProcessState.ExitCode(), 0, false
}

// platformHelp is the part of the help that says what this system cannot do.
const platformHelp = `
On Windows there is no SIGTERM: COMMAND is ended without a warning, when --grace is
over. What it has started goes on, nothing ends it if dlock is killed, and there is no
watchdog. Ctrl-C reaches COMMAND from the console.
`
