package guard

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attributes gives a new process its own process group. The kernel sends it the signal end when the
// thread that has started it ends, for whatever reason.
func attributes(end syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: end}
}

// anyChild lets wait4 also find children whose end sends another signal than SIGCHLD (clone(2)).
const anyChild = unix.WALL

// setAdopting turns the adoption of orphans on or off (prctl(2), PR_SET_CHILD_SUBREAPER).
// While it is on, this process becomes the parent of its descendants whose parent ends, so
// that they stay in its reach.
func setAdopting(on bool) {
	value := uintptr(0)
	if on {
		value = 1
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, value, 0, 0, 0)
}

// canListChildren reports whether childrenOf can list children. It needs the /proc of this
// process's namespace, and a kernel that lists children there (proc(5), CONFIG_PROC_CHILDREN).
func canListChildren() bool {
	self, _ := os.Readlink("/proc/self")
	if self != strconv.Itoa(os.Getpid()) {
		return false
	}
	_, err := os.Stat("/proc/self/task/" + self + "/children")
	return err == nil
}

// isStopped reports whether a signal has stopped a process.
func isStopped(pid int) bool { return isInState(pid, "T") }

// isHalted reports whether a signal or a debugger has stopped a process.
func isHalted(pid int) bool { return isInState(pid, "T") || isInState(pid, "t") }

// isInState reports whether a process is in state, which is a letter (proc(5)).
func isInState(pid int, state string) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.HasPrefix(afterName(string(text)), state)
}

// afterName returns the text of /proc/PID/stat behind the name of the program, which is in
// parentheses and may contain any characters.
func afterName(stat string) string {
	return strings.TrimPrefix(stat[strings.LastIndexByte(stat, ')')+1:], " ")
}

// isAsking reports whether a process is a guard that asks for the terminal.
func isAsking(pid int) bool {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return err == nil && strings.TrimSpace(string(name)) == askingName
}

// childrenOf returns the children of a process, or nothing if they cannot be listed.
func childrenOf(pid int) (pids []int) {
	if !canListChildren() {
		return nil
	}
	return listChildren(pid)
}

// listChildren is childrenOf on a system that can list children.
func listChildren(pid int) (pids []int) {
	entries, _ := os.ReadDir(tasksOf(pid)) // a process that has ended has none
	for _, entry := range entries {
		if thread, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, childrenOfThread(pid, thread)...)
		}
	}
	return pids
}

// tasksOf returns the directory with the threads of a process.
func tasksOf(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/task/" }

// childrenOfThread returns the children that a thread of a process has started.
func childrenOfThread(pid, thread int) (pids []int) {
	children, _ := os.ReadFile(tasksOf(pid) + strconv.Itoa(thread) + "/children")
	for child := range strings.FieldsSeq(string(children)) {
		if number, err := strconv.Atoi(child); err == nil {
			pids = append(pids, number)
		}
	}
	return pids
}

// descendantsOf returns the children of a process, their children, and so on. A process whose
// parent ends at this moment can be missing: a moment later it is a child of the guard.
func descendantsOf(pid int) (pids []int) {
	pids = childrenOf(pid)
	for i := 0; i < len(pids); i++ {
		pids = append(pids, listChildren(pids[i])...)
	}
	return pids
}

// parentOf returns 0 if there is no such process.
func parentOf(pid int) int {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(afterName(string(text)))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// showAs sets the name of this process in top and ps. It is called on the main thread.
func showAs(name string) {
	text, err := unix.BytePtrFromString(name)
	if err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0, 0, 0)
	}
}

// uptime reads a clock that all processes of the machine share, and that goes on
// while the machine sleeps.
func uptime() time.Duration { return clock(unix.CLOCK_BOOTTIME) }

// limits is the part of Help about this system.
const limits = `
Without /proc, or on a kernel without CONFIG_PROC_CHILDREN, dlock cannot end processes
that leave the process group of COMMAND. It then keeps the lock until they have ended.
`
