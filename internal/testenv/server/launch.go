package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"

	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv/runner"
)

// Obtain returns the server whose URL is in the environment, otherwise a new one.
func (r *Recipe) Obtain() (*Instance, error) {
	if i, err := r.given(); i != nil || err != nil {
		return i, err
	}
	return r.Launch()
}

// Launch starts a server: in a container if there is Docker and an image, otherwise as a process.
// It returns when the server answers. The caller must remove the server.
func (r *Recipe) Launch() (*Instance, error) {
	defer Begin()()
	if r.Start != nil {
		return r.Start(r)
	}
	source, err := r.Find()
	if err != nil {
		return nil, err
	}
	return r.LaunchFrom(source)
}

// LaunchFrom is Launch with a chosen source. It makes a second attempt, because another process can
// take the port before the server does.
func (r *Recipe) LaunchFrom(source runner.Source) (*Instance, error) {
	var errs error
	for range 2 {
		i, err := r.boot(source)
		if err == nil {
			return i, nil
		}
		errs = errors.Join(errs, fmt.Errorf("start %s as a %s: %w", r.Name, source.Kind, err))
	}
	return nil, errs
}

// boot starts a server on a free port.
func (r *Recipe) boot(source runner.Source) (*Instance, error) {
	port, err := runner.FreePort()
	if err != nil {
		return nil, err
	}
	i := r.At(r.Name, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), source.Kind)
	spec := r.Spec
	if r.TLS != nil {
		spec.Files = r.TLS.Files()
		if i.tls, err = r.TLS.ClientConfig(); err != nil {
			return nil, err
		}
	}
	i.again = func() (runner.Control, error) { return source.Start(&spec, port) }
	if i.Control, err = i.again(); err != nil {
		return nil, err
	}
	return i, i.Ready()
}

// starting limits the number of servers that start at a time, because each start uses a processor.
var starting = make(chan struct{}, runtime.NumCPU())

// Begin waits until a server may start and the machine is calm. The caller must call end when the
// server has started.
func Begin() (end func()) {
	starting <- struct{}{}
	lag.Calm(context.Background())
	return func() { <-starting }
}
