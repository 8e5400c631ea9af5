//go:build unix

package guard

import (
	"bufio"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Interrupts are the signals that end dlock while no command runs.
var Interrupts = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// Relayed are the further signals that dlock forwards to the guard.
var Relayed = []os.Signal{
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGWINCH,
	syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
	syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGIO,
}

// After so many calls of Kill, at intervals of lookInterval, dlock kills a guard that does not
// answer. The first limit is for a guard that a debugger has stopped, and the second for a guard
// that may be busy.
const (
	takeOverHalted = 20
	takeOverSilent = 150
)

// Guard is dlock's side of the guard process, which is the parent of the command. dlock writes
// orders to one pipe and reads answers from another one. If dlock ends, the guard ends the job. If
// the guard ends, dlock ends the job. The methods of Guard are called from one goroutine. None of
// them but Close blocks.
type Guard struct {
	process *os.Process
	orders  *os.File
	changes chan os.Signal // delivers after an answer
	reader  sync.WaitGroup
	ends    os.Signal     // the last forwarded signal of Interrupts, or nil
	before  []*os.Process // descendants from before the start, as after exec in a shell
	modes   *term.State   // of the terminal at the start; nil if unknown
	done    bool          // the guard has nothing to do any more
	isMute  bool          // dlock has killed the guard because it did not answer

	mu     sync.Mutex
	kills  int // calls of Kill since the last answer
	phase  guardPhase
	failed error // the reason why the command does not run
	isLate bool  // the guard ended the job at its deadline
	pid    int   // of the command, and of its group; 0 if unknown
	empty  bool  // the command's group has no process
	status syscall.WaitStatus
	known  bool               // status is known
	own    syscall.WaitStatus // of a guard that was killed
	isKey  bool               // a key of the terminal may have ended the command
}

// guardPhase is how far a job has come.
type guardPhase int

const (
	guardStarts guardPhase = iota // the guard has not reported yet that the command runs
	guardRuns                     // the command runs
	guardEnded                    // the command has ended; its other processes may still run
	guardGone                     // no process of the job is left
	guardLost                     // the guard was killed: dlock has to end the job
)

// Start starts a guard, which starts the command c. until is the end of the time for the job; zero
// means that there is no end. Start does not wait until the command runs. If the command does not
// run, Failure returns the reason. An error of Start is a *StartError.
func Start(c Command, until time.Time) (*Guard, error) {
	setAdopting(true)
	g := &Guard{changes: make(chan os.Signal, 1), modes: terminalModes()}
	// A process whose threads were looked up in /proc takes milliseconds longer to be reaped.
	if hasChildren() {
		g.before = presentDescendants()
	}
	started := make(chan error)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	g.reader.Go(func() {
		defer close(children)
		defer signal.Stop(children)
		// The system continues a stopped guard when the thread that has started it ends. The thread
		// has to live as long as dlock or the guard (go.dev/issue/27505).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		answers, err := g.start(c, until)
		started <- err
		if err == nil {
			g.reader.Go(func() { g.keepRunning(children) })
			g.read(answers)
		}
	})
	if err := <-started; err != nil {
		return nil, &StartError{
			Code: CodeNoExec, IsPassing: isPassing(err),
			text: fmt.Sprintf("the guard process cannot be started: %v", err),
		}
	}
	return g, nil
}

// keepRunning continues the guard when a signal has stopped it. A stopped guard could neither end
// the job nor report its end. SIGCHLD reports the stop, and SIGCONT does nothing to a guard that
// runs. Ctrl-Z does not stop the guard, which has its own group.
func (g *Guard) keepRunning(children <-chan os.Signal) {
	for range children {
		_ = g.process.Signal(syscall.SIGCONT)
	}
}

// start starts the guard process with its ends of the pipes. It is called on a locked thread. All
// descriptors keep their numbers, including the descriptors of the files that the command inherits.
// The words of the command go through a pipe, so that pkill -f with a word of the command does not
// find the guard. Its environment follows them, because the guard gets another one.
func (g *Guard) start(c Command, until time.Time) (answers *os.File, err error) {
	text := join(append([]string{c.Path}, c.Args...), c.Env)
	orders, ordersEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer orders.Close()
	answers, answersEnd, err := os.Pipe()
	if err != nil {
		_ = ordersEnd.Close()
		return nil, err
	}
	defer answersEnd.Close()
	words, wordsEnd, err := os.Pipe()
	if err != nil {
		_, _ = ordersEnd.Close(), answers.Close()
		return nil, err
	}
	defer words.Close()
	deadline := time.Duration(0)
	if !until.IsZero() {
		deadline = uptime() + time.Until(until)
	}
	g.orders = ordersEnd
	g.order(orderParent+" %d", os.Getppid())
	// Until the guard has its own group, a key could stop it, and dlock would wait in the fork.
	blocked := blockStops()
	defer unblock(blocked)
	args := []string{
		os.Args[0], Name,
		fmt.Sprint(inheritable(orders)), fmt.Sprint(inheritable(answersEnd)),
		fmt.Sprint(inheritable(words)), fmt.Sprint(int64(deadline)), fmt.Sprint(blocked),
	}
	g.process, err = os.StartProcess(c.Program, args, &os.ProcAttr{
		Env: guardEnv(c.Env, len(text)), Files: c.Files[:],
		// Signals for dlock's group, such as a key or kill -9 %1, must not reach the guard. A guard
		// that is stopped has to end the job when dlock is killed.
		Sys: attributes(syscall.SIGCONT),
	})
	if err != nil {
		_, _, _ = ordersEnd.Close(), answers.Close(), wordsEnd.Close()
		return nil, err
	}
	g.reader.Go(func() {
		_, _ = wordsEnd.Write(text)
		_ = wordsEnd.Close()
	})
	return answers, nil
}

// A guard collects no garbage before its memory is startMemory plus wordMemory for each byte of the
// command. Its start needs less: 5 MB, and at most 57 bytes for each byte, for the empty words of a
// script without #!.
const (
	startMemory = 16 << 20
	wordMemory  = 96
)

// guardEnv returns the environment of a guard whose command has size bytes of words. While the
// guard forks, one of its processors waits, and the other one watches the fork. A collection of
// garbage would stop both, so the guard must not collect any before the command runs, whatever env
// says. It could not turn that off by itself: package runtime/debug would be initialized after the
// client libraries.
func guardEnv(env []string, size int) []string {
	names := []string{"GOMAXPROCS", "GOGC", "GOMEMLIMIT"}
	others := slices.DeleteFunc(slices.Clone(env), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(names, name)
	})
	limit := fmt.Sprint("GOMEMLIMIT=", startMemory+wordMemory*size)
	return append(others, "GOMAXPROCS=2", "GOGC=off", limit)
}

