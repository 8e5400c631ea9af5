package guard

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A child whose end sends no signal is a child from before the start as well. Otherwise dlock ends
// it when its guard was killed.
func TestSilentChildIsAChild(t *testing.T) {
	if hasChildren() {
		t.Fatal("this process has a child already")
	}
	pid := cloneSilently()
	if pid < 0 {
		t.Fatal("clone failed")
	}
	found := hasChildren()
	_ = syscall.Kill(pid, syscall.SIGKILL)
	_, _ = syscall.Wait4(pid, nil, unix.WALL, nil)
	if !found {
		t.Error("a child that sends no signal at its end was not found")
	}
}

// startSleepers starts processes that have left the group of this one.
func startSleepers(t *testing.T, n int) (pids []int) {
	t.Helper()
	for range n {
		cmd := exec.CommandContext(t.Context(), "sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		pids = append(pids, cmd.Process.Pid)
	}
	return pids
}

// A handle is for a descendant, and not for a newer process that has the number of one.
func TestHandlesAreForDescendants(t *testing.T) {
	pids := startSleepers(t, 2)
	var found []int
	for process := range handlesOf(func(pid int) bool { return pid == pids[1] }) {
		found = append(found, process.Pid)
	}
	if !slices.Contains(found, pids[0]) || slices.Contains(found, pids[1]) {
		t.Errorf("handlesOf yields %v, want %d but not %d", found, pids[0], pids[1])
	}
	self, _ := os.FindProcess(os.Getpid())
	child, _ := os.FindProcess(pids[0])
	stranger, _ := os.FindProcess(os.Getppid())
	ended := endedProcess(t)
	ended.Pid = os.Getpid()
	for name, row := range map[string]struct {
		process, parent, self *os.Process
		want                  bool
	}{
		"a child":                        {child, self, stranger, true},
		"a child that was adopted":       {child, stranger, self, true},
		"a newer process":                {stranger, child, self, false},
		"a child of a newer process":     {child, ended, stranger, false},
		"a child of another process":     {child, stranger, stranger, false},
		"a process that has ended since": {endedProcess(t), self, self, false},
	} {
		if got := isChild(row.process, row.parent, row.self); got != row.want {
			t.Errorf("%s: isChild returns %v", name, got)
		}
	}
}

// endedProcess returns a process that has ended.
func endedProcess(t *testing.T) *os.Process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	process, err := os.FindProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return process
}

// The guard begins the earlier to end a job, the more processes have left its group. It rehearses
// the end when a renewal is overdue. A renewal begins a new term without a lead.
func TestLeadFollowsTheSizeOfTheJob(t *testing.T) {
	orders := openOrders(t)
	const term, overdue = time.Hour, rehearseTime / 2
	leadOf := func(remaining time.Duration) time.Duration {
		p := &guardProcess{
			orders: orders, timer: time.NewTimer(endless), look: time.NewTicker(endless),
			job: &job{}, term: term, deadline: uptime() + remaining,
		}
		p.lookAtClock()
		if p.isLate() {
			t.Fatal("the job has to end at once")
		}
		lead := p.lead
		if p.deadline = uptime() + lead/2; lead > 0 && !p.isLate() {
			t.Errorf("the guard begins after half of its lead of %v", lead)
		}
		if p.follow(orderUntil + " 1"); p.lead != 0 {
			t.Errorf("a renewal leaves a lead of %v", p.lead)
		}
		return lead
	}
	startSleepers(t, 1)
	few := leadOf(overdue)
	for range 50 { // a walk during which the machine stands still takes longer
		few = min(few, leadOf(overdue))
	}
	startSleepers(t, 200)
	many := leadOf(overdue)
	if few <= 0 || many < 10*few {
		t.Errorf("the lead is %v for a process, and %v for 201", few, many)
	}
}

// A guard that was stopped beyond its deadline follows the orders that have arrived meanwhile, also
// if its last rehearsal was just before the stop.
func TestOrdersComeBeforeTheClock(t *testing.T) {
	now := uptime()
	orders := openOrders(t, fmt.Sprintf("%s %d\n", orderUntil, now+time.Hour))
	p := &guardProcess{
		orders: orders, timer: time.NewTimer(endless), look: time.NewTicker(endless),
		job: &job{}, term: time.Hour, deadline: now - time.Second, rehearsed: now,
	}
	if p.lookAtClock(); p.isKiller {
		t.Error("the guard ends a job whose lease was renewed")
	}
}

// The guard rehearses while a renewal is overdue, but not long before the deadline. The term of a
// lock of file: can be a century.
func TestRehearsalsBeginLate(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	for _, row := range []struct{ term, remaining, most time.Duration }{
		{8 * time.Second, 8 * time.Second, 3 * time.Second},
		{8 * time.Second, 4 * time.Second, 0},
		{time.Hour, 2 * rehearseTime, rehearseTime},
		{time.Hour, rehearseTime / 2, 0},
		{century, century, century - rehearseTime},
	} {
		now := uptime()
		p := &guardProcess{
			term: row.term, deadline: now + row.remaining, rehearsed: now - rehearseInterval,
		}
		got := p.rehearsalIn()
		// The test needs time as well.
		if least := row.most - (uptime() - now); got > row.most || got < least {
			t.Errorf("%v before the end of a term of %v, the next rehearsal is in %v, want %v",
				row.remaining, row.term, got, row.most)
		}
	}
}

