package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// part is a set of files for random mutants, with the tests that must detect the mutants.
type part struct {
	name  string
	files []string // patterns; tests are omitted
	// steps are arguments of go test, the fastest step first. The first step that fails kills a
	// mutant.
	steps [][]string
}

// scripted skips the tests that run the go command, because they check imports and not behaviour.
// Its timeout is for mutants that hang.
var scripted = []string{
	"-timeout=2m", "-skip", "^(TestCoreDependsOnTheStandardLibraryAlone|TestImports)$", ".",
}

var parts = []part{
	{name: "root", files: []string{"*.go"}, steps: [][]string{scripted, {"./membackend"}}},
	{
		name: "internal",
		files: []string{
			"backend/*.go", "backend/key/*.go", "backend/batch/*.go", "backend/tlsfile/*.go",
			"backend/kind/*.go", "backend/roster/*.go",
			"internal/engine/*.go", "internal/bound/*.go",
		},
		steps: [][]string{
			{"-timeout=2m", "./backend/...", "./internal/engine", "./internal/bound"},
			scripted,
			{"./membackend"},
			{"-run", "^Test(TLS|Conformance)", "./memcachedbackend"},
		},
	},
	{
		name: "support",
		files: []string{
			// Without system_other.go, which other systems compile.
			"internal/session/[dlmow]*.go", "internal/session/system_linux.go",
			"internal/background/*.go", "internal/abort/*.go", "internal/lag/*.go",
		},
		steps: [][]string{
			{
				"-timeout=2m", "./internal/session", "./internal/background", "./internal/abort",
				"./internal/lag",
			},
			{"-run", "^TestConformanceSession$", "./pgbackend"},
		},
	},
	{name: "membackend", files: []string{"membackend/*.go"}, steps: [][]string{{"./membackend"}}},
	{
		name: "redis", files: []string{"redisbackend/scripts/*.lua"},
		steps: [][]string{
			{"-run", "^TestScripts$", "./redisbackend"},
			// replicas, memory, costs
			{"-run", "^Test(DemotedMaster|FullServerQueues|UncontendedLockDoes)", "./redisbackend"},
			{"-run", "^TestConformance$", "./redisbackend"},
		},
	},
	{
		name: "mysql", files: []string{"mysqlbackend/statements/*.sql"},
		steps: [][]string{
			{"-run", "^TestStatements$/^mysql$", "./mysqlbackend"},
			{
				"-run", "^Test(DemotedMasterIsIgnored|StatementLogIsRefused)$/^mysql",
				"./mysqlbackend",
			},
			{"-run", "^TestConformance$", "./mysqlbackend"},
		},
	},
}

// partNames returns the names of all parts.
func partNames() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// chosenParts returns the parts in a comma-separated list of names, or all parts if the list is
// empty.
func chosenParts(list string) ([]part, error) {
	if list == "" {
		return parts, nil
	}
	var chosen []part
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			known := strings.Join(partNames(), ", ")
			return nil, fmt.Errorf("no part %q; there are %s", name, known)
		}
		chosen = append(chosen, parts[i])
	}
	return chosen, nil
}

// changes returns all mutants of a part, in the order of its files.
func (p part) changes() ([]change, error) {
	var all []change
	for _, pattern := range p.files {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			changes, err := changesOf(file)
			if err != nil {
				return nil, err
			}
			all = append(all, changes...)
		}
	}
	for i := range all {
		all[i].equivalent = reasonOf(all[i])
	}
	return all, nil
}

// changesOf returns the mutants of one file, according to its language. Tests have none.
func changesOf(file string) ([]change, error) {
	switch {
	case strings.HasSuffix(file, "_test.go"), strings.Contains(filepath.Base(file), "floor"):
		return nil, nil // the tests do not cover code for benchmarks
	case strings.HasSuffix(file, ".go"):
		return goChanges(file)
	case strings.HasSuffix(file, ".lua"):
		return textChanges(file, luaOperators)
	default:
		return textChanges(file, sqlOperators)
	}
}

// control runs all steps without a mutant. A test that fails without a mutant would kill every
// mutant.
func (p part) control() error {
	for _, step := range p.steps {
		v, output, err := goTest(step, "")
		if err != nil {
			return err
		}
		if v != survived {
			return fmt.Errorf("%s: the tests fail without a mutant: go test %s\n%s",
				p.name, strings.Join(step, " "), output)
		}
	}
	return nil
}

// judge runs the steps on a mutant until one fails.
func (p part) judge(c change) (verdict, error) {
	text, err := c.text()
	if err != nil {
		return invalid, err
	}
	list, remove, err := overlay(c.file, text)
	if err != nil {
		return invalid, err
	}
	defer remove()
	for _, step := range p.steps {
		if v, _, err := goTest(step, list); err != nil || v != survived {
			return v, err
		}
	}
	return survived, nil
}

// compileErrors occur in the output if a mutant is no valid program, script or statement.
var compileErrors = []string{
	"[build failed]", "[setup failed]", "Error compiling script", "error in your SQL syntax",
}

// goTest runs go test, with a list of replaced files if overlay is not empty. After a failure no
// further test begins. The running tests continue to their end, because they remove their servers.
func goTest(args []string, overlay string) (v verdict, output string, err error) {
	flags := []string{"test", "-count=1", "-vet=off", "-failfast", "-timeout=6m", "-parallel=8"}
	if overlay != "" {
		flags = append(flags, "-overlay="+overlay)
	}
	cmd := exec.Command("go", append(flags, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return invalid, "", err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return invalid, "", err
	}
	output = head(out)
	err = cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return invalid, output, err
	}
	switch {
	case err == nil:
		return survived, output, nil
	case slices.ContainsFunc(compileErrors, func(text string) bool {
		return strings.Contains(output, text)
	}):
		return invalid, output, nil
	}
	return killed, output, nil
}

// head returns the first 1 MiB of r, which is enough for a verdict, and reads the rest.
func head(r io.Reader) string {
	const most = 1 << 20
	var b strings.Builder
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if b.Len() < most {
			b.WriteString(line)
		}
		if err != nil {
			return b.String()
		}
	}
}
