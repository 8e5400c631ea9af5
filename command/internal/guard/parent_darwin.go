package guard

import "golang.org/x/sys/unix"

// parentOf returns 0 if there is no such process.
func parentOf(pid int) int {
	process, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0
	}
	return int(process.Eproc.Ppid)
}
