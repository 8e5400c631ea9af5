//go:build unix

package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Name is the first argument of a guard. The other arguments are the descriptors of its pipes and
// the deadline. The third pipe has the path, the words and the environment of the command.
const Name = "guard"

// shownName is the name of a guard in ps. It is not dlock, so that killall dlock spares the guard.
// The guard of a nested dlock shows askingName while its job is stopped and needs the terminal, so
// that the guard of the outer dlock finds it.
const (
	shownName  = "lease-guard"
	askingName = "lease-guard-tty" // no longer: Linux shows 15 bytes
)

// usage is the exit code of a guard that a user started (sysexits(3), EX_USAGE).
const usage = 64

// init makes the process a guard if it was started as one. It does not leave this to the main
// function: before main, the inits of all client libraries would run. They take longer than the
// rest of the guard's start, and their memory would stay for as long as the command runs. This
// package imports little, so that the program initializes it early: by import path, and after its
// imports (The Go Programming Language Specification, Package initialization).
func init() {
	if len(os.Args) > 1 && os.Args[1] == Name {
		os.Exit(guardMain(os.Args[2:]))
	}
}

// Orders of dlock, and answers of the guard. Each is a line.
const (
	orderParent    = "parent" // the number of dlock's parent
	orderUntil     = "until"  // a deadline, in nanoseconds of uptime
	orderSignal    = "signal" // the number of a signal that dlock received
	orderTerminate = "terminate"
	orderKill      = "kill" // repeated until no process is left
	orderDone      = "done" // the guard ends and leaves the remaining processes alone

	answerStarted = "started" // the number of the command and of its group
	answerFailed  = "failed"  // exit code, whether it passes, quoted text: the command does not run
	answerLate    = "late"    // the deadline is over
	answerKilling = "killing" // to each order to kill
	answerEnded   = "ended"   // wait status of the command, whether a key may have ended it, and
	//                           whether a process of the job is left
	answerEmpty = "empty" // no process of the command's group is left, but another process is
	answerGone  = "gone"  // no process of the job is left
	answerLost  = "lost"  // never sent: dlock records it when the guard has ended
)

const (
	// endless is the duration of a timer that is not set.
	endless = time.Duration(math.MaxInt64)
	// clockInterval is how often the guard reads the clock. The clock goes on while the machine
	// sleeps, a timer does not.
	clockInterval = time.Second
	// rehearseTime is the longest time before the deadline at which the guard rehearses. No job
	// takes as long to end. A hold without renewals, as on file:, can be much longer.
	rehearseTime = time.Minute
	// rehearseInterval is the shortest time between two rehearsals.
	rehearseInterval = time.Second
	// assureInterval is how often a guard that is busy with many processes answers dlock. It is
	// much shorter than takeOverSilent.
	assureInterval = 200 * time.Millisecond
	// leadFactor is how much longer the end of a job takes than its rehearsal.
	leadFactor = 4
	// firstPause is the pause between the first two SIGCONT to a job that is being ended. Each next
	// pause is pauseFactor times as long.
	firstPause  = 10 * time.Millisecond
	pauseFactor = 4
	// settleTime is how long after a key a process may still stop.
	settleTime = 2 * time.Second
)

// clock reads a clock of the system. It returns 0 if there is no such clock: the guard
// then ends the job too late.
func clock(id int32) time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(id, &now)
	return time.Duration(now.Nano())
}

// guardProcess is the state of a guard. The guard is the parent of the command. On Linux it is also
// the parent of all orphans among the processes of the command. So no process can leave the job,
// whatever it does to its group, its session or its environment. The guard ends the job on an order
// of dlock, when dlock ends, and when the deadline is over.
type guardProcess struct {
	orders   *os.File
	answers  *os.File
	pending  []byte // the beginning of an incomplete order
	buf      [4096]byte
	blocked  int64 // the signals that dlock has blocked for the start of the guard
	deadline time.Duration
	term     time.Duration // from the order that has set the deadline until the deadline
	lead     time.Duration // how long before the deadline the guard begins to end the job
	timer    *time.Timer
	look     *time.Ticker
	job      *job
	phase    guardPhase
	dlock    dlockState
	isKiller bool // the guard sends SIGKILL until no process is left
	isEmpty  bool // answerEmpty was sent

	pause      time.Duration // before the next SIGCONT to a job that is being ended; 0 without one
	continueAt time.Duration // when the guard sends it

	rehearsed time.Duration // when the last rehearsal began
	answered  time.Duration // when the guard sent its last answer
}

