package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// TestRun is the same program on every backend, its URL changed alone.
func TestRun(t *testing.T) {
	t.Parallel()
	for scheme, url := range map[string]func(t *testing.T) string{
		"mem":       func(t *testing.T) string { return "mem:" + filepath.Base(t.TempDir()) },
		"file":      func(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "locks") },
		"redis":     func(t *testing.T) string { return testenv.Redis(t).URL },
		"memcached": func(t *testing.T) string { return testenv.Memcached(t).URL },
		"zk":        func(t *testing.T) string { return testenv.ZooKeeper(t).URL },
		"etcd":      func(t *testing.T) string { return testenv.Etcd(t).URL },
		"mysql":     func(t *testing.T) string { return testenv.MySQL(t).URL },
	} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if err := run(t.Context(), url(t), &out); err != nil {
				t.Fatal(err)
			}
			if got, want := out.String(), "sold 50 of 50, 0 left\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
