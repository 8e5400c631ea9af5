//go:build unix

package guard

import (
	"errors"
	"iter"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
)

// job is the command with all processes that it has started. It lives in the guard process. Its
// methods are called from one goroutine, which keeps its thread.
//
// The command leads its own process group. The group is in the foreground of the terminal if
// dlock's group was, so that a key reaches each process once. The guard forwards the signals that
// dlock receives. Between the shell and the command, the guard does what a shell does for its jobs.
// It stops dlock when the terminal has stopped the command, and gives the terminal back to the
// command when dlock is continued. The guard has its own group as well, so that no signal for
// dlock's group stops it.
type job struct {
	command  Command
	dlock    int            // the number of dlock's process
	parent   int            // dlock's parent at the start, 0 if unknown
	group    int            // dlock's process group, 0 if unknown
	children chan os.Signal // SIGCHLD
	terminal *terminal      // nil if there is none

	pid       int // of the command, and of its group
	state     jobState
	status    syscall.WaitStatus // of a command that has ended
	fore      bool               // the command's group has had the terminal
	hangUps   int                // signals that it got because it can never have the terminal
	handed    bool               // a SIGINT that dlock received was forwarded
	early     []syscall.Signal   // signals from before the command ran
	wasHalted bool               // a key would have stopped the command before it ran
	empty     bool               // the group has no process; its number may be used again soon
	childless bool               // the guard has no child: on Linux the whole job has ended
	look      *time.Ticker       // set after a key
	settled   time.Time          // until then a late stop by a key is undone
	// progress is called with the time of the call of strays, for each process that strays finds.
	progress func(begun time.Duration)
}

type jobState int

const (
	jobRuns     jobState = iota
	jobStopping          // dlock has received SIGTSTP, and stops when the command has stopped
	jobLending           // the same, because a process of dlock's group needs the terminal
	jobStopped           // the command is stopped; dlock is stopped, too, or will be soon
	jobEnding            // dlock has sent SIGTERM to the job, and sends SIGKILL after the grace
	jobEnded             // the command has ended; processes that it has started may still run
)

// newJob returns the job of a command that has not started yet. dlock is the number of its dlock
// process. look is a ticker that is not set. While it is set, the caller calls continueLate.
func newJob(command Command, dlock int, look *time.Ticker) *job {
	j := &job{command: command, dlock: dlock, look: look, children: make(chan os.Signal, 1)}
	Catch(append(slices.Concat(Interrupts, Relayed), syscall.SIGPIPE)...) // dlock handles them
	signal.Notify(j.children, syscall.SIGCHLD)
	j.group, _ = syscall.Getpgid(dlock) // 0 if dlock has ended
	j.terminal = openTerminal(j.group)
	setAdopting(true)
	return j
}

// start starts the command. It runs a script without an interpreter line with sh, as shells do.
func (j *job) start() *StartError {
	path, args := j.command.Path, j.command.Args
	err := j.execute(path, args)
	if errors.Is(err, syscall.ENOEXEC) {
		j.giveTerminalBack() // otherwise sh would not get it, and would stop when it reads
		err = j.execute("/bin/sh", append([]string{"sh", asFile(path)}, args[1:]...))
	}
	if err != nil {
		return CannotRun(args[0], &os.PathError{Op: "exec", Path: path, Err: err})
	}
	return nil
}

// asFile returns path in a form that sh does not take for an option.
func asFile(path string) string {
	if strings.HasPrefix(path, "-") {
		return "./" + path
	}
	return path
}

// execute starts a process. The process has the terminal at once if dlock is in the foreground, and
// if it uses the terminal as a foreground command does. Otherwise another command may need the
// terminal, such as a pager behind a pipe, or a command that a script has started meanwhile. The
// process then gets the terminal when it needs it.
func (j *job) execute(path string, args []string) error {
	attr := &syscall.ProcAttr{
		Env: j.command.Env, Files: []uintptr{0, 1, 2}, Sys: attributes(syscall.SIGKILL),
	}
	if j.terminal.ours() && term.IsTerminal(0) && term.IsTerminal(1) &&
		!signal.Ignored(syscall.SIGINT) {
		attr.Sys.Foreground, attr.Sys.Ctty = true, j.terminal.fd
		j.fore = true
	}
	// Not os.StartProcess: it makes a handle of the process, which the guard does not need, because
	// it waits for all of its children.
	wasHalted, err := watchFork(func() (err error) {
		j.pid, err = syscall.ForkExec(path, args, attr)
		return err
	})
	j.wasHalted = j.wasHalted || wasHalted
	if err != nil {
		j.pid = 0
		return err
	}
	if j.wasHalted {
		// The key is for the command, and came before it had children. If the command is now in a
		// fork of its own, as dash with vfork, a stop of that child would hold up the command.
		_ = syscall.Kill(j.pid, syscall.SIGTSTP)
	}
	for _, sig := range j.early {
		j.forward(sig)
	}
	return nil
}

