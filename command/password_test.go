//go:build unix

package command

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// misplaced are the places of a command line in which a URL is a mistake, and lines that fail for
// another reason. % stands for the URL.
var misplaced = []string{
	"%", "% run x -- true", "help %", "run %: x -- true",
	"run -v x -- %", "try x -- %", "elect x -- %", "run x -- %/true",
	"run -w % x -- true", "run --min-hold=% x -- true", "run -E % x -- true",
	"run --limit % x -- true", "run -n=% x -- true", "run -u% x -- true", "run --% x -- true",
	"run --on-lost % x -- true", "run --url-file % x -- true", "version %", "completion bash %",
	"verify --url-file %", "verify --run % mem:", "verify --run %( mem:", "verify --run (?%) mem:",
	"bench --workloads % mem:", "bench --contenders % mem:", "bench --waiters % mem:",
	"run % -- /no/such/command", "run --meta % x -- /no/such/command", "break %", "status % x",
	"elect --prefix % x -- /no/such/command", "ls --watch %", "ls --watch --prefix % x",
	"bench --workloads W1 --duration 10ms --html %/page mem:",
}

// Neither an error nor any other message shows a password that stands in the wrong place, however
// its URL is written.
func TestNoMessageShowsAMisplacedPassword(t *testing.T) {
	t.Parallel()
	whole := []string{
		"redis://u:SECRET@h", "REDIS://u:SECRET@h/0", "redis:u:SECRET@h", "redis:/u:SECRET@h",
		"redis:u:54321@h", "redis:/u:54321@h", "redis://u:54321@h", "redis://:/SECRET@h",
		"redis://us/er:SECRET@h", "redis://u:p/SECRET@h", "redis://u:p@SECRET@h",
		"URL_redis://u:SECRET@h", "DLOCK_URL=redis://u:SECRET@h", "DLOCK_URL=redis:u:SECRET@h",
		"http://u:SECRET@h", "u:SECRET@h", "redis://SECRET@h",
	}
	broken := []string{
		"redis:u:SECRET", "redis://u:SECRET", "redis://u:p SECRET@h", "redis://u:p,SECRET@h",
		"redis://u:p[SECRET@h", "redis:u:p,SECRET@h",
	}
	env := on(fileURL(t)) // not of a subtest: in a URL the % of its name is no character
	for _, place := range misplaced {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			checkHidden(t, runHere, env, place, slices.Concat(broken, whole))
		})
	}
	const named = "run -v % -- true" // some of the writings are good names
	t.Run(named, func(t *testing.T) {
		t.Parallel()
		if text := checkHidden(t, dlockRun, env, named, whole); !strings.Contains(text, redacted) {
			t.Errorf("no message quotes a good name: %s", text)
		}
	})
}

// The records of --verbose are messages, too.
func TestVerboseShowsNoPassword(t *testing.T) {
	t.Parallel()
	var written strings.Builder
	a := &app{messages: &written}
	a.logger().Debug("held", "name", "redis:u:SECRET@h", "meta", "dlock@host:77")
	if text := written.String(); !strings.Contains(text, "name=redis:xxxxx@h meta=dlock@host:77") {
		t.Errorf("the record is %s", text)
	}
}

// checkHidden checks that dlock does not write the passwords of urls in one place. It returns all
// that dlock has written.
func checkHidden(
	t *testing.T, run func(*testing.T, []string, ...string) result,
	env []string, place string, urls []string,
) (written string) {
	t.Helper()
	for _, url := range urls {
		args := strings.Fields(place)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "%", url)
		}
		got := run(t, env, args...)
		text := got.stdout + got.stderr
		if strings.Contains(text, "SECRET") || strings.Contains(text, "54321") {
			t.Errorf("dlock %q shows the password: %s", args, text)
		}
		written += text
	}
	return written
}

// runHere is dlockRun without a process, for hundreds of command lines that start no process.
func runHere(t *testing.T, env []string, args ...string) result {
	t.Helper()
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	failed := run(t.Context(), args, os.Stdin, output, output, env)
	text, err := os.ReadFile(output.Name())
	if err != nil || failed != nil && len(text) == 0 {
		t.Fatalf("dlock %q writes nothing, %v; %v", args, err, failed)
	}
	return result{exitCode(failed), "", string(text)}
}

// A message keeps all that is no password.
func TestRedact(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		`"x": not acquired: held by dlock@host:77`: `"x": not acquired: held by dlock@host:77`,
		"redis://u:xxxxx@h:1: refused":             "redis://u:xxxxx@h:1: refused",
		"mysql://app@h/db: refused for 'app'@'h'":  "mysql://app@h/db: refused for 'app'@'h'",
		`"redis:flush:alice@web1" is free`:         `"redis:xxxxx@web1" is free`,
		"open redis:/u:a@b@h/x: a:b@c":             "open redis:/xxxxx@h/x: a:xxxxx@c",
		"redis://u:p@h1,redis://v:xxxxx@h2":        "redis://xxxxx@h2",
		"http://u:p@h: command not found":          "http://xxxxx@h: command not found",
	} {
		if got := redact(message); got != want {
			t.Errorf("redact(%q) = %q, want %q", message, got, want)
		}
	}
}
