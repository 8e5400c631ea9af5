package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
)

// Program is a [TB] outside of a test. A failure ends the program after its servers have been
// stopped.
type Program struct {
	name string
	ctx  context.Context

	mu       sync.Mutex
	cleanups []func()
	failed   bool
}

// NewProgram returns the TB of a command. name is used for temporary folders.
func NewProgram(ctx context.Context, name string) *Program { return &Program{name: name, ctx: ctx} }

// Run runs fn and then the functions that Cleanup received, the last one first. Then it stops the
// shared servers and returns the exit code.
func (p *Program) Run(fn func()) (code int) {
	done := make(chan struct{})
	go func() { // Fatalf ends only this goroutine
		defer close(done)
		fn()
	}()
	<-done
	p.clean()
	if p.Failed() {
		return 1
	}
	return 0
}

// Try runs fn and returns its failures as an error. They are not failures of the program. The
// functions that fn passes to Cleanup run at the end of the program.
func (p *Program) Try(fn func(TB)) error {
	t := &trial{Program: p}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn(t)
	}()
	<-done
	p.mu.Lock()
	defer p.mu.Unlock()
	return t.err
}

// clean runs the cleanups and stops the shared servers.
func (p *Program) clean() {
	p.mu.Lock()
	cleanups := p.cleanups
	p.cleanups = nil
	p.mu.Unlock()
	for _, f := range slices.Backward(cleanups) {
		f()
	}
	stopShared()
}

// Helper does nothing.
func (p *Program) Helper() {}

// Name returns the name of the command.
func (p *Program) Name() string { return p.name }

// Context returns the command's context.
func (p *Program) Context() context.Context { return p.ctx }

// Failed reports whether the program has failed.
func (p *Program) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// Cleanup registers fn, which runs at the end of the program.
func (p *Program) Cleanup(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, fn)
}

// Logf writes to standard error.
func (p *Program) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// Errorf is Logf, and sets the exit code to 1.
func (p *Program) Errorf(format string, args ...any) {
	p.mu.Lock()
	p.failed = true
	p.mu.Unlock()
	p.Logf(format, args...)
}

// Fatalf is Errorf, and ends the calling goroutine.
func (p *Program) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	runtime.Goexit()
}

// Skipf is Fatalf, because a command has no tests to skip.
func (p *Program) Skipf(format string, args ...any) { p.Fatalf(format, args...) }

// TempDir returns a new folder that is removed at the end of the program.
func (p *Program) TempDir() string {
	dir, err := os.MkdirTemp("", "dlock-"+p.name+"-")
	if err != nil {
		p.Fatalf("%v", err)
	}
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// trial is the TB of [Program.Try].
type trial struct {
	*Program
	err error
}

func (t *trial) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = errors.Join(t.err, fmt.Errorf(format, args...))
}

func (t *trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *trial) Skipf(format string, args ...any) { t.Fatalf(format, args...) }

func (t *trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err != nil
}
