//go:build unix

package command

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// interrupts are the signals that end dlock while no command runs.
var interrupts = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// relayed are the further signals that dlock forwards to the guard.
var relayed = []os.Signal{
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGWINCH,
	syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
	syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGIO,
}

// After so many calls of kill, at intervals of lookInterval, dlock kills a guard that does not
// answer. The first limit is for a guard that is stopped, the second for a guard that may be busy.
const (
	takeOverStopped = 20
	takeOverSilent  = 150
)

// guard is dlock's side of the guard process, which is the parent of the command; see
// guardProcess. dlock writes orders to one pipe and reads answers from another one. If dlock
// ends, the guard ends the job. If the guard ends, dlock ends the job. The methods of guard
// are called from one goroutine.
type guard struct {
	cmd     *exec.Cmd
	orders  *os.File
	changes chan os.Signal // delivers after an answer
	reader  sync.WaitGroup
	ends    os.Signal // the last forwarded signal of interrupts, or nil
	before  []int     // descendants from before the start, as after exec in a shell

	mu     sync.Mutex
	kills  int // calls of kill since the last answer
	phase  guardPhase
	failed error // the reason why the command does not run
	isLate bool  // the guard ended the job at its deadline
	status syscall.WaitStatus
	known  bool // status is known
	isKey  bool // a key of the terminal may have sent the signal that ended the command
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

// startGuard starts a guard, which starts the command cmd. until is the end of the time for the
// job; zero means that there is no end. startGuard does not wait until the command runs. If the
// command does not run, failure returns the reason.
func startGuard(cmd *exec.Cmd, signals inbox, until time.Time) (*guard, error) {
	setAdopting(true)
	g := &guard{changes: make(chan os.Signal, 1), before: descendantsOf(os.Getpid())}
	signals.add(relayed)
	answers, err := g.start(cmd, until)
	if err != nil {
		err = fmt.Errorf("the guard process cannot be started: %w", err)
		return nil, &exitError{code: exitNoExec, err: err}
	}
	g.reader.Go(func() { g.read(answers) })
	return g, nil
}

// start starts the guard process with its ends of the pipes. All descriptors keep their numbers,
// including the descriptors of the files that the command inherits.
func (g *guard) start(cmd *exec.Cmd, until time.Time) (answers *os.File, err error) {
	program, err := ownProgram()
	if err != nil {
		return nil, err
	}
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
	deadline := time.Duration(0)
	if !until.IsZero() {
		deadline = uptime() + time.Until(until)
	}
	g.orders = ordersEnd
	g.cmd = &exec.Cmd{
		Path: program, Env: cmd.Env, Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr,
		Args: append([]string{
			os.Args[0], guardCommand,
			fmt.Sprint(inheritable(orders)), fmt.Sprint(inheritable(answersEnd)),
			fmt.Sprint(int64(deadline)), cmd.Path,
		}, cmd.Args...),
		// Signals for dlock's group, such as a key or kill -9 %1, must not reach the guard.
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := g.cmd.Start(); err != nil {
		_, _ = ordersEnd.Close(), answers.Close()
		return nil, err
	}
	return answers, nil
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

// catch receives these signals and drops them. Unlike an ignored signal, a caught signal
// has its default action in the programs that this process starts. A signal that was
// ignored before stays ignored.
func catch(signals ...os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// read handles the guard's answers until the guard has ended.
func (g *guard) read(answers *os.File) {
	defer answers.Close()
	for lines := bufio.NewScanner(answers); lines.Scan(); {
		word, value, _ := strings.Cut(lines.Text(), " ")
		g.note(word, value)
	}
	_ = g.cmd.Wait()
	g.note(answerLost, "")
}

// note records one answer.
func (g *guard) note(word, value string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch word {
	case answerStarted:
		g.phase = guardRuns
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
		g.phase, g.known = guardEnded, true
		_, _ = fmt.Sscan(value, &g.status, &g.isKey)
	case answerGone:
		g.phase = guardGone
	case answerLost:
		if g.phase != guardGone {
			g.phase = guardLost
		}
	}
	select {
	case g.changes <- syscall.SIGCHLD:
	default:
	}
}

// parseFailure returns the error that an answerFailed describes, with its exit code.
func parseFailure(value string) error {
	code, text, _ := strings.Cut(value, " ")
	number, _ := strconv.Atoi(code)
	if plain, err := strconv.Unquote(text); err == nil {
		text = plain
	}
	return &exitError{code: number, err: errors.New(text)}
}

// order sends an order. It does not wait for a guard that does not read: the pipe has room for
// thousands of orders.
func (g *guard) order(format string, args ...any) {
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

// close lets the guard end. With spare, the remaining processes of the job go on. Otherwise the
// guard goes on to end them, without dlock.
func (g *guard) close(spare bool) {
	setAdopting(false) // dlock does not adopt the remaining processes
	isDone := spare || g.now() == guardGone
	if isDone {
		g.order(orderDone)
	}
	_ = g.orders.Close()
	ended := make(chan struct{})
	go func() { g.reader.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(partingWait):
		if isDone { // the guard is stopped
			_ = g.cmd.Process.Kill()
			<-ended
		}
	}
	if t := openTerminal(syscall.Getpgrp()); g.now() == guardLost && t.isWith(0) {
		t.take() // a guard that was killed could not do it
		t.close()
	}
}

func (g *guard) now() guardPhase {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.phase
}

// changed delivers a value when the results of ended, late or alive may have changed.
func (g *guard) changed() <-chan os.Signal { return g.changes }

// ended reports whether the command has ended, or will never run.
func (g *guard) ended() bool { return g.now() > guardRuns }

// failure returns the reason why the command does not run, or nil.
func (g *guard) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

// late reports whether the guard ended the job at its deadline.
func (g *guard) late() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isLate
}

// alive reports whether a process of the job is left.
func (g *guard) alive() bool {
	switch g.now() {
	case guardGone:
		return false
	case guardLost:
		return len(g.orphans()) > 0 || !canListChildren() && hasChildren()
	}
	return true
}

// forward forwards a signal that dlock received.
func (g *guard) forward(sig os.Signal) {
	if slices.Contains(interrupts, sig) {
		g.ends = sig
	}
	g.order(orderSignal+" %d", sig)
}

// terminate sends SIGTERM to all processes of the job, and SIGCONT, so that
// stopped processes receive it.
func (g *guard) terminate() {
	g.order(orderTerminate)
	if g.now() == guardLost {
		signalEach(g.orphans(), syscall.SIGTERM)
		signalEach(g.orphans(), syscall.SIGCONT)
	}
}

// kill ends all processes of the job. The caller repeats it while a process is left. A guard that
// does not answer, because it is stopped, is killed. Then dlock ends the job itself.
func (g *guard) kill() {
	g.mu.Lock()
	g.kills++
	calls := g.kills
	g.mu.Unlock()
	switch {
	case g.now() == guardLost:
		signalEach(g.orphans(), syscall.SIGKILL)
	case calls > takeOverSilent, calls > takeOverStopped && isStopped(g.cmd.Process.Pid):
		_ = g.cmd.Process.Kill()
	default:
		g.order(orderKill)
	}
}

// hasChildren reports whether the process has any child. It reaps a child that has ended.
func hasChildren() bool {
	_, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
	return !errors.Is(err, syscall.ECHILD)
}

// orphans returns the processes of the job that a killed guard has left: all new children of dlock,
// and their descendants.
func (g *guard) orphans() (processes []*os.Process) {
	for _, child := range g.newChildren() {
		for _, pid := range append(descendantsOf(child), child) {
			if process, err := os.FindProcess(pid); err == nil {
				processes = append(processes, process)
			}
		}
	}
	return processes
}

// newChildren returns the children that dlock did not have before. It reaps ended children until
// there are none, because each may have left its own children to dlock.
func (g *guard) newChildren() []int {
	for {
		children := slices.DeleteFunc(childrenOf(os.Getpid()), func(pid int) bool {
			return slices.Contains(g.before, pid)
		})
		living := slices.DeleteFunc(slices.Clone(children), func(pid int) bool {
			got, _ := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			return got == pid
		})
		if len(living) == len(children) {
			return living
		}
	}
}

func signalEach(processes []*os.Process, sig syscall.Signal) {
	for _, process := range processes {
		_ = process.Signal(sig)
		_ = process.Release()
	}
}

// until sends the end of the lease to the guard. The guard ends the job then,
// whatever happens to dlock.
func (g *guard) until(end time.Time) {
	g.order(orderUntil+" %d", uptime()+time.Until(end))
}

// lost reports whether the guard was killed. interrupt is a signal that ends dlock as well, or
// nil: the last forwarded signal, or the signal that killed the guard. In the second case the
// guard did not have its own group yet. The signal was then for dlock's group, and dlock may
// not have received it so far.
func (g *guard) lost() (lost bool, interrupt os.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.phase != guardLost || g.ends != nil || g.cmd.ProcessState == nil {
		return g.phase == guardLost, g.ends
	}
	status := g.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() && slices.Contains(interrupts, os.Signal(status.Signal())) {
		return true, status.Signal()
	}
	return true, nil
}

// end returns the exit code of the command, and the signal that ended it, or 0. key is true if a
// key of the terminal may have sent that signal.
func (g *guard) end() (code int, sig syscall.Signal, key bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.phase == guardLost && !g.known:
		// It ended with its parent (prctl(2), PR_SET_PDEATHSIG).
		return exitSignal + int(syscall.SIGKILL), 0, false
	case g.status.Signaled():
		return exitSignal + int(g.status.Signal()), g.status.Signal(), g.isKey
	}
	return g.status.ExitStatus(), 0, false
}