// inheritable lets the next process inherit a file, and returns its descriptor.
func inheritable(file *os.File) (fd int) {
	raw, err := file.SyscallConn()
	if err == nil {
		_ = raw.Control(func(f uintptr) {
			fd = int(f)
			_, _ = unix.FcntlInt(f, unix.F_SETFD, 0)
		})
	}
	return fd
}

// Catch receives these signals and drops them. Unlike an ignored signal, a caught signal
// has its default action in the programs that this process starts. A signal that was
// ignored before stays ignored.
func Catch(signals ...os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// read handles the guard's answers until the guard has ended.
func (g *Guard) read(answers *os.File) {
	defer answers.Close()
	for lines := bufio.NewScanner(answers); lines.Scan(); {
		word, value, _ := strings.Cut(lines.Text(), " ")
		g.note(word, value)
	}
	if g.now() != guardStarts { // else Lost needs the signal that has killed the guard
		g.note(answerLost, "") // a debugger can delay the result of Wait
	}
	state, err := g.process.Wait()
	if err == nil {
		g.mu.Lock()
		g.own = state.Sys().(syscall.WaitStatus)
		g.mu.Unlock()
	}
	g.note(answerLost, "")
}

// note records one answer.
func (g *Guard) note(word, value string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch word {
	case answerStarted:
		g.phase = guardRuns
		g.pid, _ = strconv.Atoi(value)
	case answerFailed:
		g.phase, g.failed = guardGone, parseFailure(value)
	case answerLate:
		g.isLate = true
		if g.phase == guardStarts {
			g.phase = guardGone
		}
	case answerKilling:
		g.kills = 0
	case answerEnded:
		var isLeft bool
		_, _ = fmt.Sscan(value, &g.status, &g.isKey, &isLeft)
		g.phase, g.known = guardEnded, true
		if !isLeft {
			g.phase = guardGone
		}
	case answerEmpty:
		g.empty = true
	case answerGone:
		g.phase = guardGone
	case answerLost:
		if g.phase == guardRuns && g.pid != 0 {
			// The command ends with its guard. On Linux the kernel has seen to it already.
			_ = syscall.Kill(g.pid, syscall.SIGKILL)
		}
		if g.phase != guardGone {
			g.phase = guardLost
		}
	}
	select {
	case g.changes <- syscall.SIGCHLD:
	default:
	}
}

// failure returns the value of an answerFailed.
func failure(e *StartError) string { return fmt.Sprintf("%d %t %q", e.Code, e.IsPassing, e.text) }

// parseFailure returns the error that an answerFailed describes, with its exit code.
func parseFailure(value string) error {
	failed := &StartError{}
	_, _ = fmt.Sscanf(value, "%d %t %q", &failed.Code, &failed.IsPassing, &failed.text)
	return failed
}

// order sends an order. It does not wait for a guard that does not read: the pipe has room for
// thousands of orders.
func (g *Guard) order(format string, args ...any) {
	pipe, err := g.orders.SyscallConn()
	if err != nil {
		return
	}
	line := fmt.Appendf(nil, format+"\n", args...)
	_ = pipe.Write(func(fd uintptr) bool {
		_ = ignoreInterrupts(func() error { _, err := unix.Write(int(fd), line); return err })
		return true // also if the pipe is full
	})
}

// ignoreInterrupts repeats a system call while signals interrupt it.
func ignoreInterrupts(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// Leave lets the guard end, and does not wait for its end. With spare, the remaining processes of
// the job go on. Otherwise the guard goes on to end them, without dlock.
func (g *Guard) Leave(spare bool) {
	if g.now() == guardLost { // the guard could not give the terminal back
		g.takeTerminal()
	}
	setAdopting(false) // dlock does not adopt the remaining processes
	g.done = spare || g.now() == guardGone
	if g.done {
		g.order(orderDone)
	}
	_ = g.orders.Close()
}

// takeTerminal takes the terminal back from the processes of the job. The command ends with its
// guard, but its group exists until dlock has reaped it, and as long as spared processes run.
func (g *Guard) takeTerminal() {
	t := openTerminal(syscall.Getpgrp())
	defer t.close()
	front := t.front()
	isJobs := slices.ContainsFunc(g.descendants(), func(pid int) bool {
		group, err := syscall.Getpgid(pid)
		return err == nil && group == front
	})
	if isJobs || g.pid != 0 && g.pid == front || t.isWith(0) {
		t.take()
		t.modes = g.modes
		t.restore()
	}
}

// Close waits for the end of a guard after Leave, for at most wait.
func (g *Guard) Close(wait time.Duration) {
	ended := make(chan struct{})
	go func() { g.reader.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(wait):
		if g.done { // the guard is stopped
			_ = g.process.Kill()
			<-ended
		}
	}
}

func (g *Guard) now() guardPhase {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.phase
}

// Changed delivers a value when the results of Ended, Late or Alive may have changed.
func (g *Guard) Changed() <-chan os.Signal { return g.changes }

// Ended reports whether the command has ended, or will never run.
func (g *Guard) Ended() bool { return g.now() > guardRuns }

// Abandoned reports whether the guard was killed before it reported the end of the command.
func (g *Guard) Abandoned() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.phase == guardLost && !g.known
}

// Failure returns the reason why the command does not run, a *StartError, or nil.
func (g *Guard) Failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

// Late reports whether the guard ended the job at its deadline.
func (g *Guard) Late() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isLate
}

