package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
)

// process is a testenv.TB outside of a test: what fails ends the program, after the servers have been stopped.
type process struct {
	ctx      context.Context
	cleanups []func()
	failed   bool
}

// run runs fn and then what Cleanup was given, the last first, and returns the exit code.
func (p *process) run(fn func()) (code int) {
	done := make(chan struct{})
	go func() { // of its own, which Fatalf ends
		defer close(done)
		fn()
	}()
	<-done
	for i := len(p.cleanups) - 1; i >= 0; i-- {
		p.cleanups[i]()
	}
	if p.failed {
		return 1
	}
	return 0
}

func (p *process) Helper()                  {}
func (p *process) Name() string             { return "benchmarks" }
func (p *process) Failed() bool             { return p.failed }
func (p *process) Cleanup(fn func())        { p.cleanups = append(p.cleanups, fn) }
func (p *process) Context() context.Context { return p.ctx }

func (p *process) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func (p *process) Errorf(format string, args ...any) {
	p.failed = true
	p.Logf(format, args...)
}

func (p *process) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	runtime.Goexit()
}

func (p *process) Skipf(format string, args ...any) { p.Fatalf(format, args...) }

func (p *process) TempDir() string {
	dir, err := os.MkdirTemp("", "dlock-benchmarks-")
	if err != nil {
		p.Fatalf("%v", err)
	}
	p.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
