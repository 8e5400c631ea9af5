package main

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/backend"
)

// TestSchemes checks that the command accepts each scheme for which the error of an unknown scheme
// names an import, that it accepts no other scheme, and that the named package serves the scheme.
func TestSchemes(t *testing.T) {
	t.Parallel()
	served := make(map[string]string)
	for _, scheme := range backend.Schemes() {
		open, err := backend.Lookup(scheme)
		if err != nil {
			t.Fatal(err)
		}
		name := runtime.FuncForPC(reflect.ValueOf(open).Pointer()).Name()
		name = name[strings.LastIndex(name, "/")+1:] // redisbackend.open
		served[scheme], _, _ = strings.Cut(name, ".")
	}
	if named := imports(t); !maps.Equal(named, served) {
		t.Errorf("the table \"imports\" of backend/registry.go is %v; "+
			"the packages that cmd/dlock/main.go imports have registered %v", named, served)
	}
}

// imports returns the table of schemes and packages in package backend.
func imports(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../backend/registry.go")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nvar imports = ")
	table, _, isTable := strings.Cut(after, "\n}\n")
	rows := regexp.MustCompile(`"([^"]+)": +"([^"]+)"`).FindAllStringSubmatch(table, -1)
	if !isTable || len(rows) == 0 {
		t.Fatal("backend/registry.go has no table of imports")
	}
	packages := make(map[string]string)
	for _, row := range rows {
		packages[row[1]] = row[2]
	}
	return packages
}