// giveTerminalBack gives the terminal to dlock's group. It does so even if the command could not be
// executed, because the process that was forked for it may have had the terminal.
func (j *job) giveTerminalBack() {
	if !j.fore {
		return
	}
	if j.terminal.isWith(j.pid) {
		j.terminal.take()
	}
	if j.status.Signaled() && j.terminal.ours() {
		j.terminal.restore()
	}
}

func (j *job) close() {
	j.giveTerminalBack()
	j.terminal.close()
}

// ended reaps the processes that have ended, and reports whether the command has ended. If the
// command was stopped, it stops dlock as well. Orphans of the command are children of the
// guard, so it reaps them, too.
func (j *job) ended() bool {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid == 0:
			j.childless = errors.Is(err, syscall.ECHILD)
			return j.state == jobEnded
		case pid != j.pid || j.state == jobEnded: // an orphan may have got the number
		case status.Stopped():
			j.stopped(status.StopSignal())
		default:
			j.state, j.status = jobEnded, status
		}
	}
}

// stopped reacts to a stop of the command by sig.
func (j *job) stopped(sig syscall.Signal) {
	switch orphaned := isOrphaned(j.group, j.parentOf); {
	case j.state == jobStopped: // dlock is stopped
	case j.state == jobEnding:
		// dlock must not stop before it has sent SIGKILL. A key does not stop the command, so that
		// it can end itself. If it needs the terminal of another job, it stays stopped.
		needsTerminal := sig != syscall.SIGSTOP || j.lacksTerminal()
		if sig == syscall.SIGTSTP || needsTerminal && j.terminal.ours() {
			j.giveTerminal()
			j.signalGroup(syscall.SIGCONT)
		}
	case j.state == jobLending && j.terminal.ours(): // it has come back meanwhile
		j.state = jobStopped
		j.resume()
		j.signalDlocksGroup(syscall.SIGCONT)
	case j.state == jobStopping, j.state == jobLending:
		j.stopDlock()
	case j.terminal == nil, sig == syscall.SIGSTOP && !j.isInFront() && !j.lacksTerminal():
		// A signal from elsewhere stopped only the command: dlock keeps the lock.
	case sig == syscall.SIGTSTP && orphaned, sig != syscall.SIGTSTP && j.terminal.ours():
		// Either no shell could continue dlock, or the command needs the terminal
		// and dlock's group has it.
		j.state = jobStopped
		j.resume()
		if sig == syscall.SIGTSTP {
			j.settle()
		}
	case orphaned && sig == syscall.SIGSTOP && j.isInFront():
		// No shell could continue dlock. If a child of the command is stopped as well, the command
		// has stopped itself after it, as a nested dlock and su do, and both go on. Otherwise a
		// signal from elsewhere has stopped the command.
		if j.lacksTerminal() || j.isFrontStopped() {
			j.state = jobStopped
			j.terminal.take()
			j.resume()
			j.settle()
		}
	case orphaned:
		j.hangUp()
	default:
		// The terminal would have stopped all of dlock's group, including a script that waits for
		// dlock. The guard sends one signal to the whole group. It does not leave this to dlock,
		// because the shell may continue the group at once.
		j.state = jobStopped
		showAs(askingName)
		j.signalDlocksGroup(syscall.SIGSTOP)
	}
}

// parentOf returns the parent of a process, or 0 if it is unknown. Some systems do not list
// parents. On those it returns only dlock's parent, as dlock sent it.
func (j *job) parentOf(pid int) int {
	if parent := parentOf(pid); parent != 0 || pid != j.dlock {
		return parent
	}
	return j.parent
}

// isInFront reports whether the foreground group is the command's or a descendant's, such as the
// command of another dlock.
func (j *job) isInFront() bool {
	front := j.terminal.front()
	if front == 0 || front == j.pid {
		return front != 0
	}
	return slices.ContainsFunc(descendantsOf(os.Getpid()), isIn(front))
}

// isFrontStopped reports whether a descendant of the command in the foreground group is stopped, as
// after a key.
func (j *job) isFrontStopped() bool {
	isFront := isIn(j.terminal.front())
	return slices.ContainsFunc(descendantsOf(os.Getpid()), func(pid int) bool {
		return pid != j.pid && isFront(pid) && isStopped(pid)
	})
}

// isIn returns a function that reports whether a process is in group.
func isIn(group int) func(pid int) bool {
	return func(pid int) bool {
		got, err := syscall.Getpgid(pid)
		return err == nil && got == group
	}
}

