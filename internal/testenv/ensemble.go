package testenv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/dlock-go/dlock/backend"
)

// ensembleSize is how many members an ensemble has: it does without one of them.
const ensembleSize = 3

// ensembleSpec describes one kind of ensemble. Its name, with the hyphen as an underscore, also names the variable that
// may give its URL.
type ensembleSpec struct {
	name string
	// member returns the nth member, from 0 on, of those that reach each other at peers.
	member func(n int, peers []peer) *spec
	// leads asks a member whether it is the leader.
	leads func(ctx context.Context, url string) (bool, error)
}

// peer is where a member listens for the others.
type peer struct {
	host  string
	ports [2]int
}

// Ensemble is a cluster of three servers, which serves as long as two of them do. Its methods are for tests that no
// other test that uses it runs beside.
type Ensemble struct {
	Name    string    // of the row in the report: "etcd-3"
	URL     string    // names all members
	Members []*Server // each with a URL of its own

	Source, Version string // as those of a [Server]

	spec    *ensembleSpec
	network *peerNetwork // nil: the members are not in containers
}

// Leader returns the member that leads, and waits until there is one that says so.
func (e *Ensemble) Leader(tb TB) *Server {
	tb.Helper()
	return e.find(tb, true)
}

// Follower returns a member that does not lead.
func (e *Ensemble) Follower(tb TB) *Server {
	tb.Helper()
	return e.find(tb, false)
}

func (e *Ensemble) find(tb TB, leads bool) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), givenTimeout)
	defer cancel()
	s := e.first(ctx, e.Members, leads)
	if s == nil {
		tb.Fatalf("%s: no member says that it leads, or that it does not", e.Name)
	}
	return s
}

// first returns the first of members that says that it leads, or that it does not; nil if ctx ends before.
func (e *Ensemble) first(ctx context.Context, members []*Server, leads bool) *Server {
	for ; ctx.Err() == nil; time.Sleep(probeInterval) {
		for _, s := range members {
			ask, cancel := context.WithTimeout(ctx, probeTimeout)
			is, err := e.spec.leads(ask, s.URL)
			cancel()
			if err == nil && is == leads {
				return s
			}
		}
	}
	return nil
}

// Successor returns the member that leads when former does no longer; nil if ctx ends before.
func (e *Ensemble) Successor(ctx context.Context, former *Server) *Server {
	return e.first(ctx, e.Others(former), true)
}

// Others returns the members but for one.
func (e *Ensemble) Others(member *Server) []*Server {
	return slices.DeleteFunc(slices.Clone(e.Members), func(s *Server) bool { return s == member })
}

// URLOf returns a URL that names servers at these addresses alone, in this order.
func (e *Ensemble) URLOf(addrs ...string) string {
	return e.Members[0].spec.url(strings.Join(addrs, ","), nil)
}

func (e *Ensemble) addrs() []string {
	addrs := make([]string, len(e.Members))
	for i, s := range e.Members {
		addrs[i] = s.Addr
	}
	return addrs
}

// Kill ends a member with SIGKILL until start is called, at the latest at the end of the test.
func (e *Ensemble) Kill(tb TB, member *Server) (start func()) {
	tb.Helper()
	member.Kill(tb)
	start = sync.OnceFunc(func() { member.Start(tb) })
	tb.Cleanup(start)
	return start
}

// Pause stops all members, as [Server.Pause] stops one.
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

// Restart kills the leader and starts it again when another one leads.
func (e *Ensemble) Restart(tb TB) {
	tb.Helper()
	leader := e.Leader(tb)
	start := e.Kill(tb, leader)
	e.Leader(tb)
	start()
}

// Isolate cuts a member off from the others, but not from its clients, until heal is called, at the latest at the end of the
// test. Only containers can be isolated: where the members are something else the test is skipped.
func (e *Ensemble) Isolate(tb TB, member *Server) (heal func()) {
	tb.Helper()
	if e.network == nil {
		tb.Skipf("%s is a %s: a member can be isolated only in a container", e.Name, e.Source)
	}
	ctr := member.ctl.(*container)
	if err := ctr.do(e.network.leave); err != nil {
		tb.Fatalf("isolate %s: %v", member.Name, err)
	}
	heal = sync.OnceFunc(func() {
		if err := ctr.do(func(ctx context.Context, id string) error {
			return e.network.join(ctx, id, slices.Index(e.Members, member))
		}); err != nil {
			tb.Errorf("heal %s: %v", member.Name, err)
		}
	})
	tb.Cleanup(heal)
	return heal
}

// Await returns when all members answer.
func (e *Ensemble) Await(tb TB) {
	tb.Helper()
	if err := e.await(bootTimeout); err != nil {
		tb.Fatalf("%v", err)
	}
}

