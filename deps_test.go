package dlock_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/dlock-go/dlock"

// goPackage has the fields of a package that go list prints.
type goPackage struct {
	ImportPath, Name, Dir string
	Standard              bool
	Imports, Deps         []string
	GoFiles               []string
}

// goList returns packages of this module.
func goList(t *testing.T, args ...string) []goPackage {
	t.Helper()
	fields := "-json=ImportPath,Name,Dir,Standard,Imports,Deps,GoFiles"
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", fields}, args...)...)
	out, err := list.Output()
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

// histogram is the module that package bench needs.
const histogram = "github.com/HdrHistogram/hdrhistogram-go"

// TestCoreDependsOnTheStandardLibraryAlone checks that an application gets only the modules of the
// drivers that it imports. The tests of a driver outside of this module get the modules of
// the conformance suite.
func TestCoreDependsOnTheStandardLibraryAlone(t *testing.T) {
	t.Parallel()
	if modules := foreign(t, ".", "./backend"); len(modules) > 0 {
		t.Errorf("the core depends on %v", modules)
	}
	if modules := foreign(t, "./conformance"); !slices.Equal(modules, []string{histogram}) {
		t.Errorf("the suite depends on %v, want %s alone", modules, histogram)
	}
}

// foreign returns the packages of other modules that packages of this module depend on.
func foreign(t *testing.T, packages ...string) (found []string) {
	t.Helper()
	for _, p := range goList(t, append([]string{"-deps"}, packages...)...) {
		if !p.Standard && p.ImportPath != module && !strings.HasPrefix(p.ImportPath, module+"/") {
			found = append(found, p.ImportPath)
		}
	}
	return found
}

// TestImports checks the rules of docs/design.md.
func TestImports(t *testing.T) {
	t.Parallel()
	packages := goList(t, "./...")
	if len(packages) < 5 {
		t.Fatalf("go list returned only %d packages", len(packages))
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

// TestRootStartsNoGoroutine checks that users meet a front: goroutines belong to the engine.
func TestRootStartsNoGoroutine(t *testing.T) {
	t.Parallel()
	for _, name := range goList(t, ".")[0].GoFiles {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			selector, isSelector := n.(*ast.SelectorExpr)
			_, isGo := n.(*ast.GoStmt)
			if isSelector {
				isGo = selector.Sel.Name == "Go" || selector.Sel.Name == "AfterFunc"
			}
			if isGo {
				t.Errorf("%s starts a goroutine", files.Position(n.Pos()))
			}
			return true
		})
	}
}

// TestRulesForbid checks that the rules of imports forbid what they are for.
func TestRulesForbid(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		importer, imported string
		want               bool
	}{
		{"/redisbackend", "/backend", true},
		{"/redisbackend", "", false},
		{"/redisbackend", "/zkbackend", false},
		{"/redisbackend", "/conformance/faultproxy", false},
		{"", "/membackend", false},
		{"/backend", "/internal/engine", false},
		{"/internal/engine", "", false},
		{"/command", "/conformance", true},
		{"/command", "/internal/testenv", false},
		{"/bench", "/internal/testenv/raw", false},
		{"/internal/testenv/raw", "/internal/testenv", true},
	} {
		if got := mayImport(test.importer, test.imported); got != test.want {
			t.Errorf("dlock%s may import dlock%s: %v", test.importer, test.imported, got)
		}
	}
}

// isDriver reports whether a path below the module is a driver's package.
func isDriver(path string) bool {
	return strings.HasSuffix(path, "backend") && path != "/backend"
}

// rules are the imports between packages of this module, without their tests. The first rule for an
// imported package decides; a package without a rule may be imported by all.
var rules = []struct {
	imported string // a path below the module, or a pattern of [covers]
	by       []string
}{
	{"/internal/testenv/...", []string{"/internal/testenv/..."}},
	{"/internal/campaign", []string{"/internal/testenv/campaign"}},
	{"/conformance/...", []string{
		"/conformance/...", "/command", "/internal/memnet", "/internal/testenv/...",
	}},
	{"/filebackend", []string{
		"/command", "/cmd/...", "/examples/...", "/internal/testenv/campaign",
	}},
	{"/...backend", []string{
		"/cmd/...", "/examples/...", "/bench/...", "/internal/memnet", "/internal/testenv/campaign",
	}},
	{"/internal/engine", []string{""}},
	{"/internal/bound", []string{"", "/backend", "/internal/...", "/...backend"}},
	{"/internal/abort", []string{"/...backend"}},
	{"/internal/background", []string{"/...backend", "/internal/session"}},
	{"/internal/session", []string{"/...backend"}},
	{"", []string{
		"/bench/...", "/cmd/...", "/command", "/conformance/...", "/examples/...",
		"/internal/campaign", "/internal/testenv/...",
	}},
}

// mayImport reports whether a package of this module may import another one.
func mayImport(importer, imported string) bool {
	for _, r := range rules {
		if covers(r.imported, imported) && imported != "/backend" {
			return slices.ContainsFunc(r.by, func(by string) bool { return covers(by, importer) })
		}
	}
	return true
}

// covers reports whether a pattern covers a path. "..." stands for any text; "/a/..." also covers
// "/a".
func covers(pattern, path string) bool {
	prefix, suffix, isPattern := strings.Cut(pattern, "...")
	switch {
	case !isPattern:
		return path == pattern
	case path == strings.TrimSuffix(prefix, "/") && suffix == "" && prefix != "/":
		return true
	}
	return strings.HasPrefix(path, prefix) && strings.HasSuffix(path, suffix)
}
