package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"slices"
	"strings"
)

// topLength is how many functions and files printLongest prints.
const topLength = 10

// length is the number of lines of a function or a file.
type length struct {
	lines int
	name  string
	at    string // file and line
}

// lengths are what printLongest prints: functions and files, of code and of tests.
type lengths struct{ funcs, files, testFuncs, testFiles []length }

// printLongest prints the longest functions and files of Go below the folders.
func printLongest(w io.Writer, folders []string) error {
	all, err := measureLengths(folders)
	if err != nil {
		return err
	}
	for _, list := range []struct {
		title string
		top   []length
	}{
		{"functions", all.funcs},
		{"files", all.files},
		{"functions of tests", all.testFuncs},
		{"files of tests", all.testFiles},
	} {
		if _, err := fmt.Fprintf(w, "The longest %s:\n", list.title); err != nil {
			return err
		}
		for _, l := range longest(list.top) {
			if _, err := fmt.Fprintf(w, "%6d  %s  %s\n", l.lines, l.at, l.name); err != nil {
				return err
			}
		}
	}
	return nil
}

// longest returns the first topLength of ls, the longest first.
func longest(ls []length) []length {
	slices.SortStableFunc(ls, func(a, b length) int { return cmp.Compare(b.lines, a.lines) })
	return ls[:min(len(ls), topLength)]
}

// measureLengths returns the lengths of all functions and files of Go below the folders.
func measureLengths(folders []string) (*lengths, error) {
	all := new(lengths)
	err := files(folders, func(path, src string) error {
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file := length{strings.Count(src, "\n"), "", path}
		funcs, err := functions(path, src)
		if strings.HasSuffix(path, "_test.go") {
			all.testFuncs = append(all.testFuncs, funcs...)
			all.testFiles = append(all.testFiles, file)
		} else {
			all.funcs = append(all.funcs, funcs...)
			all.files = append(all.files, file)
		}
		return err
	})
	return all, err
}

// functions returns the lengths of the functions of a file, without their comments in front.
func functions(path, src string) (ls []length, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			from, to := fset.Position(f.Pos()).Line, fset.Position(f.End()).Line
			ls = append(ls, length{to - from + 1, f.Name.Name, fmt.Sprintf("%s:%d", path, from)})
		}
	}
	return ls, nil
}
