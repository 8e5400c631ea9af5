package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// TestRun runs the same program on every backend. Only the URL differs.
func TestRun(t *testing.T) {
	t.Parallel()
	for scheme, url := range map[string]func(tb testenv.TB) string{
		"mem": func(tb testenv.TB) string { return "mem:" + filepath.Base(tb.TempDir()) },
		"file": func(tb testenv.TB) string {
			return "file:" + filepath.Join(tb.TempDir(), "locks")
		},
		"redis":     func(tb testenv.TB) string { return testenv.Redis(tb).URL },
		"memcached": func(tb testenv.TB) string { return testenv.Memcached(tb).URL },
		"zk":        func(tb testenv.TB) string { return testenv.ZooKeeper(tb).URL },
		"etcd":      func(tb testenv.TB) string { return testenv.Etcd(tb).URL },
		"mysql":     func(tb testenv.TB) string { return testenv.MySQL(tb).URL },
		"postgres":  func(tb testenv.TB) string { return testenv.Postgres(tb).URL },
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
