package testenv

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/announce"
	"github.com/dlock-go/dlock/internal/testenv/recipe"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

var ensembles = []struct {
	share   func(TB) *Ensemble
	product string
}{
	{EtcdEnsemble, "etcd "},
	{ZooKeeperEnsemble, "ZooKeeper "},
}

func TestEnsembles(t *testing.T) {
	for _, kind := range ensembles {
		t.Run(kind.product, func(t *testing.T) {
			e := kind.share(t)
			if again := kind.share(t); again != e {
				t.Error("a second call returns another ensemble")
			}
			if !strings.HasPrefix(e.Version, kind.product) {
				t.Errorf("the servers report version %q", e.Version)
			}
			for _, s := range e.Members {
				if !strings.Contains(e.URL, s.Addr) {
					t.Errorf("%s does not contain %s", e.URL, s.Addr)
				}
			}
			t.Run("kill", func(t *testing.T) { succeeds(t, e, e.Kill) })
			t.Run("pause", func(t *testing.T) {
				succeeds(t, e, func(tb TB, s *Server) func() { return s.Pause(tb) })
			})
			t.Run("isolate", func(t *testing.T) { succeeds(t, e, e.Isolate) })
			t.Run("restart", func(t *testing.T) {
				e.Restart(t)
				whole(t, e)
			})
			t.Run("pause all", func(t *testing.T) {
				resume := e.Pause(t)
				for _, s := range e.Members {
					unanswered(t, s)
				}
				resume()
				whole(t, e)
			})
		})
	}
}

// succeeds takes the leader away until another member leads, and then brings it back. A leader that
// is cut off may learn that only after another member leads.
func succeeds(t *testing.T, e *Ensemble, away func(TB, *Server) (back func())) {
	t.Helper()
	leader := e.Leader(t)
	back := away(t, leader)
	ctx, cancel := context.WithTimeout(t.Context(), prompt)
	defer cancel()
	if e.Successor(ctx, leader) == nil {
		t.Fatal("no other member reports that it leads")
	}
	for answers(ctx, leader) {
		time.Sleep(20 * time.Millisecond)
	}
	if ctx.Err() != nil {
		t.Fatal("the former leader still answers")
	}
	for _, s := range e.Others(leader) {
		if _, err := s.instance.Await(prompt); err != nil {
			t.Error(err)
		}
	}
	back()
	whole(t, e)
}

func whole(t *testing.T, e *Ensemble) {
	t.Helper()
	if err := e.group.Await(prompt); err != nil {
		t.Error(err)
	}
	if e.Leader(t) == e.Follower(t) {
		t.Error("the leader is a follower")
	}
}

func TestGivenEnsemble(t *testing.T) {
	e := EtcdEnsemble(t)
	t.Setenv("DLOCK_TEST_ETCD_3_URL", e.URL)
	given, err := wrappedEnsemble(recipe.EtcdEnsemble().Obtain())
	if err != nil {
		t.Fatal(err)
	}
	same := given.URL == e.URL && given.Version == e.Version
	if given.Source != server.SourceURL || !same || len(given.Members) != len(e.Members) {
		t.Errorf("given ensemble: %+v", given)
	}
	if given.Leader(t).Addr != e.Leader(t).Addr {
		t.Error("the given ensemble has another leader")
	}
	f := &skippingTB{fakeTB{T: t}}
	for _, fault := range []func(){
		func() { given.Kill(f, given.Members[0]) },
		func() { given.Isolate(f, given.Members[0]) },
	} {
		f.skipped = ""
		func() {
			defer func() { _ = recover() }()
			fault()
		}()
		if f.skipped == "" {
			t.Error("a given ensemble was not protected from a fault")
		}
	}
}

func TestEnsembleIsAnnounced(t *testing.T) {
	f := &fakeTB{T: t, name: t.Name()}
	announced.Clear()
	EtcdEnsemble(f)
	if len(f.logs) != 1 {
		t.Fatalf("announced: %q", f.logs)
	}
	if got, ok := announce.Parse(f.logs[0]); !ok || got.Backend != "etcd-3" {
		t.Errorf("announced: %+v", got)
	}
}
