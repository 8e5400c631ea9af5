//go:build unix

package command

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// interrupts are the signals that end dlock while it has no command running.
var interrupts = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// relayed are the further signals that dlock acts on while a command runs.
var relayed = []os.Signal{
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGWINCH,
	syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
}

// stops are the signals by which a terminal stops a job.
var stops = []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}

// job is the command with all processes that it has started. Its methods are called from one
// goroutine.
//
// The command leads a process group of its own. The group is in the foreground of the terminal if
// dlock's group was, so that a key reaches each process once. Signals that dlock gets are handed
// on. Between the shell and the command dlock does what a shell does for its jobs: it stops when
// the terminal has stopped the command, and gives the terminal back when it is continued.
type job struct {
	cmd      *exec.Cmd
	signals  inbox
	children chan os.Signal // SIGCHLD
	terminal *terminal      // nil if there is none
	watchdog *watchdog      // nil if it could not be started

	pid    int // of the command, and of its group
	state  jobState
	status syscall.WaitStatus // of a command that has ended
}

type jobState int

const (
	jobRuns    jobState = iota
	jobAsked            // dlock was told to stop, and stops when the command has
	jobStopped          // the command is stopped, and so is dlock, or about to be
	jobEnded            // the command has ended; processes that it has started may be left
)

// startJob starts cmd. The caller's goroutine keeps its thread until close.
func startJob(cmd *exec.Cmd, signals inbox, watchdog *watchdog) (*job, error) {
	j := &job{cmd: cmd, signals: signals, children: make(chan os.Signal, 1), terminal: openTerminal(), watchdog: watchdog}
	signal.Notify(j.children, syscall.SIGCHLD)
	signals.add(relayed)
	adoptOrphans()
	// The system ends the command when the thread that started it ends (go.dev/issue/27505).
	runtime.LockOSThread()
	cmd.SysProcAttr = attributes()
	if j.terminal.ours() && (!isOrphaned() || isTerminal(cmd.Stdout)) {
		// Otherwise a pager behind a pipe could not have the terminal back: the system asks no orphaned
		// group to wait for it. The command gets the terminal when it needs it.
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, j.terminal.fd
	}
	if err := cmd.Start(); err != nil {
		j.close()
		return nil, cannotRun(cmd.Args[0], err)
	}
	j.pid = cmd.Process.Pid
	watchdog.guard(j.pid)
	return j, nil
}

// close gives the terminal back to dlock's group.
func (j *job) close() {
	if j.terminal.has(j.pid) {
		j.terminal.take()
	}
	j.terminal.close()
	j.watchdog.close()
	signal.Stop(j.children)
	runtime.UnlockOSThread()
}

// changed delivers when a process has ended or was stopped: ended looks which.
func (j *job) changed() <-chan os.Signal { return j.children }

// ended waits for the processes that have ended. It reports whether the command is one of them,
// and stops dlock with a command that was stopped. Orphans of the command are dlock's children.
func (j *job) ended() bool {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid == 0:
			return j.state == jobEnded
		case pid != j.pid:
		case status.Stopped():
			j.stopped(status.StopSignal())
		default:
			j.state, j.status = jobEnded, status
		}
	}
}

// stopped does what is right when sig has stopped the command.
func (j *job) stopped(sig syscall.Signal) {
	switch {
	case j.state == jobAsked:
		j.state = jobStopped
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case sig == syscall.SIGSTOP || j.terminal == nil:
		// A signal from outside stopped the command alone: the lock is kept.
	case sig != syscall.SIGTSTP && j.terminal.ours(), isOrphaned():
		// The command wants the terminal and dlock's group has it; or no shell could continue dlock.
		j.state = jobStopped
		j.resume()
	default:
		// The terminal would have stopped all of dlock's group, such as the script that waits for it.
		j.state = jobStopped
		signal.Reset(stops...) // until resume: this one is for the others
		_ = syscall.Kill(0, sig)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}

// resume continues a job that was stopped, in the foreground if dlock is there now.
func (j *job) resume() {
	if j.state == jobStopped && j.terminal.ours() {
		j.terminal.give(j.pid)
	}
	j.state = jobRuns
	j.signals.add(stops)
	j.signalGroup(syscall.SIGCONT)
}

// forward acts on a signal that dlock got: what means nothing to others goes to the command
// alone, the rest to its group.
func (j *job) forward(sig os.Signal) {
	switch sig {
	case syscall.SIGUSR1, syscall.SIGUSR2:
		_ = syscall.Kill(j.pid, sig.(syscall.Signal))
	case syscall.SIGCONT:
		j.resume()
	case syscall.SIGTTIN, syscall.SIGTTOU:
		j.lend()
	case syscall.SIGTSTP:
		j.stop()
	default:
		j.signalGroup(sig.(syscall.Signal))
	}
}

// stop stops the command, and then dlock.
func (j *job) stop() {
	j.state = jobAsked
	j.signalGroup(syscall.SIGTSTP)
}

// lend gives the terminal to dlock's group, in which a process needs it: a pager behind a pipe.
// The command gets it back when it needs it. If another job has the terminal, all of this one
// stops.
func (j *job) lend() {
	switch {
	case j.terminal.has(j.pid):
		j.terminal.take()
	case !j.terminal.ours():
		j.stop()
		return
	}
	_ = syscall.Kill(0, syscall.SIGCONT)
}

// terminate asks all processes of the job to end, also those that are stopped.
func (j *job) terminate() {
	j.signalAll(syscall.SIGTERM)
	j.signalAll(syscall.SIGCONT)
}

// kill ends all processes of the job.
func (j *job) kill() { j.signalAll(syscall.SIGKILL) }

// until states the end of the lease: the watchdog ends the job then.
func (j *job) until(end time.Time) { j.watchdog.until(end) }

// signalGroup signals the group of the command. A group outlives its leader and keeps its number
// reserved; an empty one is ESRCH.
func (j *job) signalGroup(sig syscall.Signal) { _ = syscall.Kill(-j.pid, sig) }

// signalAll signals the group, and each process that has left it.
func (j *job) signalAll(sig syscall.Signal) {
	j.signalGroup(sig)
	for _, pid := range j.descendants() {
		if group, err := syscall.Getpgid(pid); err == nil && group != j.pid {
			_ = syscall.Kill(pid, sig)
		}
	}
}

// alive reports whether anything is left of the job.
func (j *job) alive() bool {
	return !j.ended() || !errors.Is(syscall.Kill(-j.pid, 0), syscall.ESRCH) || len(j.descendants()) > 0
}

// descendants are the processes that the job has started and the system can name.
func (j *job) descendants() []int {
	return slices.DeleteFunc(descendantsOf(os.Getpid()), func(pid int) bool { return pid == j.pid || pid == j.watchdog.pid() })
}

// end returns how the command has ended: its exit code, or the signal that ended it, and whether
// a key of the terminal may have sent that.
func (j *job) end() (code int, sig syscall.Signal, key bool) {
	if !j.status.Signaled() {
		return j.status.ExitStatus(), 0, false
	}
	sig = j.status.Signal()
	key = sig == syscall.SIGINT && j.terminal.has(j.pid)
	return exitSignal + int(sig), sig, key
}