type dlockState int

const (
	dlockRuns dlockState = iota
	dlockDone            // dlock needs the guard no longer
	dlockDead            // dlock has ended without orderDone
)

// guardMain is the main function of a guard process. It returns the exit code.
func guardMain(args []string) int {
	// The system ends the command when the thread that has started it ends (go.dev/issue/27505).
	runtime.LockOSThread()
	p, words, env, err := newGuardProcess(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "dlock: guard is an internal command of dlock: %v\n", err)
		return usage
	}
	showAs(shownName)
	if len(words) > 1 { // else dlock has ended
		p.run(Command{Path: words[0], Args: words[1:], Env: env})
	}
	return 0
}

// newGuardProcess returns a guard, with the path, the words and the environment of its command.
// There are no words if dlock ended before it had sent all of this.
func newGuardProcess(args []string) (_ *guardProcess, words, env []string, _ error) {
	var numbers [5]int64
	if len(args) != len(numbers) {
		return nil, nil, nil, errors.New("too few arguments")
	}
	for i := range numbers {
		var err error
		if numbers[i], err = strconv.ParseInt(args[i], 10, 64); err != nil {
			return nil, nil, nil, errors.New("an argument is no number") // it may be a URL
		}
	}
	p := &guardProcess{
		deadline: time.Duration(numbers[3]),
		blocked:  numbers[4],
		timer:    time.NewTimer(endless),
		look:     time.NewTicker(endless),
	}
	var command *os.File
	for i, file := range []**os.File{&p.orders, &p.answers, &command} {
		fd := int(numbers[i])
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, nil, nil, err
		}
		unix.CloseOnExec(fd)
		*file = os.NewFile(uintptr(fd), Name)
	}
	defer command.Close()
	text, err := io.ReadAll(command)
	words, env = split(text)
	return p, words, env, err
}

// join returns the bytes of words and env, which have no NUL, so that split finds out whether all
// of them have arrived.
func join(words, env []string) []byte {
	text := fmt.Appendf(nil, "%d %d\x00", len(words), len(env))
	for _, word := range slices.Concat(words, env) {
		text = append(append(text, word...), 0)
	}
	return text
}

// split is the inverse of join. It returns nil if the end is missing.
func split(text []byte) (words, env []string) {
	fields := strings.Split(string(text), "\x00")
	var n, m int
	if _, err := fmt.Sscan(fields[0], &n, &m); err != nil || len(fields) != n+m+2 {
		return nil, nil
	}
	fields = fields[1 : n+m+1]
	return fields[:n:n], fields[n:]
}

// run starts the command, and returns when neither dlock nor the job needs the guard any more.
func (p *guardProcess) run(command Command) {
	p.job = newJob(command, os.Getppid(), p.look)
	defer p.job.close()
	unblock(p.blocked) // the guard catches them now, and the command must not inherit the block
	switch p.read(); {
	case p.dlock != dlockRuns:
		return
	case p.isKiller:
		p.answer(answerGone)
		return
	case p.isLate():
		p.answer(answerLate)
		return
	}
	if failed := p.job.start(); failed != nil {
		p.answer("%s %s", answerFailed, failure(failed))
		return
	}
	p.phase = guardRuns
	p.answer("%s %d", answerStarted, p.job.pid)
	p.job.progress = p.assure
	p.newLead()
	readable := make(chan struct{})
	go p.poll(readable) // until the process ends
	for p.dlock == dlockRuns || p.dlock == dlockDead && p.phase != guardGone {
		if p.dlock == dlockDead {
			readable = nil
		}
		select {
		case <-readable:
			p.read()
		case <-p.timer.C:
			p.lookAtClock()
		case <-p.job.children:
		case <-p.look.C:
			switch {
			case p.isKiller:
				p.job.kill()
			case p.phase == guardRuns:
				p.job.continueLate()
			}
		}
		p.report()
	}
}

