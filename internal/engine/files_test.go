package engine

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// call is a call of a function in another file, by the names of the two files.
type call struct{ from, to string }

// TestFilesCallFilesAbove checks that the documents list all files in one order, in which functions
// call only functions of files above them. docs/design.md names the exceptions.
func TestFilesCallFilesAbove(t *testing.T) {
	t.Parallel()
	files, exceptions := documentedFiles(t)
	if listed := listedFiles(t); !slices.Equal(listed, files[1:]) {
		t.Errorf("doc.go lists %v, design.md %v", listed, files)
	}
	calls := callsBetweenFiles(t)
	for c := range calls {
		from, to := slices.Index(files, c.from), slices.Index(files, c.to)
		switch {
		case from < 0 || to < 0:
			t.Errorf("design.md lists %v, not both %s and %s", files, c.from, c.to)
		case from < to && !exceptions[c]:
			t.Errorf("%s calls %s, which is below it", c.from, c.to)
		case from < to:
			delete(exceptions, c)
		}
	}
	for c := range exceptions {
		t.Errorf("design.md lists calls of %s to %s, below it; there are none", c.from, c.to)
	}
}

var fileName = regexp.MustCompile("`([a-z]+\\.go)`")

// documentedFiles returns the files in the order of docs/design.md. The calls that it lists go down
// in this order.
func documentedFiles(t *testing.T) (files []string, exceptions map[call]bool) {
	t.Helper()
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n`internal/engine`")
	section, _, _ = strings.Cut(section, "\n## ")
	exceptions = make(map[call]bool)
	for line := range strings.Lines(section) {
		var names []string
		for _, match := range fileName.FindAllStringSubmatch(line, -1) {
			names = append(names, match[1])
		}
		switch {
		case strings.HasPrefix(line, "| `"):
			files = append(files, names[0])
		case strings.HasPrefix(line, "- `"):
			for _, to := range names[1:] {
				exceptions[call{names[0], to}] = true
			}
		}
	}
	return files, exceptions
}

// listedFiles returns the files in the order of doc.go.
func listedFiles(t *testing.T) (files []string) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "// # Files\n")
	for line := range strings.Lines(section) {
		if words := strings.Fields(line); len(words) > 1 && strings.HasSuffix(words[1], ".go") {
			files = append(files, words[1])
		}
	}
	return files
}

// noImporter leaves all imports out: only what this package declares is of interest.
type noImporter struct{}

func (noImporter) Import(string) (*types.Package, error) { return nil, errors.New("left out") }

// callsBetweenFiles returns the calls in the code of this package.
func callsBetweenFiles(t *testing.T) map[call]bool {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	conf := types.Config{Importer: noImporter{}, Error: func(error) {}}
	pkg, _ := conf.Check("engine", fset, files, info)
	calls := make(map[call]bool)
	for name, object := range info.Uses {
		if _, isFunc := object.(*types.Func); isFunc && object.Pkg() == pkg {
			c := call{fset.Position(name.Pos()).Filename, fset.Position(object.Pos()).Filename}
			calls[c] = c.from != c.to
		}
	}
	maps.DeleteFunc(calls, func(_ call, between bool) bool { return !between })
	return calls
}
