//go:build unix && !linux

package campaign

import "syscall"

// attributes returns attributes that keep the terminal's signals from a worker.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
