package command

import (
	"os"
	"os/exec"
	"syscall"
)

// interrupts are the signals that end dlock while it has no command running.
var interrupts = []os.Signal{os.Interrupt, syscall.SIGTERM}

// relayed is empty: the console gives its events to the command itself.
func relayed(bool) []os.Signal { return nil }

func (c *child) forward(os.Signal) {}

// terminate leaves the command alone: Windows has no way to ask, so that kill
// at the end of the grace is all there is.
func (c *child) terminate() {}

// kill ends the command alone: Windows has no process groups to signal.
func (c *child) kill() { _ = c.cmd.Process.Kill() }

func (c *child) alive() bool { return c.running() }

func (c *child) exitCode() int { return c.cmd.ProcessState.ExitCode() }

func setAttributes(*exec.Cmd, bool) {}
