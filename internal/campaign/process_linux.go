package campaign

import "syscall"

// attributes returns attributes that keep the terminal's signals from a worker. They also make the
// kernel kill the worker when the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
