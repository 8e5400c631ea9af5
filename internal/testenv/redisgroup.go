package testenv

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
)

// RedisGroup is several Redis servers that stand for one: a cluster, or a master with its replicas and their sentinels. As a
// [Server] it is all of them: Pause pauses and Kill kills each.
type RedisGroup struct {
	*Server
	Nodes     []*Server // keep data; empty where the group was given by URL
	Sentinels []*Server
}

// redisNodeTimeout is for how long, in milliseconds, a member may be silent before it is taken for dead. The suite stops servers for
// half of that, and a machine that has other things to do must not seem dead.
const redisNodeTimeout = "3000"

// redisMember is one server of a group, before it is started.
type redisMember struct {
	port, bus int
	flags     []string
	config    string // the lines of a file that the server itself rewrites, lest a restart undo what a failover has done
}

// newRedisMembers draws the ports of n members. They are the same inside of a container, as the members tell
// them to clients.
func newRedisMembers(n int) ([]redisMember, error) {
	members := make([]redisMember, n)
	taken := make(map[int]bool)
	draw := func() (int, error) {
		for {
			port, err := freePort()
			if err != nil || !taken[port] {
				taken[port] = true
				return port, err
			}
		}
	}
	var err1, err2 error
	for i := range members {
		members[i].port, err1 = draw()
		members[i].bus, err2 = draw()
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
	}
	return members, nil
}

func (m redisMember) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(m.port)) }

// command makes the server, whose file is written once.
func (m redisMember) command(l listen) []string {
	l.port = m.port
	flags := redisCommand("redis-server", l)[1:]
	if slices.Contains(m.flags, "--sentinel") { // keeps no data
		flags = []string{"--bind", l.host, "--port", strconv.Itoa(l.port), "--dir", l.dir, "--protected-mode", "no"}
	}
	flags = append(flags, m.flags...)
	file := filepath.Join(l.dir, "own.conf")
	if l.dir == containerData {
		const write = `[ -f "$0" ] || echo "$1" >"$0"; file=$0; shift; exec redis-server "$file" "$@"`
		return append([]string{"sh", "-c", write, file, m.config}, flags...)
	}
	_ = os.WriteFile(file, []byte(m.config), 0o600) // if that fails, the server does not start either, and says why
	return append([]string{"redis-server", file}, flags...)
}

// redisGroup is the control of a group.
type redisGroup struct {
	name    string
	members []*Server  // nodes, then sentinels
	nodes   int        // how many of them are nodes
	pod     *container // whose network the containers of the members share; nil: they are processes
}

// startRedis starts the members, in containers where there is Docker and an image, else as processes.
func startRedis(name string, nodes int, members []redisMember) (*redisGroup, error) {
	g := &redisGroup{name: name, nodes: nodes}
	source, start, err := g.starter(members)
	if err != nil {
		return nil, err
	}
	for i, m := range members {
		one := *redisSpec
		one.command = func(l listen, _ []string) []string { return m.command(l) }
		s := &Server{
			Name: fmt.Sprintf("%s/%d", name, i), URL: "redis://" + m.addr(), Addr: m.addr(), Source: source, spec: &one,
		}
		if s.ctl, err = start(&one, m.port); err != nil {
			return nil, errors.Join(err, g.remove())
		}
		g.members = append(g.members, s)
	}
	if err := g.await(); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return g, nil
}

// starter returns how members are started.
func (g *redisGroup) starter(members []redisMember) (source string, start func(sp *spec, port int) (control, error), err error) {
	image, dockerErr := findImage(redisSpec)
	if dockerErr == nil {
		if g.pod, err = newPod(image, members); err != nil {
			return "", nil, err
		}
		return sourceContainer, func(sp *spec, _ int) (control, error) { return g.pod.join(sp, image) }, nil
	}
	program, err := findProgram(redisSpec.program)
	if err != nil {
		return "", nil, redisSpec.none(dockerErr, err)
	}
	return sourceProcess, func(sp *spec, port int) (control, error) { return newProcess(sp, program, port, nil) }, nil
}

