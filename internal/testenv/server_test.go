package testenv

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/testenv/recipe"
	"github.com/dlock-go/dlock/internal/testenv/runner"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// kinds are the servers of the tests in this file, with the product that each must report.
var kinds = []struct {
	recipe  func(args ...string) *server.Recipe
	product string
}{
	{recipe.Redis, "Redis "},
	{recipe.Valkey, "Valkey "},
}

func TestShared(t *testing.T) {
	for _, kind := range kinds {
		r := kind.recipe()
		t.Run(r.Name, func(t *testing.T) {
			s := share(t, r)
			if !strings.HasPrefix(s.Version, kind.product) {
				t.Errorf("the server reports version %q", s.Version)
			}
			if again := share(t, kind.recipe()); again != s {
				t.Error("a second call returns another server")
			}
		})
	}
}

func TestOwn(t *testing.T) {
	for _, kind := range kinds {
		r := kind.recipe("--requirepass", "s3cret")
		t.Run(r.Name, func(t *testing.T) { controlled(t, own(t, r)) })
	}
}

// TestProcess tests servers as processes even if there is Docker, if their programs are installed.
func TestProcess(t *testing.T) {
	for _, kind := range kinds {
		r := kind.recipe()
		t.Run(r.Name, func(t *testing.T) {
			program, err := runner.FindProgram(&r.Spec)
			if err != nil {
				t.Log(err)
				return
			}
			i, err := r.LaunchFrom(program)
			if err != nil {
				t.Fatal(err)
			}
			controlled(t, newServer(i))
			if err := i.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
}

// prompt limits the time of a change.
const prompt = time.Minute

// controlled pauses and restarts a server.
func controlled(t *testing.T, s *Server) {
	t.Helper()
	addr := s.Addr
	write(t, s, "kept")

	resume := s.Pause(t)
	unanswered(t, s)
	resume()
	if _, err := s.instance.Await(prompt); err != nil {
		t.Errorf("after resume: %v", err)
	}

	s.Kill(t)
	if _, err := s.instance.Probe(t.Context()); err == nil {
		t.Error("a killed server answers")
	}
	s.Start(t)
	if s.Addr != addr {
		t.Errorf("the address changed from %s to %s", addr, s.Addr)
	}
	if got := read(t, s); got != "kept" {
		t.Errorf("after the restart the value is %q, want kept", got)
	}
	s.Restart(t)
}

// unanswered checks that a server does not answer.
func unanswered(t *testing.T, s *Server) {
	t.Helper()
	if answers(t.Context(), s) {
		t.Errorf("%s answers", s.Name)
	}
}

// answers reports whether s answers soon.
func answers(ctx context.Context, s *Server) bool {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err := s.instance.Probe(ctx)
	return err == nil
}

func write(t *testing.T, s *Server, value string) {
	t.Helper()
	if err := clientOf(t, s).Set(t.Context(), "key", value, 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, s *Server) string {
	t.Helper()
	value, err := clientOf(t, s).Get(t.Context(), "key").Result()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// clientOf returns a client of a Redis server.
func clientOf(t *testing.T, s *Server) *redis.Client {
	t.Helper()
	opt, err := redis.ParseURL(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestGiven(t *testing.T) {
	s, r := Redis(t), recipe.Redis()
	t.Setenv(r.URLVariable(), s.URL)
	given, err := r.Obtain()
	if err != nil {
		t.Fatal(err)
	}
	same := given.Addr == s.Addr && given.Version == s.Version
	if given.Source != server.SourceURL || !same || given.Control != nil {
		t.Errorf("Obtain = %+v", given)
	}
	if url := newServer(given).DirectURL(); url != s.URL {
		t.Errorf("DirectURL of a server given by URL = %s", url)
	}
	t.Setenv(r.URLVariable(), "127.0.0.1:6379")
	if _, err := r.Obtain(); err == nil {
		t.Error("an address is accepted as a URL")
	}
}

func TestDirectURL(t *testing.T) {
	t.Parallel()
	s := Redis(t)
	direct := *s.instance
	direct.URL = s.DirectURL()
	version, err := direct.Probe(t.Context())
	if err != nil || version != s.Version {
		t.Errorf("the probe of %s = %q, %v, want %q", direct.URL, version, err, s.Version)
	}
}

// TestBootFails checks that the error of a server that cannot start has the server's output.
func TestBootFails(t *testing.T) {
	_, err := recipe.Redis("--no-such-flag", "x").Launch()
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("Launch: %v", err)
	}
}
