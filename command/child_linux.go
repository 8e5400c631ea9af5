package command

import (
	"os/exec"
	"syscall"
)

// setAttributes also lets the command end with dlock, however dlock ends: with
// it goes the lock on a backend that holds it by a connection or a file.
func setAttributes(cmd *exec.Cmd, group bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGKILL}
}
