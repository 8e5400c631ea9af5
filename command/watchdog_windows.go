package command

import (
	"errors"

	"github.com/spf13/cobra"
)

// jobVariable is in the environment of the command, and of all that it starts.
const jobVariable = "DLOCK_JOB"

// watchdog does not exist on Windows: a command outlives a dlock that is killed.
type watchdog struct{}

func startWatchdog([]string, string) (*watchdog, error) {
	return nil, errors.New("not on Windows")
}

func watchdogs(*app) []*cobra.Command { return nil }
