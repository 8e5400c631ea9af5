package dlock_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEveryExportedNameIsDocumented checks all packages that users can import.
func TestEveryExportedNameIsDocumented(t *testing.T) {
	t.Parallel()
	for _, p := range goList(t, "./...") {
		if p.Name == "main" || strings.Contains(p.ImportPath, "/internal/") {
			continue
		}
		for _, name := range undocumented(t, p) {
			t.Errorf("%s: %s has no comment", p.ImportPath, name)
		}
	}
}

// undocumented returns the exported names of a package without a comment. One comment may serve a
// whole group of constants or variables.
func undocumented(t *testing.T, p goPackage) (names []string) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	pkg, err := doc.NewFromFiles(fset, files, p.ImportPath)
	if err != nil {
		t.Fatal(err)
	}
	note := func(name, text string) {
		if strings.TrimSpace(text) == "" {
			names = append(names, name)
		}
	}
	note("the package", pkg.Doc)
	values, funcs := slices.Concat(pkg.Consts, pkg.Vars), slices.Clone(pkg.Funcs)
	for _, typ := range pkg.Types {
		note(typ.Name, typ.Doc)
		values = slices.Concat(values, typ.Consts, typ.Vars)
		funcs = append(funcs, typ.Funcs...)
		for _, method := range typ.Methods {
			note(typ.Name+"."+method.Name, method.Doc)
		}
	}
	for _, f := range funcs {
		note(f.Name, f.Doc)
	}
	for _, value := range values {
		names = append(names, undocumentedValues(value)...)
	}
	return names
}

// undocumentedValues returns the exported names without a comment in a group of constants or
// variables.
func undocumentedValues(value *doc.Value) (names []string) {
	for _, spec := range value.Decl.Specs {
		spec := spec.(*ast.ValueSpec)
		for _, name := range spec.Names {
			if name.IsExported() && value.Doc == "" &&
				spec.Doc.Text() == "" && spec.Comment.Text() == "" {
				names = append(names, name.Name)
			}
		}
	}
	return names
}
