package campaign

import "syscall"

// attributes keep the signals of the terminal from a worker, and make the kernel kill it when this
// process ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
