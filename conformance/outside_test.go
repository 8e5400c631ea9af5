package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/announce"
)

// TestDriverOutsideOfThisModule builds the driver of testdata/outside as a separate module that
// imports only public packages. It runs the whole suite with all faults over this driver. The run
// needs no network, and nothing that the tests of this module do not need. Its test lists the cases
// that do not apply, and fails for each other skip.
func TestDriverOutsideOfThisModule(t *testing.T) {
	t.Parallel()
	r := testModule(t, outsideModule(t))
	if r.actions["TestConformance"] == "" {
		t.Fatalf("go test: %v\n%s", r.err, r.failures())
	}
	passed, inapplicable := 0, []string{}
	for _, c := range conformance.Cases() {
		test := "TestConformance/" + c.Name
		switch {
		case (c.Mode != 0 || c.Move || c.Combine) && r.actions[test] == "": // it can do none
		case r.actions[test] == "pass":
			passed++
			r.logVoid(t, test)
		case r.actions[test] == "skip" && strings.Contains(r.output(test), "does not apply: ") &&
			!c.Faults:
			inapplicable = append(inapplicable, c.Name)
		default:
			t.Errorf("%s: %q\n%s", test, r.actions[test], r.output(test))
			delete(r.actions, test) // already printed
		}
	}
	if r.err != nil {
		t.Errorf("go test: %v\n%s", r.err, r.failures())
	}
	t.Logf("%d cases passed, %d do not apply: %q", passed, len(inapplicable), inapplicable)
}

// outsideModule returns the folder of a new module with the files of testdata/outside. The module
// has the requirements and checksums of this module, so the go command downloads nothing.
func outsideModule(t *testing.T) (dir string) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/outside")); err != nil {
		t.Fatal(err)
	}
	// The requirements begin after the line of the module.
	_, requirements, _ := bytes.Cut(read(t, filepath.Join(root, "go.mod")), []byte("\n"))
	mod := fmt.Appendf(nil, "module example.com/outside\n%s\n"+
		"require github.com/dlock-go/dlock v0.0.0\n\n"+
		"replace github.com/dlock-go/dlock => %q\n", requirements, filepath.ToSlash(root))
	for name, content := range map[string][]byte{
		"go.mod": mod,
		"go.sum": read(t, filepath.Join(root, "go.sum")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// moduleRun is the result of go test. The test "" is the package itself.
type moduleRun struct {
	err     error
	actions map[string]string // the last action of each test: "pass", "skip", "fail" or "run"
	outputs map[string]*strings.Builder
}

// testModule runs go test in dir. The run ends before the test binary of t would time out.
func testModule(t *testing.T, dir string) *moduleRun {
	t.Helper()
	timeout := time.Duration(0)
	if deadline, ok := t.Deadline(); ok {
		timeout = time.Until(deadline) * 9 / 10
	}
	// The cases of the suite mostly wait, so more of them run in parallel than the machine
	// has cores.
	test := exec.CommandContext(t.Context(), "go", "test", "-json", "-count=1", "-parallel=16",
		"-timeout="+timeout.String(), ".")
	test.Dir = dir
	test.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOPROXY=off", "GOWORK=off")
	var stdout, stderr bytes.Buffer
	test.Stdout, test.Stderr = &stdout, &stderr
	r := &moduleRun{actions: map[string]string{}, outputs: map[string]*strings.Builder{}}
	r.err = test.Run()
	r.note("", stderr.String())
	for line := range strings.Lines(stdout.String()) {
		r.read(line)
	}
	return r
}

// read records one line of go test -json.
func (r *moduleRun) read(line string) {
	var event struct{ Action, Test, Output string }
	if json.Unmarshal([]byte(line), &event) != nil {
		event.Output = line
	}
	r.note(event.Test, event.Output)
	switch event.Action {
	case "run", "pass", "skip", "fail":
		r.actions[event.Test] = event.Action
	}
}

func (r *moduleRun) note(test, output string) {
	if r.outputs[test] == nil {
		r.outputs[test] = &strings.Builder{}
	}
	r.outputs[test].WriteString(output)
}

func (r *moduleRun) output(test string) string {
	if r.outputs[test] == nil {
		return ""
	}
	return r.outputs[test].String()
}

// logVoid logs the void observations of a test, so that the report of make test counts them.
func (r *moduleRun) logVoid(t *testing.T, test string) {
	t.Helper()
	for line := range strings.Lines(r.output(test)) {
		if announce.IsVoid(line) {
			t.Logf("%s: %s", test, strings.TrimSpace(line))
		}
	}
}

// failures returns the whole output of the package and of each test that failed or did not end.
func (r *moduleRun) failures() string {
	var all strings.Builder
	all.WriteString(r.output(""))
	for _, test := range slices.Sorted(maps.Keys(r.actions)) {
		if action := r.actions[test]; test != "" && (action == "fail" || action == "run") {
			all.WriteString(r.output(test))
		}
	}
	return all.String()
}
