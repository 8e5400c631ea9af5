//go:build !linux

package runner

import "os/exec"

// dieWithParent does nothing: only Linux can notify a child of its parent's end.
func dieWithParent(*exec.Cmd) {}
