package dlock_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/dlock-go/dlock"

// goPackage is what go list tells of a package.
type goPackage struct {
	ImportPath, Name, Dir string
	Standard              bool
	Imports, Deps         []string
	GoFiles               []string
}

// goList lists packages of this module.
func goList(t *testing.T, args ...string) []goPackage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Name,Dir,Standard,Imports,Deps,GoFiles"}, args...)...).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatal(err)
	}
	var packages []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// TestCoreDependsOnTheStandardLibraryAlone: an application gets no other module but those
// of the drivers that it imports.
func TestCoreDependsOnTheStandardLibraryAlone(t *testing.T) {
	t.Parallel()
	for _, p := range goList(t, "-deps", ".", "./backend", "./conformance") {
		if !p.Standard && p.ImportPath != module && !strings.HasPrefix(p.ImportPath, module+"/") {
			t.Errorf("the core depends on %s", p.ImportPath)
		}
	}
}

// TestWhoImportsWhom are the rules of docs/design.md.
func TestWhoImportsWhom(t *testing.T) {
	t.Parallel()
	packages := goList(t, "./...")
	if len(packages) < 5 {
		t.Fatalf("only %d packages", len(packages))
	}
	for _, p := range packages {
		importer := strings.TrimPrefix(p.ImportPath, module)
		for _, imported := range p.Imports {
			to, ours := strings.CutPrefix(imported, module)
			if ours && !mayImport(importer, to) {
				t.Errorf("dlock%s imports dlock%s", importer, to)
			}
		}
		if isDriver(importer) && slices.Contains(p.Deps, module) {
			t.Errorf("dlock%s depends on the core", importer)
		}
	}
}

// isDriver tells whether a path below the module is a driver's.
func isDriver(path string) bool {
	return strings.HasSuffix(path, "backend") && path != "/backend"
}

// mayImport tells whether a package of this module may import another, without its tests.
func mayImport(importer, imported string) bool {
	switch {
	case imported == "/internal/testenv", imported == "/internal/testenv/failover":
		return strings.HasPrefix(importer, "/internal/testenv/")
	case importer == "/internal/testenv/campaign": // a program
		return true
	case imported == "/internal/campaign":
		return false
	case imported == "/conformance", imported == "/conformance/faultproxy":
		return importer == "/internal/testenv" || importer == "/internal/memnet" || importer == "/conformance/broken" || importer == "/command"
	case isDriver(imported):
		return importer == "/internal/memnet" || strings.HasPrefix(importer, "/cmd/") || importer == "/command" && imported == "/filebackend" || strings.HasPrefix(importer, "/bench") || strings.HasPrefix(importer, "/examples/")
	case importer == "/internal/testenv/failover": // whose cases are the tests of drivers
		return imported == "" || imported == "/internal/testenv" || imported == "/internal/lag"
	case imported == "":
		return !isDriver(importer) && importer != "/backend" && !strings.HasPrefix(importer, "/internal/") || importer == "/internal/campaign"
	case importer == "/backend":
		return imported == "/internal/bound"
	}
	return true
}
