package command

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/dlock-go/dlock/command/internal/guard"
)

// defaultPath is where sh finds commands without PATH, as after env -i.
var defaultPath = []string{
	"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin",
}

// lookCommand finds a command as sh does, so that a misspelt command fails before dlock waits for
// the lock. Unlike package exec, it accepts a command in "." if PATH names that directory.
func lookCommand(name string) (path string, err error) {
	path, err = exec.LookPath(name)
	if _, hasPath := os.LookupEnv("PATH"); !hasPath && filepath.Base(name) == name {
		for _, dir := range defaultPath {
			if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return found, nil
			}
		}
	}
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
