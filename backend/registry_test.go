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
	if err == nil || !strings.Contains(err.Error(), "registrytest") ||
		!strings.Contains(err.Error(), "dlock/redisbackend") {
		t.Errorf("an unknown scheme: %v, want an error with the known schemes and the import", err)
	}
	if _, err := Lookup("foreign"); err == nil || strings.Contains(err.Error(), "import") {
		t.Errorf("a scheme without a package in this module: %v", err)
	}
	for scheme, open := range map[string]Opener{
		"registrytest": open, "": open, "UPPER": open, "without": nil,
	} {
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
