package testenv

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

// findProgram looks for a server's program where packages put it; /usr/sbin is not on everybody's PATH.
func findProgram(name string) (string, error) {
	file, err := exec.LookPath(name)
	if err == nil {
		return file, nil
	}
	if file, sbinErr := exec.LookPath(filepath.Join("/usr/sbin", name)); sbinErr == nil {
		return file, nil
	}
	return "", fmt.Errorf("%s is neither on PATH nor in /usr/sbin", name)
}

// process is a server that runs as a child of this process. It dies with it.
type process struct {
	argv    []string
	env     []string
	dir     string // its data and its log; deleted by remove
	current *child // never nil
}

// child is one run of a process.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and was waited for
	err  error         // how it ended; read after done
}

func newProcess(sp *spec, program string, port int, args []string) (control, error) {
	dir, err := os.MkdirTemp("", "dlock-test-"+sp.name+"-")
	if err != nil {
		return nil, err
	}
	for name, content := range sp.files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	argv := sp.command(listen{host: "127.0.0.1", port: port, dir: dir}, args)
	argv[0] = program
	env := os.Environ()
	for key, value := range sp.env {
		env = append(env, key+"="+value)
	}
	p := &process{argv: argv, env: env, dir: dir}
	if err := p.start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p, nil
}

func (p *process) logFile() string { return filepath.Join(p.dir, "server.log") }

func (p *process) start() error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own copy
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.dir, p.env, log, log
	dieWithParent(cmd)
	p.current = &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.current.run(started)
	return <-started
}

// run starts the child, reports on started, and waits for its end. The kernel takes the end of the thread that started a
// child for the end of its parent, so the thread is kept.
func (c *child) run(started chan<- error) {
	defer close(c.done)
	pprof.SetGoroutineLabels(context.Background()) // not a goroutine of the test that happens to start it
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err == nil {
		c.err = c.cmd.Wait()
	}
}

func (p *process) kill() error {
	if err := p.current.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.current.done
	return nil
}

func (p *process) alive() error {
	select {
	case <-p.current.done:
		return fmt.Errorf("%s has ended: %w", p.argv[0], p.current.err)
	default:
		return nil
	}
}

func (p *process) remove() error {
	return errors.Join(p.kill(), os.RemoveAll(p.dir))
}

func (p *process) logs() string {
	data, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(slices.Clip(lines[max(0, len(lines)-20):]), []byte("\n")))
}
