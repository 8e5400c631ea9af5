package bench

import (
	"context"
	"io"
	"os/exec"
	"time"
)

// Subject is one way to lock.
type Subject struct {
	// Name identifies the subject in results. It contains no credential.
	Name string
	// Open connects as a separate process would: no two Processes share a connection. ctx limits
	// the time of Open only.
	Open func(ctx context.Context, s Settings) (Process, error)
	// Handoff is true if Settings.Handoff makes a difference. The contended workloads then measure
	// the subject without and with hand-offs.
	Handoff bool
	// Server opens a connection in addition to the measured ones. The connection may
	// implement measure.Floor, measure.Counters and measure.Sweeper. If Server is nil, the
	// subject has none of these.
	Server func(ctx context.Context) (io.Closer, error)
	// Prefix is the text that a Process puts before each name. The connection of Server puts
	// nothing before names, so bench adds Prefix there.
	Prefix string
	// Command returns the command line of a child. The child calls [Serve] for this Subject with
	// its standard input and output. Command decides where the standard error of the child goes. If
	// Command is nil, Processes of this process take the place of children.
	Command func() *exec.Cmd
}

// Settings are the requirements of a workload on a Process.
type Settings struct {
	// TTL is how long a lock outlives its holder; 0 means the default of the library. A library
	// that does not support this TTL uses the nearest TTL that it supports.
	TTL time.Duration
	// Handoff permits hand-offs inside the Process, without a request to the server.
	Handoff bool
	// WithoutRenewal leaves a lock to the end of its TTL, as if its holder had died. It is set for
	// the leaders of W10 if there are no children to kill.
	WithoutRenewal bool
}

// Process is a connection that represents an operating-system process.
type Process interface {
	// Mutex returns the lock of a name, without a request to the server. Each contender has a
	// separate Mutex, even for the same name. It is safe for concurrent use.
	Mutex(name string) (Mutex, error)
	// Close closes the connection and frees the locks that are still held. It wakes the
	// waiters. It is called once.
	Close() error
}

// Kinds is a Process that has more kinds of locks than a mutex. If a Process does not implement it,
// the rows of the Subject in W7 to W10 are unsupported. Like Mutex, the methods send no request to
// the server. They return an error that wraps dlock.ErrUnsupported if the server has no such locks.
type Kinds interface {
	// Reader returns the read side of a lock. Its write side is the Mutex of the same name.
	Reader(name string) (Mutex, error)
	// Permit returns a semaphore of so many permits. Its Lock acquires one permit.
	Permit(name string, permits int) (Mutex, error)
	// All returns the locks of several names as one. Its Lock acquires all of them or none.
	All(names []string) (Mutex, error)
	// Leader returns an election. Its Lock stands until it leads, and Unlock resigns.
	Leader(name string) (Mutex, error)
}

// Mutex is one contender's view of a lock; it is used by one goroutine.
type Mutex interface {
	// Lock blocks until it acquires the lock, or until ctx ends. The lock is kept until Unlock.
	Lock(ctx context.Context) (Lease, error)
}

// Lease is a lock that is held. A *dlock.Lease is one.
type Lease interface {
	// Unlock releases the lock. It returns an error if the lock was lost before.
	Unlock(ctx context.Context) error
}
