package guard

import (
	"syscall"
	"testing"

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
