//go:build unix && !linux

package command

import (
	"os/exec"
	"syscall"
)

func setAttributes(cmd *exec.Cmd, group bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: group}
}
