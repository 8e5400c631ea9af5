package command

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes also let the command end with dlock, however dlock ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes dlock the parent of all processes whose parent ends among those that the
// command starts: they stay in dlock's reach (prctl(2), PR_SET_CHILD_SUBREAPER).
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// descendantsOf returns the children of a process and theirs. Those whose parent ends at this
// moment can be missing: they are children of dlock a moment later. It returns nothing where
// the kernel does not list children (proc(5), CONFIG_PROC_CHILDREN).
func descendantsOf(pid int) (pids []int) {
	threads := "/proc/" + strconv.Itoa(pid) + "/task/"
	entries, _ := os.ReadDir(threads) // a process that has ended has none
	for _, thread := range entries {
		children, _ := os.ReadFile(threads + thread.Name() + "/children")
		for child := range strings.FieldsSeq(string(children)) {
			if number, err := strconv.Atoi(child); err == nil {
				pids = append(append(pids, number), descendantsOf(number)...)
			}
		}
	}
	return pids
}

// parentOf returns 0 if there is no such process.
func parentOf(pid int) int {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name of the program stands in parentheses and may have any characters.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// bearing returns the processes that have entry in their environment.
func bearing(entry string) (pids []int) {
	processes, _ := os.ReadDir("/proc")
	for _, process := range processes {
		pid, err := strconv.Atoi(process.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		text, _ := os.ReadFile("/proc/" + process.Name() + "/environ") // another user's cannot be read
		for variable := range strings.SplitSeq(string(text), "\x00") {
			if variable == entry {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// uptime is a clock that all processes of the machine share, and that goes on while it sleeps.
func uptime() time.Duration { return clock(unix.CLOCK_BOOTTIME) }

// platformHelp is the part of the help that says what this system cannot do.
const platformHelp = ""