// SIGTERM reaches the processes outside of the group before their parents in the group can end.
// Such a parent would leave them to the guard, which has listed its children already.
func TestStraysAreTerminatedFirst(t *testing.T) {
	startSleepers(t, 1)
	leader := startDeafSleeper(t)
	hasStray := false
	j := &job{pid: leader, progress: func(time.Duration) {
		hasStray = true
		awaitState(t, leader, "T")
		if isTermPending(t, leader) {
			t.Error("the group has received SIGTERM before a process outside of it")
		}
	}}
	j.terminate()
	if !hasStray || !isTermPending(t, leader) {
		t.Errorf("a process outside of the group was found: %v; the group received SIGTERM: %v",
			hasStray, isTermPending(t, leader))
	}
}

// A job that is being ended goes on until its deadline, and not after it.
func TestStoppedProcessesRestAfterTheDeadline(t *testing.T) {
	leader := startDeafSleeper(t)
	p := &guardProcess{orders: openOrders(t), job: &job{pid: leader}}
	pids := []int{leader}
	for _, strays := range []int{0, 1} {
		pids = append(pids, startSleepers(t, strays)...)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			awaitState(t, pid, "T")
		}
		p.deadline = uptime() - time.Millisecond
		p.continueJob()
		for _, pid := range pids {
			if !isStopped(pid) {
				t.Errorf("with %d strays, a process was continued after the deadline", strays)
			}
		}
		p.deadline = uptime() + time.Hour
		p.continueJob()
		for _, pid := range pids {
			awaitState(t, pid, "S")
		}
	}
}

// awaitState waits until a process is in state, which is a letter (proc(5)).
func awaitState(t *testing.T, pid int, state string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !isInState(pid, state); {
		if time.Sleep(time.Millisecond); time.Now().After(end) {
			t.Errorf("process %d is not in state %s", pid, state)
			return
		}
	}
}

// A rehearsal counts the processes in the job's group, too: to find them takes as long.
func TestRehearsalCountsTheGroup(t *testing.T) {
	orders := openOrders(t)
	leader := startDeafSleeper(t)
	p := &guardProcess{
		orders: orders, timer: time.NewTimer(endless), look: time.NewTicker(endless),
		job: &job{pid: leader}, term: time.Hour, deadline: uptime() + time.Hour,
	}
	if p.rehearse(); p.lead <= 0 {
		t.Errorf("the lead is %v", p.lead)
	}
	if p.newLead(); p.rehearsed != 0 {
		t.Error("a new term delays its first rehearsal")
	}
}

// openOrders returns a pipe with orders.
func openOrders(t *testing.T, text ...string) *os.File {
	t.Helper()
	orders, ordersEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = orders.Close(), ordersEnd.Close() })
	for _, order := range text {
		fmt.Fprint(ordersEnd, order)
	}
	if err := syscall.SetNonblock(int(orders.Fd()), true); err != nil {
		t.Fatal(err)
	}
	return orders
}

// startDeafSleeper starts a process with a group of its own that blocks SIGTERM.
func startDeafSleeper(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var block, before unix.Sigset_t
	block.Val[0] = termBit
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &block, &before); err != nil {
		t.Fatal(err)
	}
	err := cmd.Start()
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd.Process.Pid
}

// termBit is SIGTERM in a set of signals.
const termBit = 1 << (syscall.SIGTERM - 1)

// isTermPending reports whether a process that blocks SIGTERM has received it.
func isTermPending(t *testing.T, pid int) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, pending, _ := strings.Cut(string(text), "\nShdPnd:\t")
	pending, _, _ = strings.Cut(pending, "\n")
	set, err := strconv.ParseUint(pending, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return set&termBit != 0
}

// A guard that is busy with many processes answers dlock, which otherwise kills the guard.
func TestBusyGuardAnswers(t *testing.T) {
	answers, answersEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer answers.Close()
	p := &guardProcess{answers: answersEnd, job: &job{}}
	p.job.progress = func(begun time.Duration) { p.assure(begun - assureInterval) }
	startSleepers(t, 2)
	begun := time.Now()
	p.job.signalStrays(syscall.Signal(0))
	most := 1 + int(time.Since(begun)/assureInterval)
	_ = answersEnd.Close()
	text, err := io.ReadAll(answers)
	n := strings.Count(string(text), answerKilling+"\n")
	if err != nil || n == 0 || n > most {
		t.Errorf("the guard answers %q, want 1 to %d times %q: %v", text, most, answerKilling, err)
	}
}

// The end of a job takes longer than its rehearsal. The lead leaves the command half of its term.
func TestLeadFor(t *testing.T) {
	for _, row := range []struct{ walk, term, want time.Duration }{
		{0, 4 * time.Second, 0},
		{200 * time.Millisecond, 4 * time.Second, leadFactor * 200 * time.Millisecond},
		{time.Second, 4 * time.Second, 2 * time.Second},
	} {
		if got := leadFor(row.walk, row.term); got != row.want {
			t.Errorf("leadFor(%v, %v) = %v, want %v", row.walk, row.term, got, row.want)
		}
	}
}

// cloneSilently makes a child that waits until it is killed. It returns -1 after an error.
//
//go:norace
func cloneSilently() int {
	pid, _, failed := syscall.RawSyscall6(syscall.SYS_CLONE, 0, 0, 0, 0, 0, 0)
	for failed == 0 && pid == 0 {
		_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
	if failed != 0 {
		return -1
	}
	return int(pid)
}
