//go:build unix && !linux

package command

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// adoptOrphans does nothing: what leaves the group of the command is out of reach here.
func adoptOrphans() {}

func descendantsOf(int) []int { return nil }

// parentOf returns 0: it is not known.
func parentOf(int) int { return 0 }

// bearing returns nothing: the environment of another process cannot be read here.
func bearing(string) []int { return nil }

// uptime is a clock that all processes of the machine share.
func uptime() time.Duration { return clock(unix.CLOCK_MONOTONIC) }

// platformHelp is the part of the help that says what this system cannot do.
const platformHelp = `
On this system dlock cannot find what leaves the process group of COMMAND: that goes
on without the lock.
`
