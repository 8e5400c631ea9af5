package testenv

import "errors"

// errStops is the error of tests that stop a process: Windows has no signal for that.
var errStops = errors.New("a process cannot be stopped on Windows")

func (p *process) pause() error  { return errStops }
func (p *process) resume() error { return errStops }

// isGone reports whether there is no process of that number: that is not known here.
func isGone(int) bool { return false }
