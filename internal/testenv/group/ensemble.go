package group

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv/runner"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// Size is the number of members of an [Ensemble]. It can serve without one of them.
const Size = 3

// EnsembleRecipe describes one kind of [Ensemble].
type EnsembleRecipe struct {
	Name string
	// Member returns the nth member, counted from 0. The members reach each other at peers.
	Member func(n int, peers []Peer) *server.Recipe
	// Leads reports whether a member is the leader.
	Leads func(ctx context.Context, member server.Target) (bool, error)
}

// Peer is the address of a member for the other members.
type Peer struct {
	Host  string
	Ports [2]int
}

// Ensemble is a cluster of three servers.
type Ensemble struct {
	server.Identity // URL has all members
	Members         []*server.Instance

	recipe  *EnsembleRecipe
	network *runner.Network // nil: the members are not in containers
}

// URLVariable returns the environment variable with the URL of such an ensemble.
func (r *EnsembleRecipe) URLVariable() string { return server.URLVariable(r.Name) }

// kind returns the recipe of a member without its peers.
func (r *EnsembleRecipe) kind() *server.Recipe { return r.Member(0, make([]Peer, Size)) }

// Obtain returns the ensemble whose URL is in the environment, otherwise a new one.
func (r *EnsembleRecipe) Obtain() (*Ensemble, error) {
	if e, err := r.given(); e != nil || err != nil {
		return e, err
	}
	return r.Launch()
}

// given returns the ensemble whose URL is in the environment, or nil.
func (r *EnsembleRecipe) given() (*Ensemble, error) {
	raw := os.Getenv(r.URLVariable())
	if raw == "" {
		return nil, nil
	}
	u, err := backend.ParseURL(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.URLVariable(), err)
	}
	e := r.ensemble(server.SourceURL)
	kind := r.kind()
	for n, addr := range u.HostsWithPort(strconv.Itoa(kind.Port)) {
		e.Members = append(e.Members, kind.At(e.memberName(n), addr, server.SourceURL))
	}
	return e, e.ready(server.GivenTimeout)
}

// Launch starts an ensemble: in containers if there is Docker and an image, otherwise as processes.
// It returns when all members answer. It makes a second attempt, because another process can take a
// port before a member does. The caller must remove the ensemble.
func (r *EnsembleRecipe) Launch() (*Ensemble, error) {
	defer server.Begin()()
	source, err := r.kind().Find()
	if err != nil {
		return nil, err
	}
	var errs error
	for range 2 {
		e := r.ensemble(source.Kind)
		err := e.boot(source)
		if err == nil {
			return e, nil
		}
		errs = errors.Join(errs, fmt.Errorf("start %s as a %s: %w",
			r.Name, source.Kind, errors.Join(err, e.Remove())))
	}
	return nil, errs
}

func (r *EnsembleRecipe) ensemble(source string) *Ensemble {
	return &Ensemble{Identity: server.Identity{Name: r.Name, Source: source}, recipe: r}
}

// boot starts the members. They wait for each other.
func (e *Ensemble) boot(source runner.Source) error {
	peers, err := e.arrange()
	if err != nil {
		return err
	}
	e.Members = make([]*server.Instance, len(peers))
	errs := make([]error, len(peers))
	var wg sync.WaitGroup
	for n := range peers {
		wg.Go(func() { e.Members[n], errs[n] = e.start(n, peers, source) })
	}
	wg.Wait()
	e.Members = slices.DeleteFunc(e.Members, func(i *server.Instance) bool { return i == nil })
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return e.ready(server.BootTimeout)
}

// arrange returns the addresses at which the members will reach each other.
func (e *Ensemble) arrange() (peers []Peer, err error) {
	peers = make([]Peer, Size)
	if e.Source == runner.Container {
		if e.network, err = runner.NewNetwork(); err != nil {
			return nil, err
		}
		for n := range peers {
			peers[n] = Peer{e.network.Address(n).String(), [2]int{7001, 7002}}
		}
		return peers, nil
	}
	ports, err := runner.FreePorts(2 * Size)
	if err != nil {
		return nil, err
	}
	for n := range peers {
		peers[n] = Peer{"127.0.0.1", [2]int(ports[2*n : 2*n+2])}
	}
	return peers, nil
}

// start starts the nth member.
func (e *Ensemble) start(n int, peers []Peer, source runner.Source) (*server.Instance, error) {
	port, err := runner.FreePort()
	if err != nil {
		return nil, err
	}
	member := e.recipe.Member(n, peers)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	i := member.At(e.memberName(n), addr, e.Source)
	if e.network != nil {
		i.Control, err = e.network.Start(source, &member.Spec, port, n)
	} else {
		i.Control, err = source.Start(&member.Spec, port)
	}
	if err != nil {
		return nil, err
	}
	return i, nil
}

func (e *Ensemble) memberName(n int) string { return fmt.Sprintf("%s/%d", e.Name, n) }

// ready waits until all members answer, and completes e.
func (e *Ensemble) ready(timeout time.Duration) (err error) {
	if err := e.Await(timeout); err != nil {
		return err
	}
	var addrs []string
	for _, i := range e.Members {
		addrs = append(addrs, i.Addr)
	}
	e.URL, e.Addr = e.URLOf(addrs...), addrs[0]
	e.Version, err = e.Members[0].Await(timeout)
	return err
}

// Await returns when all members answer. A member that does not answer within timeout is an error.
func (e *Ensemble) Await(timeout time.Duration) error {
	return each(e.Members, func(i *server.Instance) error {
		_, err := i.Await(timeout)
		return err
	})
}

// URLOf returns a URL of the servers at these addresses, in this order.
func (e *Ensemble) URLOf(addrs ...string) string {
	return e.recipe.kind().URLOf(strings.Join(addrs, ","))
}

// Leader returns the number of the leader, which must not be the member except. It waits until a
// member reports that it leads, and returns -1 if ctx ends before.
func (e *Ensemble) Leader(ctx context.Context, except int) int { return e.find(ctx, true, except) }

// Follower returns the number of a member that does not lead, or -1 if ctx ends before a member
// reports that.
func (e *Ensemble) Follower(ctx context.Context) int { return e.find(ctx, false, -1) }

// find returns the number of the first member that reports that it leads, or that it does not.
func (e *Ensemble) find(ctx context.Context, leads bool, except int) (found int) {
	found = -1
	_ = server.Eventually(ctx, func() error {
		for n, i := range e.Members {
			if n == except {
				continue
			}
			if is, err := e.leads(ctx, i); err == nil && is == leads {
				found = n
				return nil
			}
		}
		return errors.New("no member reports it")
	})
	return found
}

func (e *Ensemble) leads(ctx context.Context, member *server.Instance) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, server.ProbeTimeout)
	defer cancel()
	return e.recipe.Leads(ctx, member.Target())
}

// CanIsolate reports whether members can be isolated: they run in containers.
func (e *Ensemble) CanIsolate() bool { return e.network != nil }

// Isolate separates the nth member from the other members, but not from its clients. heal undoes
// it.
func (e *Ensemble) Isolate(n int) (heal func() error, err error) {
	member := e.Members[n].Control
	if err := e.network.Leave(member); err != nil {
		return nil, err
	}
	return func() error { return e.network.Join(member, n) }, nil
}

// Remove ends the members and deletes their data. An ensemble that was given by URL stays.
func (e *Ensemble) Remove() error {
	var errs []error
	for _, i := range e.Members {
		errs = append(errs, i.Remove())
	}
	if e.network != nil {
		errs = append(errs, e.network.Remove())
	}
	return errors.Join(errs...)
}
