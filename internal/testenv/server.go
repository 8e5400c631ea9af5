package testenv

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/lag"
)

const (
	bootTimeout    = 5 * time.Minute // MySQL initialises its data first
	givenTimeout   = 30 * time.Second
	controlTimeout = 2 * time.Minute
	probeTimeout   = 3 * time.Second
	probeInterval  = 20 * time.Millisecond
)

// Sources of a server.
const (
	sourceURL       = "url"
	sourceContainer = "container"
	sourceProcess   = "process"
)

//go:embed images/*/official
var officialImages embed.FS

// spec describes one kind of server. A kind is one value, in a file of its own.
type spec struct {
	name    string // names the image's folder; in capitals also the variables DLOCK_TEST_…_URL and DLOCK_TEST_IMAGE_…
	port    int    // inside the container
	program string // on PATH or in /usr/sbin
	pkg     string // the Debian package of the program
	env     map[string]string
	files   map[string][]byte // by the names that they have in listen.dir

	// command returns program and flags for a server that listens at l and keeps its data in l.dir through a kill.
	command func(l listen, args []string) []string
	// url returns what dlock.Open takes for a server started with args that is reached at addr.
	url func(addr string, args []string) string
	// start starts several servers that stand for one. Nil: launch starts one.
	start func(args []string) (*Server, error)
	// probe asks the server, over its own protocol, for product and version. An error means: not ready.
	probe func(ctx context.Context, url string) (version string, err error)
}

// listen is where a server that is to be started listens, and where it keeps its data.
type listen struct {
	host string
	port int
	dir  string
}

func (sp *spec) urlVariable() string {
	return "DLOCK_TEST_" + strings.ToUpper(strings.ReplaceAll(sp.name, "-", "_")) + "_URL"
}
func (sp *spec) imageVariable() string { return "DLOCK_TEST_IMAGE_" + strings.ToUpper(sp.name) }
func (sp *spec) builtImage() string    { return "dlock-test/" + sp.name }

func (sp *spec) officialImage() string {
	name, err := officialImages.ReadFile(path.Join("images", sp.name, "official"))
	if err != nil {
		panic(err) // a spec without its folder of images
	}
	return strings.TrimSpace(string(name))
}

// control starts and stops one server, always at the same address and with the same data.
type control interface {
	pause() error  // stops it as SIGSTOP does: the kernel goes on accepting connections
	resume() error // undoes pause
	kill() error   // SIGKILL, and waits for the end
	start() error  // after kill
	alive() error  // why it is not running
	remove() error // ends it and deletes its data
	logs() string  // the end of what it wrote
}

// Server is a real server. Its methods may be called by many goroutines, but two at once make little sense.
type Server struct {
	Name    string // the kind: "redis"
	URL     string // for dlock.Open
	Addr    string // host:port; for a [Proxy]
	Source  string // "url", "container" or "process"
	Version string // product and version as the server itself reports them: "Redis 8.0.6"

	spec  *spec
	ctl   control                 // nil: given by URL
	again func() (control, error) // starts another one at the same address
}

// DirectURL is the URL of a server in a container at the container's own address, if that can be reached: there no proxy of the
// engine stands before the server, which takes longer for a request than many a server does. It holds until the server is
// restarted. For other servers it is URL.
func (s *Server) DirectURL() string {
	if c, ok := s.ctl.(*container); ok {
		if addr, ok := c.direct(); ok {
			return strings.Replace(s.URL, s.Addr, addr, 1)
		}
	}
	return s.URL
}

// Pause stops the server without ending it: connections stay open, and nothing is answered until resume is called, at the
// latest at the end of the test. A server given by URL cannot be paused: the test is skipped.
func (s *Server) Pause(tb TB) (resume func()) {
	tb.Helper()
	ctl := s.control(tb)
	s.must(tb, "pause", ctl.pause())
	resume = sync.OnceFunc(func() {
		if err := ctl.resume(); err != nil {
			tb.Errorf("resume %s: %v", s.Name, err)
		}
	})
	tb.Cleanup(resume)
	return resume
}

// Kill ends the server with SIGKILL, and returns when it has ended. A server given by URL cannot be killed: the test is skipped.
func (s *Server) Kill(tb TB) {
	tb.Helper()
	s.must(tb, "kill", s.control(tb).kill())
}

// Start starts a killed server at the same address, with the data it had acknowledged, and returns when it answers.
func (s *Server) Start(tb TB) {
	tb.Helper()
	s.must(tb, "start", s.control(tb).start())
	_, err := s.await(bootTimeout)
	s.must(tb, "start", err)
}

// Restart is Kill and Start.
func (s *Server) Restart(tb TB) {
	tb.Helper()
	s.Kill(tb)
	s.Start(tb)
}

// Wipe ends the server with SIGKILL, deletes its data, and starts it again at the same address. It must be one that was started
// for a test alone; a member of an ensemble cannot be wiped.
func (s *Server) Wipe(tb TB) {
	tb.Helper()
	err := s.control(tb).remove()
	s.must(tb, "wipe", err)
	s.ctl, err = s.again()
	s.must(tb, "wipe", err)
	_, err = s.await(bootTimeout)
	s.must(tb, "wipe", err)
}

func (s *Server) control(tb TB) control {
	tb.Helper()
	if s.ctl == nil {
		tb.Skipf("%s was given by %s: it cannot be paused or stopped", s.Name, s.spec.urlVariable())
	}
	return s.ctl
}

func (s *Server) must(tb TB, what string, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatalf("%s %s: %v", what, s.Name, err)
	}
}

