package dlock_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// driverFiles are the files that name each driver, see CONTRIBUTING.md. A driver without a server
// is missing in some of them.
//
// name is a regular expression for the name. SCHEME stands for a scheme of the driver's URLs, and
// SHORT for the name of its package without "backend". Empty, name is the name of the package.
var driverFiles = []struct {
	file, name string
	serverOnly bool
}{
	{file: "backend/registry.go"},
	{file: "cmd/dlock/main.go"},
	{file: "command/main_test.go", serverOnly: true},
	{file: "command/backends_test.go", name: `(?i)\bSCHEME`, serverOnly: true},
	{file: "command/readme_test.go", name: `(?i)SCHEME`},
	{file: "command/verify_server.go", name: `"SCHEME": +"[0-9]+"`, serverOnly: true},
	{file: "examples/leader/main.go"},
	{file: "examples/stock/main.go"},
	{file: "internal/mutants/list.go", name: `SHORTMutants`},
	{file: "internal/testenv/campaign/servers.go", name: `(?i)SCHEME`, serverOnly: true},
	{
		file: "internal/testenv/benchmarks/main.go", name: `(?i)\btestenv\.NewSCHEME\(`,
		serverOnly: true,
	},
	{file: "bench/peers/peers.go", serverOnly: true},
	{file: "README.md"},
	{file: "docs/benchmarks.md", name: `(?i)\bSCHEME`, serverOnly: true},
	{file: "docs/choosing-a-backend.md", name: `(?im)^\| \*\*SCHEME\b`},
	{file: "docs/design.md", name: `(?m)^\| \|.* SCHEME \|`}, // a column of the table of drivers
}

// serverless are the drivers without a server.
var serverless = map[string]bool{"filebackend": true, "membackend": true}

// TestEveryDriverIsNamed checks that a driver is not forgotten where each of them has to be named.
func TestEveryDriverIsNamed(t *testing.T) {
	t.Parallel()
	drivers := glob(t, "?*backend")
	if len(drivers) < 7 {
		t.Fatalf("found the drivers %q", drivers)
	}
	for _, f := range driverFiles {
		text := readFile(t, f.file)
		for _, driver := range drivers {
			name := strings.NewReplacer(
				"SCHEME", "("+strings.Join(schemesOf(t, driver), "|")+")",
				"SHORT", strings.TrimSuffix(driver, "backend"),
			).Replace(cmp.Or(f.name, driver))
			isNamed := regexp.MustCompile(name).MatchString(text)
			if !isNamed && (!f.serverOnly || !serverless[driver]) {
				t.Errorf("%s does not name %s, as %s: see \"Writing a new backend\" in "+
					"CONTRIBUTING.md", f.file, driver, name)
			}
		}
	}
}

