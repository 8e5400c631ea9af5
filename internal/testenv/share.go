package testenv

import (
	"fmt"
	"os"
	"sync"

	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv/group"
	"github.com/dlock-go/dlock/internal/testenv/runner"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// Alone returns a server, a group or an ensemble that only this test uses. So the test may stop it
// while other tests run. kind is [Redis], [EtcdEnsemble] or another function for a server. The
// server is removed when the test ends. If the environment gives a URL, Alone returns the server of
// that URL, which all tests share.
func Alone[S any](tb TB, kind func(TB) S) S {
	tb.Helper()
	return kind(aloneTB{TB: tb})
}

// ForSessions is [Alone] for a test of locks that end with their connection. Its server has
// "-session" after its name in the report.
func ForSessions(tb TB, kind func(TB) *Server) *Server {
	tb.Helper()
	return kind(aloneTB{tb, "-session"})
}

// aloneTB marks the TB of a test that uses its server alone.
type aloneTB struct {
	TB
	suffix string // of the server's name in the report
}

// isAlone reports whether tb uses its server alone, and the environment gives no URL.
func isAlone(tb TB, urlVariable string) bool {
	_, alone := tb.(aloneTB)
	return alone && os.Getenv(urlVariable) == ""
}

// share returns the process's server of this kind. The first call starts it, and [Main] stops it.
func share(tb TB, r *server.Recipe) *Server {
	tb.Helper()
	if isAlone(tb, r.URLVariable()) {
		return own(tb, r)
	}
	s, err := sharedServers.get(r.Name, func() (*Server, error) { return wrapped(r.Obtain()) })
	if err != nil {
		missing(tb, err)
	}
	announceServer(tb, s.Identity)
	lag.Calm(tb.Context())
	return s
}

// own starts a server for one test. The server is removed when the test ends.
func own(tb TB, r *server.Recipe) *Server {
	tb.Helper()
	s, err := wrapped(r.Launch())
	if err != nil {
		missing(tb, err)
	}
	removeAfter(tb, s.Name, s)
	announceServer(tb, s.Identity)
	return s
}

func wrapped(i *server.Instance, err error) (*Server, error) {
	if err != nil {
		return nil, err
	}
	return newServer(i), nil
}

// shareEnsemble returns the process's ensemble of this kind when all members answer, because an
// earlier test may have stopped some of them. The first call starts the ensemble, and [Main] stops
// it.
func shareEnsemble(tb TB, r *group.EnsembleRecipe) *Ensemble {
	tb.Helper()
	if isAlone(tb, r.URLVariable()) {
		return ownEnsemble(tb, r)
	}
	e, err := sharedEnsembles.get(r.Name, func() (*Ensemble, error) {
		return wrappedEnsemble(r.Obtain())
	})
	if err != nil {
		missing(tb, err)
	}
	e.Await(tb)
	announceServer(tb, e.Identity)
	return e
}

// ownEnsemble starts an ensemble for one test. The ensemble is removed when the test ends.
func ownEnsemble(tb TB, r *group.EnsembleRecipe) *Ensemble {
	tb.Helper()
	e, err := wrappedEnsemble(r.Launch())
	if err != nil {
		missing(tb, err)
	}
	removeAfter(tb, e.Name, e)
	announceServer(tb, e.Identity)
	return e
}

func wrappedEnsemble(e *group.Ensemble, err error) (*Ensemble, error) {
	if err != nil {
		return nil, err
	}
	return newEnsemble(e), nil
}

// removable is a [*Server] or an [*Ensemble].
type removable interface{ remove() error }

// removeAfter removes a server or an ensemble when the test ends.
func removeAfter(tb TB, name string, r removable) {
	tb.Helper()
	tb.Cleanup(func() {
		if err := r.remove(); err != nil {
			tb.Errorf("remove %s: %v", name, err)
		}
	})
}

// Servers and ensembles that all tests of this process use.
var (
	sharedServers   shared[*Server]
	sharedEnsembles shared[*Ensemble]
)

// shared has at most one server or ensemble of each kind.
type shared[S removable] struct {
	mu      sync.Mutex
	results map[string]result[S] // by the name of the kind
}

type result[S removable] struct {
	server S
	err    error
}

// get returns what start returned at the first call with this name.
func (sh *shared[S]) get(name string, start func() (S, error)) (S, error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	res, ok := sh.results[name]
	if !ok {
		res.server, res.err = start()
		if sh.results == nil {
			sh.results = make(map[string]result[S])
		}
		sh.results[name] = res
	}
	return res.server, res.err
}

// stop removes all servers.
func (sh *shared[S]) stop() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for name, res := range sh.results {
		if res.err != nil {
			continue
		}
		if err := res.server.remove(); err != nil {
			fmt.Fprintf(os.Stderr, "remove %s: %v\n", name, err)
		}
	}
	clear(sh.results)
}

// stopShared removes all shared servers and ensembles.
func stopShared() {
	sharedServers.stop()
	sharedEnsembles.stop()
	runner.Close()
}