// lacksTerminal reports whether the guard of a nested dlock has stopped the command, in which the
// nested dlock runs, because its own job needs the terminal. If dlock's group has the terminal, the
// command gets it, and then that job. Otherwise dlock stops as well, so that an outer dlock, or the
// shell, decides.
func (j *job) lacksTerminal() bool {
	return slices.ContainsFunc(descendantsOf(os.Getpid()), isAsking)
}

// settle lets processes go on that stop after the command has been continued. A key reaches all
// processes of the group, and some restore the modes of the terminal first, such as a pager.
func (j *job) settle() {
	j.settled = time.Now().Add(settleTime)
	j.look.Reset(LookInterval)
}

// continueLate continues the group if a process of it has stopped, but not the command.
func (j *job) continueLate() {
	switch {
	case !time.Now().Before(j.settled):
		j.look.Reset(endless)
	case !isStopped(j.pid) && j.isFrontStopped():
		j.signalGroup(syscall.SIGCONT)
	}
}

// hangUp sends SIGHUP to a command that can never have the terminal, as the system does for a group
// that becomes orphaned. It ends a command that ignores SIGHUP and stops again: otherwise the lock
// would be kept for a command that never goes on.
func (j *job) hangUp() {
	signals := [...]syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGKILL}
	j.signalGroup(signals[min(j.hangUps, len(signals)-1)])
	j.hangUps++
	j.signalGroup(syscall.SIGCONT)
}

// stopDlock stops the dlock process, for which the shell waits, because the command has stopped.
func (j *job) stopDlock() {
	if j.state == jobLending {
		showAs(askingName)
	}
	j.state = jobStopped
	if os.Getppid() == j.dlock { // dlock has not ended
		_ = syscall.Kill(j.dlock, syscall.SIGSTOP)
	}
}

// signalDlocksGroup signals dlock and all other processes that the shell has put into
// its group, such as a script.
func (j *job) signalDlocksGroup(sig syscall.Signal) {
	if os.Getppid() == j.dlock && j.group > 0 {
		_ = syscall.Kill(-j.group, sig)
	}
}

// resume continues a stopped job. The job gets the terminal if dlock's group has it now.
func (j *job) resume() {
	showAs(shownName)
	if j.state == jobEnding || j.state == jobEnded {
		return
	}
	if j.state == jobStopped {
		j.giveTerminal()
	}
	j.state = jobRuns
	j.signalGroup(syscall.SIGCONT)
}

// giveTerminal gives the terminal to the job if dlock's group has it.
func (j *job) giveTerminal() {
	if j.terminal.ours() {
		j.terminal.give(j.pid)
		j.fore = true
	}
}

// forward handles a signal that dlock received. SIGUSR1 and SIGUSR2, which have no fixed
// meaning, go to the command alone. Signals of job control are handled here. All other
// signals go to the command's group.
func (j *job) forward(sig syscall.Signal) {
	if j.pid == 0 {
		j.early = append(j.early, sig)
		return
	}
	switch sig {
	case syscall.SIGUSR1, syscall.SIGUSR2:
		if j.state != jobEnded {
			_ = syscall.Kill(j.pid, sig)
		}
	case syscall.SIGCONT:
		j.resume()
	case syscall.SIGTTIN, syscall.SIGTTOU:
		if j.state == jobRuns {
			j.lend()
		}
	case syscall.SIGTSTP:
		// If the group is orphaned, a key has sent the signal, and no shell could continue dlock.
		if j.terminal == nil || !isOrphaned(j.group, j.parentOf) {
			j.stop(jobStopping)
		}
	default:
		j.handed = j.handed || sig == syscall.SIGINT
		j.signalGroup(sig)
	}
}

// stop stops the command. dlock stops when the command has stopped, at once if a signal from
// elsewhere has stopped it already. how is jobStopping or jobLending.
func (j *job) stop(how jobState) {
	j.ended() // it reads the reports of earlier stops
	wasStopped := isStopped(j.pid)
	switch j.state {
	case jobLending:
		j.state = how
	case jobRuns:
		j.state = how
		j.signalGroup(syscall.SIGTSTP)
		if wasStopped {
			j.stopDlock()
		}
	}
}

// lend gives the terminal to dlock's group, because a process of that group needs it, such as a
// pager behind a pipe. The command gets the terminal back when it needs it. If another job has the
// terminal, this whole job stops.
func (j *job) lend() {
	switch {
	case j.isInFront():
		j.terminal.take()
	case !j.terminal.ours():
		j.stop(jobLending)
		return
	}
	j.signalDlocksGroup(syscall.SIGCONT)
}