// schemesOf returns the schemes of a driver in the table of backend/registry.go, or the name of a
// driver that is missing there. Each is quoted for a regular expression.
func schemesOf(t *testing.T, driver string) (schemes []string) {
	t.Helper()
	row := regexp.MustCompile(`"([a-z+]+)": +"` + driver + `"`)
	for _, match := range row.FindAllStringSubmatch(readFile(t, "backend/registry.go"), -1) {
		schemes = append(schemes, regexp.QuoteMeta(match[1]))
	}
	if len(schemes) == 0 {
		t.Errorf("backend/registry.go has no scheme of %s", driver)
		schemes = append(schemes, strings.TrimSuffix(driver, "backend"))
	}
	return schemes
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEveryOptionHasATest checks that tests use each option of a lock.
func TestEveryOptionHasATest(t *testing.T) {
	t.Parallel()
	tests := readAll(t, "*_test.go")
	options := regexp.MustCompile(`(?m)^func (With\w+)\(`).FindAllStringSubmatch(
		readFile(t, "options.go"), -1)
	if len(options) < 10 {
		t.Fatalf("found %d options", len(options))
	}
	for _, option := range options {
		if !strings.Contains(tests, "dlock."+option[1]+"(") {
			t.Errorf("no test uses %s: options_test.go has the tests of options", option[1])
		}
	}
}

// TestEveryParameterHasATest checks that each parameter of a URL is documented, and that the test
// of the driver's options has it.
func TestEveryParameterHasATest(t *testing.T) {
	t.Parallel()
	taken := regexp.MustCompile(`\bu\.Take\w*\("([a-z-]+)"`)
	found := 0
	for _, driver := range append(glob(t, "?*backend"), "backend/tlsfile") {
		tests := driver + "/options_test.go"
		if driver == "backend/tlsfile" {
			tests = driver + "/tlsfile_test.go"
		}
		for _, match := range taken.FindAllStringSubmatch(readAll(t, driver+"/*.go"), -1) {
			name := match[1]
			found++
			if !strings.Contains(readFile(t, tests), name+"=") {
				t.Errorf("%s does not have the parameter %s: add it to TestParameters", tests, name)
			}
			if driver == "backend/tlsfile" {
				continue // the page of each driver names them
			}
			if !strings.Contains(readFile(t, driver+"/doc.go"), name) {
				t.Errorf("%s/doc.go does not document the parameter %s", driver, name)
			}
		}
	}
	if found < 15 {
		t.Fatalf("found %d parameters", found)
	}
}

// TestEveryFieldHasATest checks that the test of a driver's options sets each field of its Options:
// also a field without a parameter, which a URL sets from its user, path or TTL.
func TestEveryFieldHasATest(t *testing.T) {
	t.Parallel()
	structure := regexp.MustCompile(`(?s)\ntype Options struct \{\n(.*?)\n\}`)
	fields := regexp.MustCompile(`(?m)^\t([A-Z]\w*(?:, [A-Z]\w*)*) `)
	for _, driver := range glob(t, "?*backend") {
		options := structure.FindStringSubmatch(readFile(t, driver+"/options.go"))
		if options == nil {
			t.Errorf("%s/options.go has no type Options", driver)
			continue
		}
		tests := readFile(t, driver+"/options_test.go")
		for _, match := range fields.FindAllStringSubmatch(options[1], -1) {
			for field := range strings.SplitSeq(match[1], ", ") {
				if !regexp.MustCompile(`\bOptions\{[^}]*\b` + field + `:`).MatchString(tests) {
					t.Errorf("%s/options_test.go does not set Options.%s: add it to TestParameters",
						driver, field)
				}
			}
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func readAll(t *testing.T, pattern string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range glob(t, pattern) {
		all.WriteString(readFile(t, name))
	}
	return all.String()
}

// driverShape are names that each driver declares, by file and in this order.
var driverShape = map[string][]string{
	"options.go": {"Options", "withDefaults", "target", "parseTarget"},
	"open.go":    {"init", "New", "open"},
	"driver.go": {
		"driver", "newDriver", "Acquire", "Renew", "Release", "Capabilities", "Close",
	},
	"driver_test.go":  {"TestConformance", "BenchmarkConformance"},
	"example_test.go": {"ExampleNew", "Example_openFromURL"},
}

// driverHeadings are the headings that the page of each driver has, in this order.
var driverHeadings = []string{"URLs", "Guarantees", "Fencing", "Waiting", "Server requirements"}

// TestDriversHaveTheSameShape checks that a reader of one driver finds the same things in the same
// order in all others.
func TestDriversHaveTheSameShape(t *testing.T) {
	t.Parallel()
	heading := regexp.MustCompile(`(?m)^// # (.+)$`)
	complies := regexp.MustCompile(`\b_ backend\.Driver += \(\*driver\)\(nil\)`)
	for _, driver := range glob(t, "?*backend") {
		for file, want := range driverShape {
			checkOrder(t, driver+"/"+file, declared(t, driver+"/"+file), want)
		}
		var headings []string
		for _, match := range heading.FindAllStringSubmatch(readFile(t, driver+"/doc.go"), -1) {
			headings = append(headings, match[1])
		}
		checkOrder(t, driver+"/doc.go", headings, driverHeadings)
		if !complies.MatchString(readFile(t, driver+"/driver.go")) {
			t.Errorf("%s/driver.go does not check that the driver is a backend.Driver", driver)
		}
	}
}

// checkOrder checks that names has all of want, in this order.
func checkOrder(t *testing.T, file string, names, want []string) {
	t.Helper()
	found := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !slices.Contains(want, name)
	})
	if found = slices.Compact(found); !slices.Equal(found, want) {
		t.Errorf("%s has %q, want %q in this order", file, found, want)
	}
}

// declared returns the names that a file declares at its top level, with methods.
func declared(t *testing.T, file string) (names []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				names = append(names, namesOf(spec)...)
			}
		}
	}
	return names
}

