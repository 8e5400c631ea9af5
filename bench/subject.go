package bench

import (
	"context"
	"io"
	"os/exec"
	"time"
)

// Subject is one way to lock.
type Subject struct {
	// Name tells it from the others. It carries no credential.
	Name string
	// Open connects, as a process of its own would: no two Processes share a connection. ctx
	// bounds the opening.
	Open func(ctx context.Context, s Settings) (Process, error)
	// Handoff says that Settings.Handoff makes a difference. What depends on it is then
	// measured both ways.
	Handoff bool
	// Server opens a connection beside those that are measured. It may implement
	// measure.Floor, measure.Counters and measure.Sweeper. nil: there is none of them.
	Server func(ctx context.Context) (io.Closer, error)
	// Prefix is what a Process puts before each name, for Server, which puts nothing before it.
	Prefix string
	// Command makes the command line of a child that calls [Serve] for this Subject with its
	// standard input and output; its standard error is the caller's matter. nil: Processes in
	// this process stand for others.
	Command func() *exec.Cmd
}

// Settings are what a workload asks of a Process.
type Settings struct {
	// TTL is how long a lock shall outlive its holder; 0 is the library's own default. A library
	// that cannot have it so short, or so long, takes the nearest that it can.
	TTL time.Duration
	// Handoff permits to pass a lock on inside of the Process without a trip to the server.
	Handoff bool
}

// Process is a connection that stands for an operating-system process.
type Process interface {
	// Mutex returns the lock of a name. It asks nothing of the server. Each contender has a
	// Mutex of its own, also for one name. Safe for concurrent use.
	Mutex(name string) (Mutex, error)
	// Close gives back the connection and frees what is still locked. It wakes those who
	// wait, and is called once.
	Close() error
}

// Mutex is one contender's view of a lock; it is used by one goroutine.
type Mutex interface {
	// Lock waits until the lock is had, which is kept until Unlock, or until ctx ends.
	Lock(ctx context.Context) (Lease, error)
}

// Lease is a lock that is held. A *dlock.Lease is one.
type Lease interface {
	// Unlock releases the lock. An error says that the lock was lost before.
	Unlock(ctx context.Context) error
}
