package testenv

import (
	"sync"

	"github.com/dlock-go/dlock/internal/testenv/group"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// Server is a real server. Its methods may be called from several goroutines, but a test should not
// make two changes at the same time.
type Server struct {
	server.Identity // Name, URL, Addr, Source, Version

	instance *server.Instance
	members  []*Server // of a RedisGroup that was not given by URL
}

// newServer returns the view of tests on an instance.
func newServer(i *server.Instance) *Server {
	s := &Server{Identity: i.Identity, instance: i}
	if g, ok := i.Control.(*group.Group); ok {
		for _, m := range g.Members {
			s.members = append(s.members, newServer(m))
		}
	}
	return s
}

// DirectURL returns the URL of a server in a container at the container's own address, if this
// machine can connect to it. So requests avoid Docker's proxy, which can take longer than the
// server itself. The URL is valid until the server is restarted. For other servers DirectURL
// returns URL.
func (s *Server) DirectURL() string { return s.instance.DirectURL() }

// Pause stops the server without ending it: connections stay open, but the server does not answer
// until resume is called or the test ends. If the server was given by URL, the test is skipped,
// because such a server cannot be paused.
func (s *Server) Pause(tb TB) (resume func()) {
	tb.Helper()
	s.mayStop(tb)
	control := s.instance.Control
	s.must(tb, "pause", control.Pause())
	resume = sync.OnceFunc(func() {
		if err := control.Resume(); err != nil {
			tb.Errorf("resume %s: %v", s.Name, err)
		}
	})
	tb.Cleanup(resume)
	return resume
}

// Kill ends the server with SIGKILL and returns when it has ended. If the server was given by URL,
// the test is skipped.
func (s *Server) Kill(tb TB) {
	tb.Helper()
	s.mayStop(tb)
	s.must(tb, "kill", s.instance.Control.Kill())
}

// Start starts a killed server at the same address, with all data that it had acknowledged. It
// returns when the server answers.
func (s *Server) Start(tb TB) {
	tb.Helper()
	s.mayStop(tb)
	s.must(tb, "start", s.instance.Start())
}

// Restart calls Kill and Start.
func (s *Server) Restart(tb TB) {
	tb.Helper()
	s.Kill(tb)
	s.Start(tb)
}

// Wipe ends the server with SIGKILL, deletes its data and starts it again at the same address. The
// server must have been started for this test alone. A member of an ensemble cannot be wiped.
func (s *Server) Wipe(tb TB) {
	tb.Helper()
	s.mayStop(tb)
	s.must(tb, "wipe", s.instance.Wipe())
}

// mayStop skips the test if the server was given by URL.
func (s *Server) mayStop(tb TB) {
	tb.Helper()
	if s.instance.Control == nil {
		tb.Skipf("%s was given by %s: it cannot be paused or stopped",
			s.Name, s.instance.URLVariable())
	}
}

func (s *Server) must(tb TB, what string, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatalf("%s %s: %v", what, s.Name, err)
	}
}

func (s *Server) remove() error { return s.instance.Remove() }

// killed kills a server until start is called or the test ends.
func killed(tb TB, s *Server) (start func()) {
	tb.Helper()
	s.Kill(tb)
	start = sync.OnceFunc(func() { s.Start(tb) })
	tb.Cleanup(start)
	return start
}

// addrsOf returns the addresses of servers.
func addrsOf(servers []*Server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr
	}
	return addrs
}