// Alive reports whether a process of the job is left.
func (g *Guard) Alive() bool {
	switch g.now() {
	case guardGone:
		return false
	case guardLost:
		hasOrphan, hasGroup := g.hasOrphan(), g.signalGroup(0) // as in job.alive
		return hasOrphan || hasGroup || !canListChildren() && hasChildren()
	}
	return true
}

// Forward forwards a signal that dlock received.
func (g *Guard) Forward(sig os.Signal) {
	if slices.Contains(Interrupts, sig) {
		g.ends = sig
	}
	g.order(orderSignal+" %d", sig)
}

// Terminate sends SIGTERM to all processes of the job, and SIGCONT, so that
// stopped processes receive it.
func (g *Guard) Terminate() {
	g.order(orderTerminate)
	if g.now() == guardLost {
		g.signalLeft(syscall.SIGTERM, syscall.SIGCONT)
	}
}

// signalLeft signals all processes of the job that a killed guard has left. The group reaches
// processes that the system does not list.
func (g *Guard) signalLeft(signals ...syscall.Signal) {
	for process := range g.orphans() {
		for _, sig := range signals {
			_ = process.Signal(sig)
		}
	}
	for _, sig := range signals {
		g.signalGroup(sig)
	}
}

// signalGroup signals the command's group after the loss of the guard, and reports whether the
// group still exists. As in the guard, an empty group is never signalled again.
func (g *Guard) signalGroup(sig syscall.Signal) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.empty && g.pid != 0 {
		err := syscall.Kill(-g.pid, sig)
		g.empty = errors.Is(err, syscall.ESRCH)
	}
	return !g.empty && g.pid != 0
}

// Kill ends all processes of the job. The caller repeats it while a process is left. A guard that
// does not answer is killed. Then dlock ends the job itself.
func (g *Guard) Kill() {
	g.mu.Lock()
	g.kills++
	calls := g.kills
	g.mu.Unlock()
	switch {
	case g.now() == guardLost:
		g.signalLeft(syscall.SIGKILL)
	case calls > takeOverSilent, calls > takeOverHalted && isHalted(g.process.Pid):
		g.isMute = true
		_ = g.process.Kill()
	default:
		g.order(orderKill)
	}
}

