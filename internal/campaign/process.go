//go:build unix

package campaign

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process is the engine's view of a worker process. Its bytes are the messages of [Serve].
type Process interface {
	io.ReadWriteCloser
	Kill() error     // SIGKILL
	Stop() error     // SIGSTOP
	Continue() error // SIGCONT
	Quit() error     // SIGQUIT: the process prints its stacks and ends
	// Wait returns when the process has ended. It returns nil if the process exited with 0.
	// Otherwise the error describes the end and has the beginning of the process's standard error.
	Wait() error
}

// WorkerFD is the file descriptor of a worker's connection to the engine.
const WorkerFD = 3

// child is a Process that runs a program.
type child struct {
	net.Conn
	cmd    *exec.Cmd
	stderr head
	done   chan struct{}
	err    error
}

// Start starts cmd as a worker. The child ignores the interrupt key of the terminal. On Linux it
// dies with this process.
func Start(cmd *exec.Cmd) (Process, error) {
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c := &child{Conn: ours, cmd: cmd, done: make(chan struct{})}
	cmd.ExtraFiles, cmd.Stderr = []*os.File{theirs}, &c.stderr
	cmd.SysProcAttr = attributes()
	started := make(chan error)
	go c.run(started)
	if err := <-started; err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	return c, nil
}

// run starts the child and waits for its end. For the kernel, the end of the thread that started a
// child is the end of the child's parent. Therefore run keeps the thread.
func (c *child) run(started chan<- error) {
	defer close(c.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err == nil {
		c.err = c.cmd.Wait()
	}
}

func (c *child) Kill() error     { return c.signal(syscall.SIGKILL) }
func (c *child) Stop() error     { return c.signal(syscall.SIGSTOP) }
func (c *child) Continue() error { return c.signal(syscall.SIGCONT) }
func (c *child) Quit() error     { return c.signal(syscall.SIGQUIT) }

func (c *child) signal(s syscall.Signal) error {
	if err := c.cmd.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (c *child) Wait() error {
	<-c.done
	if c.err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", c.err, c.stderr.String())
}

// socketpair returns the two ends of a connection.
func socketpair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	near := os.NewFile(uintptr(fds[0]), "campaign")
	defer near.Close()
	theirs = os.NewFile(uintptr(fds[1]), "worker")
	if ours, err = net.FileConn(near); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// head keeps the beginning of a process's output, which has the message of a panic.
type head struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const headSize = 64 << 10

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buf.Write(p[:min(len(p), max(0, headSize-h.buf.Len()))])
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.String()
}
