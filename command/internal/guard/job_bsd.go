//go:build unix && !linux

package guard

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes gives a new process its own process group.
func attributes(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// anyChild is 0: wait4 finds all children.
const anyChild = 0

// setAdopting does nothing: on this system dlock cannot reach processes that leave
// the group of the command.
func setAdopting(bool) {}

// canListChildren returns true: a child that cannot be listed here does not
// count as part of the job.
func canListChildren() bool { return true }

func isStopped(int) bool { return false }

func isHalted(int) bool { return false }

func isAsking(int) bool { return false }

func descendantsOf(int) []int { return nil }

func childrenOf(int) []int { return nil }

func listChildren(int) []int { return nil }

// watchFork only calls fork: on this system dlock cannot find a child that is stopped before it
// executes its program.
func watchFork(fork func() error) (wasStopped bool, err error) { return false, fork() }

// blockStops does nothing: on this system a thread cannot block signals for a child.
func blockStops() (blocked int64) { return 0 }

func unblock(int64) {}

// showAs does nothing: the process keeps the name of its program.
func showAs(string) {}

// uptime reads a clock that all processes of the machine share.
func uptime() time.Duration { return clock(unix.CLOCK_MONOTONIC) }

// limits is the part of Help about this system.
const limits = `
On this system dlock cannot find processes that leave the process group of COMMAND:
they go on without the lock. In a script on BSD, Ctrl-Z has no effect, and a COMMAND
in the background that reads from the terminal gets SIGHUP, then SIGTERM and SIGKILL.
`