// poll delivers a value whenever orders can be read. It does not read them: after a stop, the guard
// itself reads all orders that have arrived before it checks the clock.
func (p *guardProcess) poll(readable chan<- struct{}) {
	pipe, err := p.orders.SyscallConn()
	for err == nil {
		err = pipe.Read(func(fd uintptr) bool {
			state := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(state, 0)
			return err == nil && n > 0
		})
		readable <- struct{}{}
	}
}

// read executes all orders that have arrived.
func (p *guardProcess) read() {
	pipe, err := p.orders.SyscallConn()
	if err != nil {
		return
	}
	for {
		var n int
		_ = pipe.Control(func(fd uintptr) {
			err = ignoreInterrupts(func() (err error) {
				n, err = unix.Read(int(fd), p.buf[:])
				return err
			})
		})
		switch {
		case err != nil: // no more orders have arrived
			return
		case n == 0:
			if p.dlock == dlockRuns {
				p.dlock = dlockDead
				p.job.giveTerminalBack() // a script goes on at once
				p.kill()
			}
			return
		}
		p.pending = append(p.pending, p.buf[:n]...)
		for {
			line, rest, ok := bytes.Cut(p.pending, []byte("\n"))
			if !ok {
				break
			}
			p.pending = rest
			p.follow(string(line))
		}
	}
}

// follow executes one order.
func (p *guardProcess) follow(order string) {
	word, value, _ := strings.Cut(order, " ")
	number, _ := strconv.ParseInt(value, 10, 64)
	switch word {
	case orderParent:
		p.job.parent = int(number)
	case orderUntil:
		p.deadline = time.Duration(number)
		p.newLead()
	case orderSignal:
		p.job.forward(syscall.Signal(number))
	case orderTerminate:
		if p.phase == guardStarts {
			p.isKiller = true // the command must not start
		}
		if !p.isKiller {
			p.terminate()
		}
	case orderKill:
		p.answer(answerKilling)
		p.job.wakeDlock()
		if !p.isKiller { // otherwise the ticker repeats it
			p.kill()
		}
	case orderDone:
		p.dlock = dlockDone
	}
}

// terminate sends SIGTERM to the job, and plans the next SIGCONT.
func (p *guardProcess) terminate() {
	p.job.terminate()
	p.planContinue(firstPause)
}

// planContinue plans a SIGCONT to the job after a pause. A process that finds its child stopped may
// stop itself as well, as su does, and it may do so after the SIGCONT of terminate.
func (p *guardProcess) planContinue(pause time.Duration) {
	p.pause, p.continueAt = pause, uptime()+pause
	p.setTimer()
}

// kill ends the job. It is repeated until no process is left, because a process may start another
// one before it is killed. The guard has to be faster than the processes of the job.
func (p *guardProcess) kill() {
	p.isKiller = true
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20) // most users may not
	p.look.Reset(LookInterval)
	p.job.kill()
}

// lookAtClock ends the job if its time is over, and no order that has arrived moves the deadline.
func (p *guardProcess) lookAtClock() {
	if p.rehearsalIn() <= 0 && !p.isKiller {
		p.rehearse()
	}
	if p.pause > 0 && uptime() >= p.continueAt && !p.isKiller {
		p.continueJob()
		p.planContinue(pauseFactor * p.pause)
	}
	if p.read(); p.isLate() && !p.isKiller {
		p.answer(answerLate)
		p.kill()
	}
	p.setTimer()
}

