package testenv

import (
	"context"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/internal/testenv/group"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// Ensemble is a cluster of three servers. It serves as long as two of them do. A test that calls
// its methods must not run in parallel with another test that uses the ensemble.
type Ensemble struct {
	server.Identity           // Name, Source, Version; URL has all members
	Members         []*Server // each has its own URL

	group *group.Ensemble
}

// newEnsemble returns the view of tests on an ensemble.
func newEnsemble(g *group.Ensemble) *Ensemble {
	e := &Ensemble{Identity: g.Identity, group: g}
	for _, m := range g.Members {
		e.Members = append(e.Members, newServer(m))
	}
	return e
}

// Leader returns the leader. It waits until a member reports that it leads.
func (e *Ensemble) Leader(tb TB) *Server {
	tb.Helper()
	return e.find(tb, func(ctx context.Context) int { return e.group.Leader(ctx, -1) })
}

// Follower returns a member that does not lead.
func (e *Ensemble) Follower(tb TB) *Server {
	tb.Helper()
	return e.find(tb, e.group.Follower)
}

// find returns the member with the number that choose returns.
func (e *Ensemble) find(tb TB, choose func(context.Context) int) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), server.GivenTimeout)
	defer cancel()
	n := choose(ctx)
	if n < 0 {
		tb.Fatalf("%s: no member reports whether it leads", e.Name)
	}
	return e.Members[n]
}

// Successor returns the member that leads after former no longer leads, or nil if ctx ends before.
func (e *Ensemble) Successor(ctx context.Context, former *Server) *Server {
	if n := e.group.Leader(ctx, slices.Index(e.Members, former)); n >= 0 {
		return e.Members[n]
	}
	return nil
}

// Others returns all members except one.
func (e *Ensemble) Others(member *Server) []*Server {
	return slices.DeleteFunc(slices.Clone(e.Members), func(s *Server) bool { return s == member })
}

// URLOf returns a URL of the servers at these addresses, in this order.
func (e *Ensemble) URLOf(addrs ...string) string { return e.group.URLOf(addrs...) }

// Kill ends a member with SIGKILL until start is called or the test ends.
func (e *Ensemble) Kill(tb TB, member *Server) (start func()) {
	tb.Helper()
	return killed(tb, member)
}

// Pause stops all members, as [Server.Pause] stops one server.
func (e *Ensemble) Pause(tb TB) (resume func()) {
	tb.Helper()
	resumes := make([]func(), len(e.Members))
	for i, s := range e.Members {
		resumes[i] = s.Pause(tb)
	}
	return func() {
		for _, resume := range resumes {
			resume()
		}
	}
}

// Restart kills the leader and starts it again when another member leads.
func (e *Ensemble) Restart(tb TB) {
	tb.Helper()
	start := e.Kill(tb, e.Leader(tb))
	e.Leader(tb)
	start()
}

// Isolate separates a member from the other members, but not from its clients, until heal is called
// or the test ends. Only containers can be isolated. If the members do not run in containers, the
// test is skipped.
func (e *Ensemble) Isolate(tb TB, member *Server) (heal func()) {
	tb.Helper()
	if !e.group.CanIsolate() {
		tb.Skipf("%s is a %s: a member can be isolated only in a container", e.Name, e.Source)
	}
	join, err := e.group.Isolate(slices.Index(e.Members, member))
	if err != nil {
		tb.Fatalf("isolate %s: %v", member.Name, err)
	}
	heal = sync.OnceFunc(func() {
		if err := join(); err != nil {
			tb.Errorf("heal %s: %v", member.Name, err)
		}
	})
	tb.Cleanup(heal)
	return heal
}

// Await returns when all members answer.
func (e *Ensemble) Await(tb TB) {
	tb.Helper()
	if err := e.group.Await(server.BootTimeout); err != nil {
		tb.Fatalf("%v", err)
	}
}

func (e *Ensemble) remove() error { return e.group.Remove() }