// namesOf returns the names of one declaration. An import has none.
func namesOf(spec ast.Spec) (names []string) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		names = append(names, spec.Name.Name)
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

// TestTableOfDrivers checks that each place in the table of drivers in docs/design.md exists, and
// that the table has each file of a driver.
func TestTableOfDrivers(t *testing.T) {
	t.Parallel()
	rows := tableOfDrivers(t)
	if drivers := glob(t, "?*backend"); len(rows[0])-1 != len(drivers) {
		t.Errorf("the table has the columns %q, want %q", rows[0], drivers)
	}
	places := 0
	for column, name := range rows[0] {
		if column == 0 {
			continue
		}
		driver := strings.Replace(name, "postgres", "pg", 1) + "backend"
		found := map[string]bool{driver + "/doc.go": true}
		for _, row := range rows[1:] {
			for _, p := range placesOf(t, driver, row[0], row[column]) {
				places++
				found[p.file] = true
				if p.name != "" && !slices.Contains(declared(t, p.file), p.name) {
					t.Errorf("%q: %s does not declare %s", row[0], p.file, p.name)
				}
			}
		}
		for _, file := range glob(t, driver+"/*.go") {
			file = filepath.ToSlash(file)
			if !found[file] && !strings.HasSuffix(file, "_test.go") {
				t.Errorf("the table of drivers in docs/design.md does not have %s", file)
			}
		}
	}
	if places < 200 {
		t.Errorf("found only %d places", places)
	}
}

// tableOfDrivers returns the cells of the table, and its heading as the first row.
func tableOfDrivers(t *testing.T) (rows [][]string) {
	t.Helper()
	_, table, _ := strings.Cut(readFile(t, "docs/design.md"), "\n| | redis |")
	table, _, _ = strings.Cut("| | redis |"+table, "\n\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(rows) > 0 && len(cells) != len(rows[0]) {
			t.Fatalf("the row %q has %d cells, want %d", cells[0], len(cells), len(rows[0]))
		}
		if !strings.HasPrefix(cells[0], "---") {
			rows = append(rows, cells)
		}
	}
	if len(rows) < 20 {
		t.Fatalf("found only %d rows", len(rows))
	}
	return rows
}

// place is where a driver has something: a file, and a name in it, unless the name is empty.
type place struct{ file, name string }

// code matches a span of code in a document.
var code = regexp.MustCompile("`([^`]+)`")

// placesOf returns the places in a cell of the table of drivers. They are in the file that the head
// of the row has, unless they have a file of their own.
func placesOf(t *testing.T, driver, head, cell string) (places []place) {
	t.Helper()
	rowFile := ""
	if match := code.FindStringSubmatch(head); match != nil {
		rowFile = match[1]
	}
	for _, match := range code.FindAllStringSubmatch(cell, -1) {
		file, name, _ := strings.Cut(match[1], ": ")
		switch {
		case path.Ext(file) != "":
			file = path.Join(driver, file)
		case !strings.Contains(file, "/"): // otherwise it is a package of this module
			file, name = path.Join(driver, rowFile), file
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%q: %v", head, err)
			continue
		}
		places = append(places, place{file, name})
	}
	return places
}

// TestMapOfFiles checks that the map in docs/design.md has each file of the root and of the engine.
func TestMapOfFiles(t *testing.T) {
	t.Parallel()
	text := readFile(t, "docs/design.md")
	files := append(glob(t, "*.go"), glob(t, "internal/engine/*.go")...)
	if len(files) < 30 {
		t.Fatalf("found the files %q", files)
	}
	for _, file := range files {
		row := "\n| `" + filepath.Base(file) + "` |"
		if !strings.HasSuffix(file, "_test.go") && !strings.Contains(text, row) {
			t.Errorf("the table of files in docs/design.md does not have %s", file)
		}
	}
}