// newPod starts a container that does nothing but to publish the ports of members. They share its loopback interface,
// and so have one address inside and outside.
func newPod(image string, members []redisMember) (*container, error) {
	ports := make(network.PortMap)
	var exposed []string
	for _, m := range members {
		one := new(dockercontainer.HostConfig)
		publish(m.port, m.port)(one)
		for port, binding := range one.PortBindings {
			ports[port] = binding
			exposed = append(exposed, port.String())
		}
	}
	return runContainer(image,
		testcontainers.WithCmd("redis-server", "--port", "0", "--unixsocket", "/data/pod", "--save", ""),
		testcontainers.WithExposedPorts(exposed...),
		testcontainers.WithHostConfigModifier(func(hc *dockercontainer.HostConfig) { hc.PortBindings = ports }))
}

// join starts a container in the network of c.
func (c *container) join(sp *spec, image string) (control, error) {
	return runContainer(image,
		testcontainers.WithCmd(sp.command(listen{host: "0.0.0.0", dir: containerData}, nil)...),
		testcontainers.WithHostConfigModifier(func(hc *dockercontainer.HostConfig) {
			hc.NetworkMode = dockercontainer.NetworkMode("container:" + c.ctr.GetContainerID())
		}))
}

// await returns when each member answers.
func (g *redisGroup) await() error {
	return g.each(func(s *Server) error {
		_, err := s.await(bootTimeout)
		return err
	})
}

// each calls f for all members at once.
func (g *redisGroup) each(f func(*Server) error) error {
	errs := make([]error, len(g.members))
	var wg sync.WaitGroup
	for i, s := range g.members {
		wg.Go(func() { errs[i] = f(s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (g *redisGroup) pause() error { return g.each(func(s *Server) error { return s.ctl.pause() }) }

func (g *redisGroup) resume() error { return g.each(func(s *Server) error { return s.ctl.resume() }) }
func (g *redisGroup) kill() error   { return g.each(func(s *Server) error { return s.ctl.kill() }) }
func (g *redisGroup) alive() error  { return g.each(func(s *Server) error { return s.ctl.alive() }) }

func (g *redisGroup) start() error {
	return errors.Join(g.each(func(s *Server) error { return s.ctl.start() }), g.await())
}

func (g *redisGroup) remove() error {
	err := g.each(func(s *Server) error { return s.ctl.remove() })
	if g.pod != nil {
		err = errors.Join(err, g.pod.remove())
	}
	return err
}

func (g *redisGroup) logs() string {
	var all strings.Builder
	for _, s := range g.members {
		fmt.Fprintf(&all, "%s:\n%s\n", s.Name, s.ctl.logs())
	}
	return all.String()
}

// newRedisGroup makes a group of what share and own return.
func newRedisGroup(s *Server) *RedisGroup {
	group := &RedisGroup{Server: s}
	if g, ok := s.ctl.(*redisGroup); ok {
		group.Nodes, group.Sentinels = g.members[:g.nodes], g.members[g.nodes:]
	}
	return group
}

// Addrs returns the addresses of the nodes and then of the sentinels. The test is skipped where the group was given by URL: then
// they are not known.
func (g *RedisGroup) Addrs(tb TB) []string {
	tb.Helper()
	if len(g.Nodes) == 0 {
		tb.Skipf("%s was given by %s: its members are not known", g.Name, g.spec.urlVariable())
	}
	return addrsOf(slices.Concat(g.Nodes, g.Sentinels))
}

func addrsOf(servers []*Server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr
	}
	return addrs
}

// Await returns when all members answer and agree: a test may have stopped some.
func (g *RedisGroup) Await(tb TB) {
	tb.Helper()
	if _, err := g.await(bootTimeout); err != nil {
		tb.Fatalf("%v", err)
	}
}

// Take takes a member away until back is called, at the latest at the end of the test: with kill its process is killed, else it
// is only stopped.
func (g *RedisGroup) Take(tb TB, member *Server, kill bool) (back func()) {
	tb.Helper()
	if !kill {
		return member.Pause(tb)
	}
	member.Kill(tb)
	back = sync.OnceFunc(func() { member.Start(tb) })
	tb.Cleanup(back)
	return back
}

// up completes a server that stands for the group, when its probe is content.
func (g *redisGroup) up(sp *spec, url string) (*Server, error) {
	s := &Server{
		Name: g.name, URL: url, Addr: g.members[0].Addr, Source: g.members[0].Source, spec: sp, ctl: g,
	}
	var err error
	if s.Version, err = s.await(bootTimeout); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return s, nil
}
