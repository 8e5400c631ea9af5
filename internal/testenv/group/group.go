package group

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/internal/testenv/runner"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// Plan describes the members of a [Group] before they are started.
type Plan struct {
	Name    string
	Kind    *server.Recipe // of each member, apart from port and command
	Members []Member
	Nodes   int      // the number of members with data, which are the first ones
	Idle    []string // a command of the image that keeps running, for the pod
}

// Member is one server of a [Plan].
type Member struct {
	Port    int // in a container and outside
	Command func(l runner.Listen) []string
}

// Addr returns the address of the member.
func (m Member) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(m.Port)) }

// Group is the control of several servers. Its methods act on all members in parallel, except
// Remove.
type Group struct {
	Members []*server.Instance
	Nodes   int // the number of members with data, which are the first ones

	plan   Plan
	source runner.Source
	pod    *runner.Pod // nil: the members are processes
}

// Start starts the members: in containers if there is Docker and an image, otherwise as processes.
// It returns when each member answers.
func (p Plan) Start() (*Group, error) {
	source, err := p.Kind.Find()
	if err != nil {
		return nil, err
	}
	g := &Group{Nodes: p.Nodes, plan: p, source: source}
	if source.Kind == runner.Container {
		if g.pod, err = source.NewPod(p.ports(), p.Idle); err != nil {
			return nil, err
		}
	}
	for n, m := range p.Members {
		i, err := g.start(n, m.Command)
		if err != nil {
			return nil, errors.Join(err, g.Remove())
		}
		g.Members = append(g.Members, i)
	}
	if err := g.await(); err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	return g, nil
}

func (p Plan) ports() []int {
	ports := make([]int, len(p.Members))
	for i, m := range p.Members {
		ports[i] = m.Port
	}
	return ports
}

// start starts the nth member with a command.
func (g *Group) start(
	n int, command func(runner.Listen) []string,
) (i *server.Instance, err error) {
	one, m := *g.plan.Kind, g.plan.Members[n]
	one.Port, one.Command = m.Port, command
	i = one.At(fmt.Sprintf("%s/%d", g.plan.Name, n), m.Addr(), g.source.Kind)
	if g.pod != nil {
		i.Control, err = g.pod.Start(&one.Spec)
	} else {
		i.Control, err = g.source.Start(&one.Spec, m.Port)
	}
	return i, err
}

// Replace ends the nth member, deletes its data and starts another one at the same address. It
// returns when the new member answers.
func (g *Group) Replace(n int, command func(runner.Listen) []string) error {
	member := g.Members[n]
	if err := member.Remove(); err != nil {
		return err
	}
	next, err := g.start(n, command)
	if err != nil {
		return err
	}
	member.Control = next.Control
	_, err = member.Await(server.BootTimeout)
	return err
}

// Instance returns the group as one server, as soon as the probe of r succeeds. The server's URL
// has the addresses addrs. If the probe fails for five minutes, the group is removed.
func (g *Group) Instance(r *server.Recipe, addrs ...string) (*server.Instance, error) {
	first := g.Members[0]
	i := r.At(g.plan.Name, strings.Join(addrs, ","), first.Source)
	i.Addr, i.Control = first.Addr, g
	if err := i.Ready(); err != nil {
		return nil, err
	}
	return i, nil
}

// await waits until each member answers.
func (g *Group) await() error {
	return each(g.Members, func(i *server.Instance) error {
		_, err := i.Await(server.BootTimeout)
		return err
	})
}

// control calls f for the control of each member.
func (g *Group) control(f func(runner.Control) error) error {
	return each(g.Members, func(i *server.Instance) error { return f(i.Control) })
}

// Pause implements [runner.Control].
func (g *Group) Pause() error { return g.control(runner.Control.Pause) }

// Resume implements [runner.Control].
func (g *Group) Resume() error { return g.control(runner.Control.Resume) }

// Kill implements [runner.Control].
func (g *Group) Kill() error { return g.control(runner.Control.Kill) }

// Alive implements [runner.Control].
func (g *Group) Alive() error { return g.control(runner.Control.Alive) }

// Start implements [runner.Control]. It returns when each member answers.
func (g *Group) Start() error {
	return errors.Join(g.control(runner.Control.Start), g.await())
}

// Remove implements [runner.Control].
func (g *Group) Remove() error {
	err := g.control(runner.Control.Remove)
	if g.pod != nil {
		err = errors.Join(err, g.pod.Remove())
	}
	return err
}

// Logs implements [runner.Control].
func (g *Group) Logs() string {
	var all strings.Builder
	for _, i := range g.Members {
		fmt.Fprintf(&all, "%s:\n%s\n", i.Name, i.Control.Logs())
	}
	return all.String()
}

// each calls f for all members in parallel.
func each(members []*server.Instance, f func(*server.Instance) error) error {
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for n, i := range members {
		wg.Go(func() { errs[n] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
