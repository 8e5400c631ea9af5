package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"

	"github.com/dlock-go/dlock/command/internal/guard"
)

// lookCommand finds a command as sh does, so that a misspelt command fails before dlock waits for
// the lock. Unlike package exec, it accepts a command in "." if PATH names that directory.
func lookCommand(name string) (path string, err error) {
	path, err = exec.LookPath(name)
	if err == nil || errors.Is(err, exec.ErrDot) {
		return path, nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		err = fs.ErrNotExist
	} else if inner, ok := errors.AsType[*exec.Error](err); ok {
		err = inner.Err
	}
	return "", guard.CannotRun(shown("COMMAND", name), err)
}

// missingLoader returns the error of a command whose file exists although the system says that it
// does not: the system did not find the program that loads the command. The guard takes each such
// file for a script. For other errors, and for scripts, missingLoader returns failed.
func missingLoader(failed error, path, name string) error {
	_, err := os.Stat(path)
	if exitCode(failed) != exitNotFound || err != nil || isScript(path) {
		return failed
	}
	return &exitError{code: exitNotFound, err: fmt.Errorf(
		"%s: the dynamic loader that it needs was not found", shown("COMMAND", name))}
}

// isScript reports whether a file names its interpreter.
func isScript(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	begin := make([]byte, len("#!"))
	_, err = io.ReadFull(file, begin)
	return err == nil && string(begin) == "#!"
}

// ownProgram returns a path of the running program. On Linux the path is good even if the file was
// replaced.
func ownProgram() string {
	const program = "/proc/self/exe"
	if _, err := os.Stat(program); err == nil && runtime.GOOS == "linux" {
		return program
	}
	if path, err := os.Executable(); err == nil {
		return path
	}
	if path, err := exec.LookPath(os.Args[0]); err == nil {
		return path
	}
	return os.Args[0]
}