// await is Await within a time.
func (e *Ensemble) await(timeout time.Duration) error {
	errs := make([]error, len(e.Members))
	var wg sync.WaitGroup
	for i, s := range e.Members {
		wg.Go(func() { _, errs[i] = s.await(timeout) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (e *Ensemble) remove() error {
	var errs []error
	for _, s := range e.Members {
		if s.ctl != nil {
			errs = append(errs, s.ctl.remove())
		}
	}
	if e.network != nil {
		errs = append(errs, e.network.remove())
	}
	return errors.Join(errs...)
}

// sharedEnsembles are those that the tests of this process use together.
var sharedEnsembles struct {
	sync.Mutex
	results map[string]ensembleResult
}

type ensembleResult struct {
	ensemble *Ensemble
	err      error
}

// share returns the process's ensemble of this kind, started by the first call and stopped by [Main], when all of its
// members answer: a test before may have stopped some.
func (es *ensembleSpec) share(tb TB) *Ensemble {
	tb.Helper()
	if isAlone(tb, es.urlVariable()) {
		return es.own(tb)
	}
	res := es.sharedResult()
	if res.err != nil {
		missing(tb, res.err)
	}
	res.ensemble.Await(tb)
	Announce(tb, es.name, res.ensemble.Source, res.ensemble.Version)
	return res.ensemble
}

// own starts an ensemble for one test, at whose end it is removed.
func (es *ensembleSpec) own(tb TB) *Ensemble {
	tb.Helper()
	e, err := es.launch()
	if err != nil {
		missing(tb, err)
	}
	tb.Cleanup(func() {
		if err := e.remove(); err != nil {
			tb.Errorf("remove %s: %v", e.Name, err)
		}
	})
	Announce(tb, e.Name, e.Source, e.Version)
	return e
}

func (es *ensembleSpec) sharedResult() ensembleResult {
	sharedEnsembles.Lock()
	defer sharedEnsembles.Unlock()
	res, ok := sharedEnsembles.results[es.name]
	if !ok {
		if res.ensemble, res.err = es.given(); res.ensemble == nil && res.err == nil {
			res.ensemble, res.err = es.launch()
		}
		if sharedEnsembles.results == nil {
			sharedEnsembles.results = make(map[string]ensembleResult)
		}
		sharedEnsembles.results[es.name] = res
	}
	return res
}

func stopSharedEnsembles() {
	sharedEnsembles.Lock()
	defer sharedEnsembles.Unlock()
	for _, res := range sharedEnsembles.results {
		if res.err == nil {
			if err := res.ensemble.remove(); err != nil {
				fmt.Fprintf(os.Stderr, "remove %s: %v\n", res.ensemble.Name, err)
			}
		}
	}
	clear(sharedEnsembles.results)
}

func (es *ensembleSpec) urlVariable() string {
	return "DLOCK_TEST_" + strings.ToUpper(strings.ReplaceAll(es.name, "-", "_")) + "_URL"
}

// given returns the ensemble that the environment names, or nil.
func (es *ensembleSpec) given() (*Ensemble, error) {
	raw := os.Getenv(es.urlVariable())
	if raw == "" {
		return nil, nil
	}
	u, err := backend.ParseURL(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", es.urlVariable(), err)
	}
	e := &Ensemble{Name: es.name, Source: sourceURL, spec: es}
	sp := es.member(0, make([]peer, ensembleSize))
	for _, addr := range u.HostsWithPort(strconv.Itoa(sp.port)) {
		e.Members = append(e.Members, e.server(len(e.Members), sp, addr))
	}
	return e, e.ready(givenTimeout)
}

// launch starts an ensemble, in containers where there is Docker and an image, else as processes. Another process may
// take a port first, hence the second attempt.
func (es *ensembleSpec) launch() (*Ensemble, error) {
	defer begin()()
	kind := es.member(0, make([]peer, ensembleSize))
	source := sourceContainer
	from, dockerErr := findImage(kind)
	if dockerErr != nil {
		var err error
		if from, err = findProgram(kind.program); err != nil {
			return nil, kind.none(dockerErr, err)
		}
		source = sourceProcess
	}
	var errs error
	for range 2 {
		e := &Ensemble{Name: es.name, Source: source, spec: es}
		err := e.boot(from)
		if err == nil {
			return e, nil
		}
		errs = errors.Join(errs, fmt.Errorf("start %s as a %s: %w", es.name, source, errors.Join(err, e.remove())))
	}
	return nil, errs
}

// boot starts the members, which wait for each other, from an image or a program.
func (e *Ensemble) boot(from string) error {
	peers, err := e.arrange()
	if err != nil {
		return err
	}
	e.Members = make([]*Server, len(peers))
	errs := make([]error, len(peers))
	var wg sync.WaitGroup
	for i := range peers {
		wg.Go(func() { e.Members[i], errs[i] = e.start(i, peers, from) })
	}
	wg.Wait()
	e.Members = slices.DeleteFunc(e.Members, func(s *Server) bool { return s == nil })
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return e.ready(bootTimeout)
}

// arrange decides where the members are to reach each other.
func (e *Ensemble) arrange() (peers []peer, err error) {
	peers = make([]peer, ensembleSize)
	if e.Source == sourceContainer {
		if e.network, err = newPeerNetwork(); err != nil {
			return nil, err
		}
		for i := range peers {
			peers[i] = peer{e.network.address(i).String(), [2]int{7001, 7002}}
		}
		return peers, nil
	}
	for i := range peers {
		peers[i].host = "127.0.0.1"
		for k := range peers[i].ports {
			if peers[i].ports[k], err = freePort(); err != nil {
				return nil, err
			}
		}
	}
	return peers, nil
}

// start starts the nth member.
func (e *Ensemble) start(n int, peers []peer, from string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	sp := e.spec.member(n, peers)
	s := e.server(n, sp, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if e.network != nil {
		s.ctl, err = newContainer(sp, from, port, nil, e.network.with(n))
	} else {
		s.ctl, err = newProcess(sp, from, port, nil)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (e *Ensemble) server(n int, sp *spec, addr string) *Server {
	return &Server{Name: fmt.Sprintf("%s/%d", e.Name, n), URL: sp.url(addr, nil), Addr: addr, Source: e.Source, spec: sp}
}

// ready returns when all members answer, and completes e.
func (e *Ensemble) ready(timeout time.Duration) (err error) {
	if err := e.await(timeout); err != nil {
		return err
	}
	e.URL = e.URLOf(e.addrs()...)
	e.Version, err = e.Members[0].await(timeout)
	return err
}

// peerNetwork is how members in containers reach each other, at addresses that they keep. Their clients come by another
// network: who leaves this one is partitioned.
type peerNetwork struct {
	client *client.Client
	id     string
	subnet netip.Prefix
}

// newPeerNetwork also removes those that runs that were killed have left.
func newPeerNetwork() (*peerNetwork, error) {
	c, err := docker()
	if err != nil {
		return nil, err
	}
	labels, err := ownLabels()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	if err := sweepNetworks(ctx, c); err != nil {
		return nil, err
	}
	free, err := freeSubnet(ctx, c, labels)
	if err != nil {
		return nil, err
	}
	created, err := c.NetworkCreate(ctx, networkName(), client.NetworkCreateOptions{
		Internal: true, Labels: labels, IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: free}}},
	})
	if err != nil {
		return nil, fmt.Errorf("create a network: %w", err)
	}
	return &peerNetwork{client: c, id: created.ID, subnet: free}, nil
}

func networkName() string { return "dlock-test-" + strings.ToLower(rand.Text()) }

func sweepNetworks(ctx context.Context, c *client.Client) error {
	left, err := c.NetworkList(ctx, client.NetworkListOptions{Filters: client.Filters{}.Add("label", labelPID)})
	if err != nil {
		return fmt.Errorf("list leftover networks: %w", err)
	}
	for _, n := range left.Items {
		if ownerDead(n.Labels) {
			_, _ = c.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{}) // another process may be faster
		}
	}
	return nil
}

// freeSubnet has the engine choose a subnet. It would give containers fixed addresses only in one that it was told.
func freeSubnet(ctx context.Context, c *client.Client, labels map[string]string) (netip.Prefix, error) {
	chosen, err := c.NetworkCreate(ctx, networkName(), client.NetworkCreateOptions{Internal: true, Labels: labels})
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("create a network: %w", err)
	}
	info, err := c.NetworkInspect(ctx, chosen.ID, client.NetworkInspectOptions{})
	_, removed := c.NetworkRemove(ctx, chosen.ID, client.NetworkRemoveOptions{})
	if err := errors.Join(err, removed); err != nil {
		return netip.Prefix{}, err
	}
	for _, config := range info.Network.IPAM.Config {
		if config.Subnet.Addr().Is4() {
			return config.Subnet, nil
		}
	}
	return netip.Prefix{}, errors.New("the engine has chosen no subnet")
}

// address returns that of the nth member. The engine takes the first ones for itself.
func (n *peerNetwork) address(member int) netip.Addr {
	addr := n.subnet.Masked().Addr()
	for range 10 + member {
		addr = addr.Next()
	}
	return addr
}

// with has a container join n before it starts, beside the network that its port is published from.
func (n *peerNetwork) with(member int) testcontainers.CustomizeRequestOption {
	return testcontainers.WithAdditionalLifecycleHooks(testcontainers.ContainerLifecycleHooks{
		PreStarts: []testcontainers.ContainerHook{func(ctx context.Context, c testcontainers.Container) error {
			return n.join(ctx, c.GetContainerID(), member)
		}},
	})
}

func (n *peerNetwork) join(ctx context.Context, container string, member int) error {
	_, err := n.client.NetworkConnect(ctx, n.id, client.NetworkConnectOptions{
		Container: container,
		EndpointConfig: &network.EndpointSettings{
			IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: n.address(member)},
		},
	})
	return err
}

func (n *peerNetwork) leave(ctx context.Context, container string) error {
	_, err := n.client.NetworkDisconnect(ctx, n.id, client.NetworkDisconnectOptions{Container: container})
	return err
}

func (n *peerNetwork) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	_, err := n.client.NetworkRemove(ctx, n.id, client.NetworkRemoveOptions{})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove a network: %w", err)
	}
	return nil
}