// wakeDlock continues dlock when it has sent an order to end the job. A stop of the job may have
// stopped dlock after that, but dlock sends SIGKILL after the grace, and frees the lock.
func (j *job) wakeDlock() {
	if j.state == jobStopped {
		showAs(shownName)
		j.signalDlocksGroup(syscall.SIGCONT)
	}
}

// terminate sends SIGTERM to all processes of the job, and SIGCONT, so that
// stopped processes receive it.
func (j *job) terminate() {
	j.wakeDlock()
	if j.state != jobEnded {
		j.state = jobEnding
	}
	// The group comes last: the children of a process that ends are not found for a moment. It
	// stands still meanwhile. A shell in it would begin the next step when a stray has ended.
	j.signalGroup(syscall.SIGSTOP)
	j.signalStrays(syscall.SIGTERM, syscall.SIGCONT)
	j.signalGroup(syscall.SIGTERM)
	j.signalGroup(syscall.SIGCONT)
}

// kill ends all processes of the job. The group comes first, because it takes no time. The caller
// repeats it.
func (j *job) kill() {
	j.signalGroup(syscall.SIGKILL)
	j.signalStrays(syscall.SIGKILL)
}

// signalGroup signals the group of the command, and reports whether it still exists. A group
// outlives its leader and keeps its number reserved. An empty group is never signalled again,
// because a new group may have its number.
func (j *job) signalGroup(sig syscall.Signal) bool {
	if !j.empty && j.pid != 0 {
		err := syscall.Kill(-j.pid, sig)
		j.empty = errors.Is(err, syscall.ESRCH)
	}
	return !j.empty
}

// signalStrays signals each process of the job that has left the group.
func (j *job) signalStrays(signals ...syscall.Signal) {
	for process := range j.strays() {
		for _, sig := range signals {
			_ = process.Signal(sig)
		}
	}
}

// strays yields the descendants that have left the group, as handlesOf does. A new group may have
// the number of a group that has no process any more.
func (j *job) strays() iter.Seq[*os.Process] {
	return func(yield func(*os.Process) bool) {
		begun := uptime()
		for process := range handlesOf(func(int) bool { return false }) {
			if j.progress != nil {
				j.progress(begun)
			}
			group, err := syscall.Getpgid(process.Pid)
			if err == nil && (group != j.pid || j.empty) && !yield(process) {
				return
			}
		}
	}
}

// handlesOf yields the descendants of this process. It leaves out the children for which isSpared
// returns true, with their descendants. On systems with process handles, each os.Process has one
// until the next step. A process is yielded as soon as it is found, because finding thousands takes
// long. Its own children are listed before that, because they may get another parent then.
func handlesOf(isSpared func(child int) bool) iter.Seq[*os.Process] {
	return func(yield func(*os.Process) bool) {
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return
		}
		for _, child := range childrenOf(self.Pid) {
			if !isSpared(child) && !visit(child, self, self, yield) {
				return
			}
		}
	}
}

// visit yields the process pid, which was a child of parent, and its descendants. It reports
// whether the loop over them goes on.
func visit(pid int, parent, self *os.Process, yield func(*os.Process) bool) bool {
	process, err := os.FindProcess(pid)
	if err != nil {
		return true
	}
	defer func() { _ = process.Release() }()
	if !isChild(process, parent, self) {
		return true
	}
	children := listChildren(pid)
	if !yield(process) {
		return false
	}
	for _, child := range children {
		if !visit(child, process, self, yield) {
			return false
		}
	}
	return true
}

// isChild reports whether process is a child of parent, or of self, which adopts it when its parent
// ends. Otherwise the handle of process may be for a newer process with the same number, which is
// no descendant. The number of a parent that has ended proves nothing.
func isChild(process, parent, self *os.Process) bool {
	switch parentOf(process.Pid) {
	case self.Pid:
		return true
	case parent.Pid:
		return !isGone(parent)
	}
	return false
}

// alive reports whether a process of the job is left. It checks the group even if a process outside
// of it is left: once the group is empty, its number may be used again.
func (j *job) alive() bool {
	if !j.ended() {
		return true
	}
	hasGroup := j.signalGroup(0)
	return hasGroup || !j.childless
}

// endedByKey reports whether the terminal may have ended the command, by a key or by a hang-up.
// Such a signal is for all of dlock's group.
func (j *job) endedByKey() bool {
	if !j.fore || !j.status.Signaled() {
		return false
	}
	switch j.status.Signal() {
	case syscall.SIGINT:
		return !j.handed && j.terminal.isWith(j.pid)
	case syscall.SIGQUIT:
		return j.terminal.isWith(j.pid)
	case syscall.SIGHUP:
		return j.terminal.isGone()
	}
	return false
}
