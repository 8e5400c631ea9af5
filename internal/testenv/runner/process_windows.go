package runner

import "errors"

// errStops is the error of a test that stops a process: Windows has no signal for that.
var errStops = errors.New("a process cannot be stopped on Windows")

// Pause implements Control.
func (p *process) Pause() error { return errStops }

// Resume implements Control.
func (p *process) Resume() error { return errStops }

// isGone returns false: it cannot check a process on Windows.
func isGone(int) bool { return false }
