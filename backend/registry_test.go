package backend

import (
	"context"
	"slices"
	"strings"
	"testing"
)

func TestRegistry(t *testing.T) {
	t.Parallel()
	open := func(context.Context, *URL) (Driver, error) { return nil, nil }
	Register("registrytest", open)
	if _, err := Lookup("registrytest"); err != nil {
		t.Error(err)
	}
	if !slices.Contains(Schemes(), "registrytest") {
		t.Errorf("Schemes() = %q", Schemes())
	}
	_, err := Lookup("rediss")
	if err == nil || !strings.Contains(err.Error(), "registrytest") || !strings.Contains(err.Error(), "dlock/redisbackend") {
		t.Errorf("an unknown scheme: %v: it should list the known ones and the import", err)
	}
	for _, scheme := range []string{"registrytest", "", "UPPER"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Register(%q) did not panic", scheme)
				}
			}()
			Register(scheme, open)
		}()
	}
}