// await returns when the server has answered its probe, and with what.
func (s *Server) await(timeout time.Duration) (version string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		version, err := s.ask(ctx)
		if err == nil {
			return version, nil
		}
		if s.ctl != nil {
			if dead := s.ctl.alive(); dead != nil {
				return "", fmt.Errorf("%w\n%s", dead, s.ctl.logs())
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", fmt.Errorf("%s at %s does not answer: %w", s.Name, s.Addr, err)
		}
	}
}

func (s *Server) ask(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return s.spec.probe(ctx, s.URL)
}

// starting bounds how many servers start at a time: each keeps a processor busy meanwhile.
var starting = make(chan struct{}, runtime.NumCPU())

// begin returns when a server may start, and the machine is calm. The caller calls end when it has started.
func begin() (end func()) {
	starting <- struct{}{}
	lag.Calm(context.Background())
	return func() { <-starting }
}

// shared is the one server of each kind that the tests of this process use together.
var shared struct {
	sync.Mutex
	results map[string]result
}

type result struct {
	server *Server
	err    error
}

// share returns the process's server of this kind, started by the first call and stopped by [Main].
func (sp *spec) share(tb TB) *Server {
	tb.Helper()
	if isAlone(tb, sp.urlVariable()) {
		return sp.own(tb, nil)
	}
	res := sp.sharedResult()
	if res.err != nil {
		missing(tb, res.err)
	}
	Announce(tb, res.server.Name, res.server.Source, res.server.Version)
	lag.Calm(tb.Context())
	return res.server
}

func (sp *spec) sharedResult() result {
	shared.Lock()
	defer shared.Unlock()
	res, ok := shared.results[sp.name]
	if !ok {
		if res.server, res.err = sp.given(); res.server == nil && res.err == nil {
			res.server, res.err = sp.launch(nil)
		}
		if shared.results == nil {
			shared.results = make(map[string]result)
		}
		shared.results[sp.name] = res
	}
	return res
}

func stopShared() {
	shared.Lock()
	defer shared.Unlock()
	for _, res := range shared.results {
		if res.err == nil && res.server.ctl != nil {
			if err := res.server.ctl.remove(); err != nil {
				fmt.Fprintf(os.Stderr, "remove %s: %v\n", res.server.Name, err)
			}
		}
	}
	clear(shared.results)
	stopSharedEnsembles()
	closeDocker()
}

// own starts a server with further arguments for one test, at whose end it is removed.
func (sp *spec) own(tb TB, args []string) *Server {
	tb.Helper()
	s, err := sp.launch(args)
	if err != nil {
		missing(tb, err)
	}
	tb.Cleanup(func() {
		if err := s.ctl.remove(); err != nil {
			tb.Errorf("remove %s: %v", s.Name, err)
		}
	})
	Announce(tb, s.Name, s.Source, s.Version)
	return s
}

// given returns the server that the environment names, or nil.
func (sp *spec) given() (*Server, error) {
	raw := os.Getenv(sp.urlVariable())
	if raw == "" {
		return nil, nil
	}
	addr, err := address(raw, sp.port)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sp.urlVariable(), err)
	}
	s := &Server{Name: sp.name, URL: raw, Addr: addr, Source: sourceURL, spec: sp}
	s.Version, err = s.await(givenTimeout)
	return s, err
}

// launch starts a server, in a container where there is Docker and an image, else as a process.
func (sp *spec) launch(args []string) (*Server, error) {
	defer begin()()
	if sp.start != nil {
		return sp.start(args)
	}
	image, dockerErr := findImage(sp)
	if dockerErr == nil {
		return sp.boot(sourceContainer, args, func(port int) (control, error) { return newContainer(sp, image, port, args) })
	}
	program, err := findProgram(sp.program)
	if err != nil {
		return nil, sp.none(dockerErr, err)
	}
	return sp.boot(sourceProcess, args, func(port int) (control, error) { return newProcess(sp, program, port, args) })
}

// boot starts a server on a free port. Another process may take the port first, hence the second attempt.
func (sp *spec) boot(source string, args []string, start func(port int) (control, error)) (*Server, error) {
	var errs error
	for range 2 {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		s := &Server{Name: sp.name, URL: sp.url(addr, args), Addr: addr, Source: source, spec: sp}
		s.again = func() (control, error) { return start(port) }
		if s.ctl, err = s.again(); err == nil {
			if s.Version, err = s.await(bootTimeout); err == nil {
				return s, nil
			}
			err = errors.Join(err, s.ctl.remove())
		}
		errs = errors.Join(errs, fmt.Errorf("start %s as a %s: %w", sp.name, source, err))
	}
	return nil, errs
}

// none says why there is no server, and what to do.
func (sp *spec) none(dockerErr, programErr error) error {
	return fmt.Errorf(`no %[1]s server for the tests:
  %[2]s is not set
  Docker: %[3]w
  %[4]w
set %[2]s, or start Docker and run scripts/images.sh %[1]s, or install the package %[5]s;
DLOCK_TEST_ALLOW_SKIP=1 skips the tests that need it`, sp.name, sp.urlVariable(), dockerErr, programErr, sp.pkg)
}

// freePort returns a port on loopback that nobody listens on. It stays below the range of ports that the kernel gives to
// outgoing connections: one of those could take the port of a killed server, be it a client that dials it and thereby
// connects to itself.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := 20000 + rand.N(12000)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port: %w", err)
}

// address returns the first host of a URL with its port.
func address(raw string, defaultPort int) (string, error) {
	_, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return "", errors.New("not a URL")
	}
	authority, _, _ := strings.Cut(rest, "/")
	hosts := authority[strings.LastIndexByte(authority, '@')+1:]
	first, _, _ := strings.Cut(hosts, ",")
	host, port, err := net.SplitHostPort(first)
	if err != nil {
		host, port = strings.Trim(first, "[]"), ""
	}
	return net.JoinHostPort(host, cmp.Or(port, strconv.Itoa(defaultPort))), nil
}
