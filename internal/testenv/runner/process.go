package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
)

// FindProgram returns the source of a server that runs as a process. It searches PATH and
// /usr/sbin, because /usr/sbin is not on every user's PATH.
func FindProgram(sp *Spec) (Source, error) {
	if sp.Library != "" {
		if _, err := os.Stat(sp.Library); err != nil {
			return Source{}, err
		}
	}
	file, err := exec.LookPath(sp.Program)
	if err != nil {
		file, err = exec.LookPath(filepath.Join("/usr/sbin", sp.Program))
	}
	if err != nil {
		return Source{}, fmt.Errorf("%s is neither on PATH nor in /usr/sbin", sp.Program)
	}
	return Source{Process, file}, nil
}

// process is a server that runs as a child of this process. On Linux the child dies with this
// process.
type process struct {
	argv    []string
	dir     string // has its data and its log; deleted by Remove
	current *child // never nil
}

// child is one run of a process.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed after the child has ended
	err  error         // of the child's end; read after done
}

// newProcess starts program at a port of the loopback interface.
func newProcess(sp *Spec, program string, port int) (Control, error) {
	dir, err := os.MkdirTemp("", "dlock-test-"+sp.Name+"-")
	if err != nil {
		return nil, err
	}
	for name, content := range sp.Files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	argv := sp.command(Listen{Host: loopback, Port: port, Dir: dir})
	argv[0] = program
	p := &process{argv: argv, dir: dir}
	if err := p.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, nil
}

func (p *process) logFile() string { return filepath.Join(p.dir, "server.log") }

// Start implements Control.
func (p *process) Start() error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has a copy of the file
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	dieWithParent(cmd)
	p.current = &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.current.run(started)
	return <-started
}

// run starts the child, sends the result to started, and waits for the child's end. For the kernel,
// the end of the thread that started a child is the end of the child's parent. Therefore run keeps
// the thread.
func (c *child) run(started chan<- error) {
	defer close(c.done)
	pprof.SetGoroutineLabels(context.Background()) // it does not belong to the starting test
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err == nil {
		c.err = c.cmd.Wait()
	}
}

// Kill implements Control.
func (p *process) Kill() error {
	if err := p.current.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.current.done
	return nil
}

// Alive implements Control.
func (p *process) Alive() error {
	select {
	case <-p.current.done:
		return fmt.Errorf("%s has ended: %w", p.argv[0], p.current.err)
	default:
		return nil
	}
}

// Remove implements Control.
func (p *process) Remove() error {
	return errors.Join(p.Kill(), os.RemoveAll(p.dir))
}

// Logs implements Control.
func (p *process) Logs() string {
	data, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(slices.Clip(lines[max(0, len(lines)-20):]), []byte("\n")))
}
