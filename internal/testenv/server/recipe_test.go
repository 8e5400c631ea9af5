package server

import (
	"os"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv/runner"
)

func TestAddress(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://h":                    "h:6379",
		"redis://u:p@h:1/2?x=y":        "h:1",
		"rediss://[::1]:7":             "[::1]:7",
		"redis://[::1]":                "[::1]:6379",
		"redis+cluster://a:1,b:2/path": "a:1",
	} {
		if got, err := address(raw, 6379); err != nil || got != want {
			t.Errorf("address(%q) = %q, %v, want %q", raw, got, err, want)
		}
	}
}

// TestNotFound checks that the error of a missing server has instructions.
func TestNotFound(t *testing.T) {
	r := &Recipe{Spec: runner.Spec{Name: "redis", Package: "redis-server"}}
	got := r.notFound(os.ErrNotExist).Error()
	for _, want := range []string{
		"DLOCK_TEST_REDIS_URL", "scripts/images.sh redis", "redis-server", os.ErrNotExist.Error(),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the error does not contain %s:\n%s", want, got)
		}
	}
}

func TestURLVariable(t *testing.T) {
	if got, want := URLVariable("redis-cluster"), "DLOCK_TEST_REDIS_CLUSTER_URL"; got != want {
		t.Errorf("URLVariable = %s, want %s", got, want)
	}
}
