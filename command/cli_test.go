//go:build unix

package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
)

// exitCodes has command lines for each exit code. The test replaces words that begin with $, and
// turns "|" into a space inside a word.
var exitCodes = map[int][]string{
	0: {
		"run x -- true", "run -- x -- true", "try x -- true",
		"run --wait 1m --ttl 10s --grace 3s --meta me x -- true",
		"run --wait 2s --conflict-exit-code 0 taken -- true",
		"run x --wait 1m --ttl 10 -- true", "run -n x -- true", "run -w 1m -o x -- true",
		"run -- -x -- true", "run -w 2.5 -E 0 taken -- true",
		"run --shared x -- true", "try --limit 2 x -- true",
		"status free", "status free --json", "ls --json q", "version", "--version",
		"help", "help run", "run --help", "completion bash",
	},
	1:        {"run x -- false", "status --exit-code free"},
	3:        {"run x -- sh -c exit|3", "run x -- $script"},
	9:        {"try --conflict-exit-code 9 taken -- true"},
	128 + 9:  {"run x -- sh -c kill|-KILL|$$"},
	128 + 15: {"run x -- sh -c kill|-TERM|$$"},

	exitNoExec: {"run x -- $plain", "run x -- /"},
	exitNotFound: {
		"run x -- dlock-no-such-command", "run x -- /no/such/command",
		"run taken -- dlock-no-such-command", // without waiting
	},
	exitUsage: {
		"nonsense", "ru x -- true",
		"run", "run x", "run x true", "run x --", "run -- true", "run x y -- true",
		"run --wiat 1s x -- true", "help nonsense", "run --no-such-flag x -- true",
		"run --ttl 0s x -- true", "run --ttl -1s x -- true", "run --ttl soon x -- true",
		"run --ttl nan x -- true", "run --wait 1e99 x -- true", "run --wait -1s x -- true",
		"run --limit 0 x -- true", "run --limit -1 x -- true", "run --shared --limit 2 x -- true",
		"elect --shared x -- true", "run --limit 9999999 x -- true",
		"run --meta \xff x -- true", "elect --meta $long x -- true",
		"run --min-hold 0s x -- true", "run --min-hold 2s --max-hold 1s x -- true",
		"run --ttl 9s --grace 3001ms x -- true", "run --grace -1s x -- true",
		"run --max-hold 1s --grace 1s x -- true", "run --grace 5s --url $url?ttl=9s x -- true",
		"run --on-lost panic x -- true", "run --conflict-exit-code 256 x -- true",
		"try --wait 1s x -- true",
		"run -- \n -- true", "run  -- true", "run $long -- true", "run \xff -- true",
		"run --url  x -- true", "run --url nonsense x -- true", "run --url nonsense: x -- true",
		"run --url mem: x -- true",
		"run --url redis://h:port x -- true", "run --url $url?no-such-parameter=1 x -- true",
		"verify --url-file /no/such/file", "bench --url-file /no/such/file",
		"run --url $url --url-file $plain x -- true", "run --url-file /no/such/file x -- true",
		"status", "status x y", "break x", "ls --watch", "ls --watch --json", "ls x y", "version x",
	},
	exitUnavailable: {
		"run --url $closed x -- true", "run --wait 1s --url $closed x -- true",
		"status --url $closed x", "ls --url $closed",
	},
	exitNotAcquired: {
		"try taken -- true", "run --wait 0 taken -- true", "run --wait 2s taken -- true",
		"run -n taken -- true", "run x -- $dlock run x -- true",
		"run x -- $dlock elect x -- true",
		"run --limit 1 x -- $dlock run --limit 1 x -- true",
		"run x -- $dlock run --shared x -- true", "run --shared x -- $dlock run x -- true",
	},
	exitUnsupported: {
		"run --fair x -- true", "run --url $url?require=break x -- true", "break --yes taken",
		"elect --fair x -- true",
	},
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	url, plain := fileURL(t), filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "script") // without an interpreter
	if err := os.WriteFile(script, []byte("exit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	holder := startDlock(t, url, "run", "taken", "--", "sh", "-c", "echo ready; read line")
	holder.expect("ready")
	fill := strings.NewReplacer("|", " ", "$url", url, "$plain", plain, "$script", script,
		"$closed", "redis://"+closedPort, "$dlock", os.Args[0], "$long", strings.Repeat("x", 600))
	for code, lines := range exitCodes {
		for _, line := range lines {
			args := strings.Split(line, " ")
			for i := range args {
				args[i] = fill.Replace(args[i])
			}
			got := dlockRun(t, on(url), args...)
			if got.code != code {
				t.Errorf("dlock %s: exit code %d, want %d; standard error: %s",
					line, got.code, code, got.stderr)
			}
			if code >= exitUsage && code < exitSignal {
				checkLine(t, line, got.stderr)
			}
		}
	}
}

// Without a command, dlock fails and shows its help.
func TestNoCommand(t *testing.T) {
	t.Parallel()
	got := dlockRun(t, nil)
	if got.code != exitUsage || got.stdout != "" || !strings.Contains(got.stderr, "Usage:") {
		t.Errorf("exit code %d, standard output %q, standard error %q",
			got.code, got.stdout, got.stderr)
	}
}

// checkLine checks that standard error is exactly one line of dlock.
func checkLine(t *testing.T, line, stderr string) {
	t.Helper()
	if !strings.HasPrefix(stderr, "dlock: ") ||
		strings.Count(stderr, "dlock: ") != 1 || strings.Count(stderr, "\n") != 1 {
		t.Errorf("dlock %s: standard error is not one line of dlock's: %q", line, stderr)
	}
}

// closedPort is an address that refuses connections. The system gives no port below 1024 to a
// server of another test.
const closedPort = "127.0.0.1:1"

// A missing interpreter is only found when the command starts.
func TestNotFoundFreesLock(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	got := dlockRun(t, on(url), "run", "-v", "x", "--", script)
	if got.code != exitNotFound || !strings.Contains(got.stderr, "holding") ||
		!strings.Contains(got.stderr, "behind #! was not found") {
		t.Fatalf("exit code %d, want %d after the acquisition; standard error: %s",
			got.code, exitNotFound, got.stderr)
	}
	if got := dlockRun(t, on(url), "status", "--exit-code", "x"); got.code != exitNo {
		t.Errorf("the lock is not free: %s", got.stdout)
	}
}

func TestCommandSeesNameAndFence(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	var fences []string
	for range 2 {
		got := dlockRun(t, on(url), "run", "--prefix", "p/", "a name", "--",
			"sh", "-c", `echo "$DLOCK_NAME"; echo "$DLOCK_FENCE"`)
		name, fence, _ := strings.Cut(strings.TrimSpace(got.stdout), "\n")
		if name != "a name" || len(fence) < 16 {
			t.Fatalf("the command got name %q and fence %q", name, fence)
		}
		fences = append(fences, fence)
	}
	if len(fences[0]) != len(fences[1]) || fences[0] >= fences[1] {
		t.Errorf("fences do not increase: %q", fences)
	}
}

func TestStatusAndList(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	holder := startDlock(t, url, "run", "--prefix", "p/", "--meta", "me \u202e", "n", "--",
		"sh", "-c", "echo $DLOCK_FENCE; read line")
	fence := holder.line()

	var info, listed lockJSON
	for dst, args := range map[*lockJSON][]string{
		&info: {"status", "--json", "p/n"}, &listed: {"ls", "--json"},
	} {
		got := dlockRun(t, on(url), args...)
		err := json.Unmarshal([]byte(got.stdout), dst)
		if err != nil || strings.Count(got.stdout, "\n") != 1 {
			t.Fatalf("%q: %v in %q", args, err, got.stdout)
		}
		if len(dst.Holders) != 1 || dst.Name != "p/n" || dst.Holders[0].Meta != "me \u202e" {
			t.Errorf("%q shows %+v", args, *dst)
		}
	}
	for args, want := range map[string][]string{
		"status p/n": {"p/n", `"me \u202e"`, fence},
		"ls p":       {"NAME", "p/n", `"me \u202e"`, fence},
		"ls q":       {"NAME"},
	} {
		got := dlockRun(t, on(url), strings.Fields(args)...)
		for _, text := range want {
			if !strings.Contains(got.stdout, text) {
				t.Errorf("%s does not show %q: %s", args, text, got.stdout)
			}
		}
	}
	if got := dlockRun(t, on(url), "ls", "q"); strings.Contains(got.stdout, "p/n") {
		t.Errorf("ls q shows p/n: %s", got.stdout)
	}
	got := dlockRun(t, on(url), "status", "--json", "free")
	if !strings.Contains(got.stdout, `"holders":[]`) {
		t.Errorf("the holders of a free lock are %s, want an empty list", got.stdout)
	}
}

// The directory of the lock shows which URL dlock used.
func TestURLSources(t *testing.T) {
	t.Parallel()
	flag, file, variable, state := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	urlFile := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(urlFile, []byte("file:"+file+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"XDG_STATE_HOME=" + state, "DLOCK_URL=file:" + variable}
	tests := []struct {
		dir   string
		env   []string
		flags []string
		local bool
	}{
		{flag, env, []string{"--url", "file:" + flag}, false},
		{file, env, []string{"--url-file", urlFile}, false},
		{variable, env, nil, false},
		{filepath.Join(state, "dlock"), env[:1], nil, true},
	}
	for _, tt := range tests {
		args := append(append([]string{"run"}, tt.flags...), "x", "--", "true")
		got := dlockRun(t, tt.env, args...)
		if entries, err := os.ReadDir(tt.dir); got.code != 0 || err != nil || len(entries) == 0 {
			t.Errorf("dlock %q left nothing in %s: %v; standard error: %s",
				args, tt.dir, err, got.stderr)
		}
		local := strings.Contains(got.stderr, "local to this user and this machine")
		if local != tt.local {
			t.Errorf("dlock %q writes %q to standard error", args, got.stderr)
		}
	}
	if got := dlockRun(t, nil, "run", "x", "--", "true"); got.code != exitUsage {
		t.Errorf("without HOME the exit code is %d, want %d: %s", got.code, exitUsage, got.stderr)
	}
}

func TestWithParameter(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"file:":                              "file:?prefix=a%26%20b",
		"redis://h?db=1":                     "redis://h?db=1&prefix=a%26%20b",
		"redis://h?prefix=x&db=1":            "redis://h?db=1&prefix=a%26%20b",
		"redis://h?prefixed=1&prefix=x&db=1": "redis://h?prefixed=1&db=1&prefix=a%26%20b",
	}
	for raw, want := range tests {
		got := withParameter(raw, "prefix", "a& b")
		if got != want {
			t.Errorf("withParameter(%q) = %q, want %q", raw, got, want)
		}
		u, err := backend.ParseURL(got)
		if err != nil {
			t.Fatal(err)
		}
		if prefix, _ := u.Take("prefix"); prefix != "a& b" {
			t.Errorf("the prefix of %q is %q", got, prefix)
		}
	}
}

// dlock never prints a password: neither the right one, nor a wrong one, nor
// one in a malformed URL.
func TestPasswordIsNeverPrinted(t *testing.T) {
	t.Parallel()
	const password = "hunter2"
	server := testenv.NewRedis(t, "--requirepass", password)
	wrong := strings.Replace(server.URL, password, password+"wrong", 1)
	for _, url := range []string{
		server.URL, wrong, "redis://:hunter2@" + closedPort, "redis://:hunter2@h:port",
		"redis://u:hunter2@h/0?x=1", "redis://u:hunter2@h#", "redis://u:hun/ter2hunter2@h",
		"nonsense://u:hunter2@h",
	} {
		for _, args := range [][]string{
			{"run", "-v", "--url", url, "x", "--", "true"},
			{"status", "-v", "--url", url, "x"},
			{"ls", "--url", url, "--prefix", "p"},
			{"verify", "--run", "^AcquireGrantsAFreeLock$", url},
			benchTiny("--json", "--workloads", "W1", url),
		} {
			got := dlockRun(t, nil, args...)
			if strings.Contains(got.stdout+got.stderr, password) {
				t.Errorf("dlock %q prints the password: %s%s", args, got.stdout, got.stderr)
			}
			if ok := url == server.URL; ok != (got.code == 0) {
				t.Errorf("dlock %q: exit code %d; standard error: %s", args, got.code, got.stderr)
			}
		}
	}
}

// A server that is full, or that refuses the password, is no taken lock: the exit code is 69, with
// the words of the server, also when --wait is over.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	full := testenv.NewRedis(t, "--maxmemory", "1").URL
	closed := testenv.NewRedis(t, "--requirepass", "right").URL
	for _, row := range []struct{ url, says string }{
		{full, "OOM "}, {strings.Replace(closed, "right", "wrong", 1), "WRONGPASS "},
	} {
		for _, line := range []string{"run --wait 1s x -- echo ran", "try x -- echo ran"} {
			got := dlockRun(t, on(row.url), strings.Fields(line)...)
			if got.code != exitUnavailable || !strings.Contains(got.stderr, row.says) {
				t.Errorf("dlock %s: exit code %d, want %d; standard error: %s, want %s",
					line, got.code, exitUnavailable, got.stderr, row.says)
			}
			if checkLine(t, line, got.stderr); got.stdout != "" {
				t.Errorf("dlock %s ran its command", line)
			}
		}
	}
}

func TestMinHoldIsWaitedFor(t *testing.T) {
	t.Parallel()
	const hold = 500 * time.Millisecond
	began := time.Now()
	got := dlockRun(t, on(fileURL(t)), "try", "-v", "--min-hold", hold.String(), "x", "--",
		"sh", "-c", "exit 3")
	if took := time.Since(began); got.code != 3 || took < hold {
		t.Errorf("exit code %d after %v, want 3 after at least %v", got.code, took, hold)
	}
	if !strings.Contains(got.stderr, "--min-hold") {
		t.Errorf("--verbose does not mention --min-hold: %s", got.stderr)
	}
}

func TestVersionNamesSchemes(t *testing.T) {
	t.Parallel()
	got := dlockRun(t, nil, "version")
	for _, text := range []string{"dlock ", "go1.", "file", "redis", "rediss"} {
		if !strings.Contains(got.stdout, text) {
			t.Errorf("version does not show %q: %s", text, got.stdout)
		}
	}
}
