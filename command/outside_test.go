//go:build unix

package command

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestProgramOutsideOfThisModule builds the program of testdata/outside as a separate module, and
// runs each subcommand on a URL of its driver.
func TestProgramOutsideOfThisModule(t *testing.T) {
	t.Parallel()
	program := buildOutside(t)
	url, name := "ours:"+t.TempDir(), nameFor(t)
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"version", 0, "schemes: file ours\n"},
		{"run NAME -- PROGRAM status --json NAME", 0, `"NAME"`},
		{"run NAME -- PROGRAM ls", 0, "NAME"},
		{"break --yes NAME", exitUnsupported, ""},
		{"run --shared NAME -- echo ran", exitUnsupported, ""},
		{"try NAME -- echo ran", 0, "ran\n"},
		{"verify --run ^TryLock URL", 0, "TryLock"},
		{strings.Join(benchTiny("--workloads", "W1,W4", "URL"), " "), 0, "W4"},
	} {
		full := strings.NewReplacer("NAME", name, "PROGRAM", program, "URL", url)
		cmd := exec.CommandContext(t.Context(), program, strings.Fields(full.Replace(test.args))...)
		cmd.Env = append(os.Environ(), "DLOCK_URL="+url)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run()
		if codeOf(cmd) != test.code || !strings.Contains(stdout.String(), full.Replace(test.want)) {
			t.Errorf("dlock %s: exit code %d\n%s%s", test.args, codeOf(cmd), &stdout, &stderr)
		}
	}
}

// buildOutside returns the program. Its module has the requirements and checksums of this one, so
// the go command downloads nothing.
func buildOutside(t *testing.T) (program string) {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.CopyFS(dir, os.DirFS("testdata/outside")))
	root, err := filepath.Abs("..")
	must(err)
	mod, err := os.ReadFile("../go.mod")
	must(err)
	sum, err := os.ReadFile("../go.sum")
	must(err)
	_, requirements, _ := bytes.Cut(mod, []byte("\n")) // after the module line
	mod = fmt.Appendf(nil,
		"module example.com/outside\n%s\nrequire %s v0.0.0\n\nreplace %[2]s => %q\n",
		requirements, modulePath, filepath.ToSlash(root))
	must(os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o600))
	must(os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o600))
	program = filepath.Join(dir, "dlock")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOPROXY=off", "GOWORK=off")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	return program
}
