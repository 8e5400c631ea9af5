package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/testenv/runner"
)

// Time limits for a server to answer.
const (
	BootTimeout  = 5 * time.Minute  // after its start: MySQL initialises its data first
	GivenTimeout = 30 * time.Second // of a server that was given by URL
	ProbeTimeout = 3 * time.Second  // of one request
)

// The pauses between two probes grow from the first to the longest, by a quarter each. A probe, and
// to ask Docker whether the server runs, takes the processor from a server that starts.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// Identity identifies a running server, or several servers that act as one.
type Identity struct {
	Name    string // the kind: "redis"
	URL     string // for dlock.Open
	Addr    string // host:port for a proxy; of several servers, the first
	Source  string // "url", "container" or "process"
	Version string // product and version as the server reports them: "Redis 8.0.6"
}

// Instance is a running server. Its methods may be called from several goroutines, but the caller
// should not make two changes at the same time.
type Instance struct {
	Identity
	Control runner.Control // nil: given by URL

	recipe *Recipe
	tls    *tls.Config                    // for probes; nil: the server has no TLS
	again  func() (runner.Control, error) // starts another server at the same address
}

// At returns an Instance of a server that listens, or will listen, at addr. The caller sets its
// Control and calls Ready.
func (r *Recipe) At(name, addr, source string) *Instance {
	return &Instance{
		Identity: Identity{Name: name, URL: r.URLOf(addr), Addr: addr, Source: source},
		recipe:   r,
	}
}

// Ready waits until a started server answers, and sets its version. If the server does not answer
// within BootTimeout, Ready removes it and returns an error.
func (i *Instance) Ready() (err error) {
	if i.Version, err = i.Await(BootTimeout); err != nil {
		err = errors.Join(err, i.Remove())
	}
	return err
}

// URLVariable returns the environment variable with the URL of such a server.
func (i *Instance) URLVariable() string { return i.recipe.URLVariable() }

// DirectURL returns the URL of a server in a container at the container's own address, if this
// machine can connect to it. For other servers it returns URL.
func (i *Instance) DirectURL() string {
	if addr, ok := runner.DirectAddr(i.Control); ok {
		return strings.Replace(i.URL, i.Addr, addr, 1)
	}
	return i.URL
}

// Target returns the server as the target of a probe.
func (i *Instance) Target() Target { return Target{URL: i.URL, Addr: i.Addr, TLS: i.tls} }

// Probe returns the version if the server answers its probe within [ProbeTimeout].
func (i *Instance) Probe(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	return i.recipe.Probe(ctx, i.Target())
}

// Await waits until the server answers its probe, and returns the version. It does not wait for a
// server that has ended.
func (i *Instance) Await(timeout time.Duration) (version string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for pause := firstPause; ; pause = min(pause+pause/4, longestPause) {
		version, err := i.Probe(ctx)
		if err == nil {
			return version, nil
		}
		if i.Control != nil {
			if dead := i.Control.Alive(); dead != nil {
				return "", fmt.Errorf("%w\n%s", dead, i.Control.Logs())
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return "", fmt.Errorf("%s at %s does not answer: %w", i.Name, i.Addr, err)
		}
	}
}

// Start starts a killed server and waits until it answers.
func (i *Instance) Start() error {
	if err := i.Control.Start(); err != nil {
		return err
	}
	_, err := i.Await(BootTimeout)
	return err
}

// Wipe removes the server with its data and starts another one at the same address. Members of an
// ensemble or a group cannot be wiped.
func (i *Instance) Wipe() error {
	if err := i.Control.Remove(); err != nil {
		return err
	}
	control, err := i.again()
	if err != nil {
		return err
	}
	i.Control = control
	_, err = i.Await(BootTimeout)
	return err
}

// Remove ends the server and deletes its data. A server that was given by URL stays.
func (i *Instance) Remove() error {
	if i.Control == nil {
		return nil
	}
	return i.Control.Remove()
}

// Eventually repeats f until it succeeds or ctx ends, with short pauses.
func Eventually(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(firstPause):
		case <-ctx.Done():
		}
	}
}