// hasChildren reports whether the process has any child. It reaps a child that has ended.
func hasChildren() bool {
	_, err := syscall.Wait4(-1, nil, syscall.WNOHANG|anyChild, nil)
	return !errors.Is(err, syscall.ECHILD)
}

// orphans yields the processes of the job that a killed guard has left, as handlesOf does. Before
// that it reaps the processes that have ended.
func (g *Guard) orphans() iter.Seq[*os.Process] {
	g.reap()
	return handlesOf(g.isFromBefore)
}

func (g *Guard) hasOrphan() bool {
	for range g.orphans() {
		return true
	}
	return false
}

// presentDescendants returns the present descendants of this process.
func presentDescendants() (processes []*os.Process) {
	for process := range handlesOf(func(int) bool { return false }) {
		same, err := os.FindProcess(process.Pid) // process has a handle for this step only
		if err == nil && !isGone(process) {
			processes = append(processes, same)
		}
	}
	return processes
}

// isGone reports whether a process has ended and was waited for. Its number may be used again.
func isGone(p *os.Process) bool {
	return errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// descendants returns all new children of dlock, and their descendants.
func (g *Guard) descendants() (pids []int) {
	for _, child := range g.newChildren() {
		pids = append(append(pids, descendantsOf(child)...), child)
	}
	return pids
}

// newChildren returns the children that dlock did not have before.
func (g *Guard) newChildren() []int {
	return slices.DeleteFunc(childrenOf(os.Getpid()), g.isFromBefore)
}

// isFromBefore reports whether a process is from before the start. When such a process has ended, a
// process of the job may get its number.
func (g *Guard) isFromBefore(pid int) bool {
	return slices.ContainsFunc(g.before, func(p *os.Process) bool {
		return p.Pid == pid && !isGone(p)
	})
}

// reap reaps new children that have ended until there are none, because each may have left its own
// children to dlock.
func (g *Guard) reap() {
	for hasReaped := true; hasReaped; {
		hasReaped = false
		for _, child := range g.newChildren() {
			got, _ := syscall.Wait4(child, nil, syscall.WNOHANG|anyChild, nil)
			hasReaped = hasReaped || got == child
		}
		if g.pid != 0 { // children of the group may not be listed
			got, _ := syscall.Wait4(-g.pid, nil, syscall.WNOHANG|anyChild, nil)
			hasReaped = hasReaped || got > 0
		}
	}
}

// Until sends the end of the lease to the guard. The guard ends the job then,
// whatever happens to dlock.
func (g *Guard) Until(end time.Time) {
	g.order(orderUntil+" %d", uptime()+time.Until(end))
}

// Mute reports whether dlock has killed the guard because it did not answer.
func (g *Guard) Mute() bool { return g.isMute }

// Lost reports whether the guard was killed. interrupt is a signal that ends dlock as well, or
// nil: the last forwarded signal, or the signal that killed the guard. In the second case the
// guard did not have its own group yet. The signal was then for dlock's group, and dlock may
// not have received it so far.
func (g *Guard) Lost() (lost bool, interrupt os.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.phase != guardLost || g.ends != nil {
		return g.phase == guardLost, g.ends
	}
	if g.own.Signaled() && slices.Contains(Interrupts, os.Signal(g.own.Signal())) {
		return true, g.own.Signal()
	}
	return true, nil
}

// End returns the exit code of the command, or the signal that ended it. key is true if a key of
// the terminal may have sent that signal.
func (g *Guard) End() (code int, sig syscall.Signal, key bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.phase == guardLost && !g.known:
		return 0, syscall.SIGKILL, false // it ended with its guard
	case g.status.Signaled():
		return 0, g.status.Signal(), g.isKey
	}
	return g.status.ExitStatus(), 0, false
}

// Help is the part of the help about the end of COMMAND, and about the terminal.
const Help = `
The lock is renewed while COMMAND runs. If it cannot be renewed, COMMAND and all
its processes get SIGTERM, and SIGKILL after --grace. They have ended before the
lock can pass to another holder. If the lock is broken, or if a lock with
lock=session loses its connection, the next holder has it at once; SIGTERM comes
as soon as dlock notices. A second process, the guard, is
the parent of COMMAND. It kills the job at the end of the lease if dlock is
stopped, and at once if dlock is killed. Processes of other users are not ended.

Processes that COMMAND leaves behind are ended as well, before the lock is freed.
With -o they go on without the lock.

COMMAND runs in its own process group, in the foreground of the terminal if dlock
was there: Ctrl-C, Ctrl-Z and fg work as without dlock, and COMMAND may ask for a
password. dlock forwards its signals to the group, SIGUSR1 and SIGUSR2 to COMMAND
alone. If SIGINT, SIGTERM or SIGHUP ends COMMAND, dlock ends by the same signal,
and a loop around dlock ends, too.
` + limits