// continueJob sends SIGCONT to all processes of the job, but to none after the deadline.
func (p *guardProcess) continueJob() {
	for process := range p.job.strays() {
		if p.mustEnd() {
			return
		}
		_ = process.Signal(syscall.SIGCONT)
	}
	if !p.mustEnd() {
		p.job.signalGroup(syscall.SIGCONT)
	}
}

// mustEnd follows the orders that have arrived, and then reports whether the job has to end now.
func (p *guardProcess) mustEnd() bool {
	p.read()
	return p.isLate() || p.isKiller
}

// isLate reports whether the guard has to end the job now, so that it has ended at the deadline.
func (p *guardProcess) isLate() bool {
	return p.deadline != 0 && uptime() >= p.deadline-p.lead
}

func (p *guardProcess) setTimer() {
	if p.isKiller {
		return
	}
	next := endless
	if p.deadline != 0 {
		next = min(p.deadline-p.lead-uptime(), clockInterval)
	}
	if rehearsal := p.rehearsalIn(); rehearsal > 0 {
		next = min(next, rehearsal)
	}
	if p.pause > 0 {
		next = min(next, p.continueAt-uptime())
	}
	p.timer.Reset(next)
}

// newLead begins a new term.
func (p *guardProcess) newLead() {
	p.term, p.lead, p.rehearsed = max(p.deadline-uptime(), 0), 0, 0
	p.setTimer()
}

// rehearsalIn returns how long it is until the next rehearsal. The guard rehearses only shortly
// before the deadline, and while a renewal is overdue: dlock renews the lease after a third of its
// term.
func (p *guardProcess) rehearsalIn() time.Duration {
	if p.deadline == 0 {
		return endless
	}
	now := uptime()
	first := p.deadline - min(p.term/8*5, rehearseTime)
	return max(first-now, p.rehearsed+rehearseInterval-now)
}

// rehearse finds all processes of the job, as kill does, but ends none. So the guard finds out how
// long the end of the job will take. It stops when the job has to end at once. It follows orders
// meanwhile: a renewal begins a new term.
func (p *guardProcess) rehearse() {
	begun := uptime()
	p.rehearsed = begun
	for process := range handlesOf(func(int) bool { return false }) {
		_ = process.Signal(syscall.Signal(0))
		p.lead = max(p.lead, leadFor(uptime()-begun, p.term))
		if p.mustEnd() {
			return
		}
	}
}

// leadFor returns how long the end of a job takes at most if its rehearsal took walk. A killed
// process takes more time than the signal that kills it. The command keeps half of its term.
func leadFor(walk, term time.Duration) time.Duration { return min(leadFactor*walk, term/2) }

// report sends an answer for each change of the job. If no process is left when the command has
// ended, as usual, one answer says both, so that dlock does not end processes that do not exist.
func (p *guardProcess) report() {
	switch {
	case p.phase == guardRuns && p.job.ended():
		key := p.job.endedByKey()
		p.job.giveTerminalBack()
		p.phase = guardEnded
		isLeft := p.job.alive()
		if isLeft {
			p.look.Reset(LookInterval)
		} else {
			p.phase = guardGone
		}
		p.answer("%s %d %t %t", answerEnded, p.job.status, key, isLeft)
	case p.phase == guardEnded && !p.job.alive():
		p.phase = guardGone
		p.look.Stop()
		p.answer(answerGone)
	}
	if p.phase == guardEnded && p.job.empty && !p.isEmpty {
		p.isEmpty = true
		p.answer(answerEmpty)
	}
}

// assure answers dlock while a loop over many processes, which has begun at begun, keeps the guard
// from reading its orders. Otherwise dlock would kill the guard.
func (p *guardProcess) assure(begun time.Duration) {
	if uptime()-max(begun, p.answered) >= assureInterval {
		p.answer(answerKilling)
	}
}

// answer sends an answer. It waits for a dlock that does not read for one second at most.
func (p *guardProcess) answer(format string, args ...any) {
	p.answered = uptime()
	_ = p.answers.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(p.answers, format+"\n", args...)
}
