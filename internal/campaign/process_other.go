//go:build unix && !linux

package campaign

import "syscall"

// attributes keep the signals of the terminal from a worker.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
