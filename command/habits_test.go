//go:build unix

package command

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// bench and verify take URLs from a file and from the environment, because ps shows arguments.
// Words of the command line come first. The environment counts only if there is no other URL.
func TestSourcesOfSeveralURLs(t *testing.T) {
	t.Parallel()
	word, flag, file, variable := fileURL(t), fileURL(t), fileURL(t), fileURL(t)
	urlFile := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(urlFile, []byte(file+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"DLOCK_URL=" + variable}
	commands := map[string][]string{
		"bench":  benchTiny("--json", "--workloads", "W1"),
		"verify": {"verify", "--run", "^AcquireGrantsAFreeLock$"},
	}
	for name, command := range commands {
		all := append(slices.Clone(command), "--url-file", urlFile, "--url", flag, word)
		given := strings.Join([]string{word, flag, file}, " ")
		for want, args := range map[string][]string{given: all, variable: command} {
			got := dlockRun(t, env, args...)
			if got.code != 0 {
				t.Errorf("dlock %s: exit code %d; standard error: %s", name, got.code, got.stderr)
			}
			last := -1
			for url := range strings.FieldsSeq(want) {
				at := strings.Index(got.stdout, url)
				if at <= last {
					t.Errorf("dlock %s does not show %s in its place:\n%s", name, url, got.stdout)
				}
				last = at
			}
		}
	}
}

// Only a complete page replaces an old one. No other file is left in its directory, unless bench is
// killed.
func TestBenchKeepsTheOldPage(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.html")
	write := func() {
		if err := os.WriteFile(page, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(after string, want int) {
		text, err := os.ReadFile(page)
		files, _ := os.ReadDir(filepath.Dir(page))
		if err != nil || string(text) != "old" || len(files) != want {
			t.Errorf("after %s the page is %q, %v, in a directory with %d files, want %d",
				after, text, err, len(files), want)
		}
	}
	for _, url := range []string{"nonsense", "redis://" + closedPort} {
		write()
		if got := dlockRun(t, nil, benchTiny("--html", page, url)...); got.code == 0 {
			t.Errorf("dlock bench %s succeeded", url)
		}
		check("bench "+url, 1)
	}
	p := startDlock(t, "mem:",
		benchTiny("--html", page, "--workloads", "W1", "--duration", "1h")...)
	for {
		text, _ := os.ReadFile(page)
		files, _ := os.ReadDir(filepath.Dir(page))
		if string(text) != "old" || len(files) > 1 {
			break // it measures
		}
		time.Sleep(time.Millisecond)
	}
	_ = p.cmd.Process.Kill()
	p.awaitEnd()
	check("it was killed", 2)
}

// Errors name the mistake in the words of the user, and suggest a correction.
func TestErrorsShowTheRightForm(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	holder := startDlock(t, url, "run", "--meta", "night job", "taken", "--",
		"sh", "-c", "echo ready; read line")
	holder.expect("ready")
	for _, row := range []struct{ line, says, never string }{
		{"run -- ls -l", "NAME is missing before --", "unknown"},
		{"run x -l -- ls", "flags of COMMAND stand behind --", ""},
		{"run --tll 5s x -- true", "did you mean --ttl?", ""},
		{"rnu x -- true", "did you mean run?", ""},
		{"ry x -- true", "did you mean try?", ""},
		{"tru x -- true", "did you mean try?", ""}, // run is similar, too
		{"ben", "did you mean bench?", ""},
		{"run --url file:locks x -- true", "as in file:///absolute/path", ""},
		{"run --url file://locks/x x -- true", "as in file:///absolute/path", ""},
		{"redis://:secret@host/", "a URL stands behind --url", "secret"},
		{"user:secret@host run x -- true", "a URL stands behind --url", "secret"},
		{"help redis://:secret@host/", "a URL stands behind --url", "secret"},
		{"run --url-file redis://u:secret@h/ x -- true", "a URL stands behind --url", "secret"},
		{"bench --url-file redis://u:secret@h/", "a URL stands behind --url", "secret"},
		{"run -w redis://u:secret@h/ x -- true", "value of -w, --wait looks like a URL", "secret"},
		{"run -E u:secret@h x -- true", "a URL stands behind --url", "secret"},
		{"run --limit redis://u:secret@h/ x -- true", "value of --limit looks like", "secret"},
		{"run -n=redis://u:secret@h/ x -- true", "a URL stands behind --url", "secret"},
		{"run -v=redis://u:secret@h/ x -- true", "a URL stands behind --url", "secret"},
		{"run -uredis://u:secret@h/ x -- true", "a URL stands behind --url", "secret"},
		{"run -oredis://u:secret@h/ x -- true", "a URL stands behind --url", "secret"},
		{"run --redis://u:secret@h/ x -- true", "a URL stands behind --url", "secret"},
		{"run redis://u:secret@h/ -- true", "a URL stands behind --url", "secret"},
		{"status redis://u:secret@h/", "a URL stands behind --url", "secret"},
		{"break -y redis://u:secret@h/", "a URL stands behind --url", "secret"},
		{"status DLOCK_URL=redis://u:secret@h/", "a URL stands behind --url", "secret"},
		{"status REDIS://u:secret@h/", "a URL stands behind --url", "secret"},
		{"status redis://u:sec/ret@h/", "a URL stands behind --url", "sec/ret"},
		{"status URL_redis://u:secret@h", "a URL stands behind --url", "secret"},
		{"status redis://:/secret@h", "a URL stands behind --url", "secret"},
		{"status redis://secret@h", "a URL stands behind --url", "secret"},
		{"status redis:/u:54321@h", "a URL stands behind --url", "54321"},
		{"status mysql:/u:secret@h", "a URL stands behind --url", "secret"},
		{"run x -- DLOCK_URL=redis://u:secret@h/ true", "COMMAND looks like the URL", "secret"},
		{"run --meta redis://u:secret@h/ x -- true", "value of --meta looks like", "secret"},
		{"ls redis://u:secret@h/", "PREFIX looks like the URL", "secret"},
		{"ls --prefix redis://u:secret@h/", "value of --prefix looks like", "secret"},
		{"verify --prefix redis://u:secret@h/", "value of --prefix looks like", "secret"},
		{"bench --prefix redis://u:secret@h/", "value of --prefix looks like", "secret"},
		{"run -E abc x -- true", "-E, --conflict-exit-code: it must be a number", "strconv"},
		{"run --limit 99999999999999999999 x -- true", "must be a smaller number", "strconv"},
		{"run -v=maybe x -- true", "it must be true or false", "strconv"},
		{"run -x x -- true", "a lock is exclusive without a flag", "COMMAND"},
		{"run --exclusive x -- true", "a lock is exclusive without a flag", "COMMAND"},
		{"run -s x -- true", "dlock run --shared", "COMMAND"},
		{"run -u x -- true", "frees the lock when COMMAND has ended", ""},
		{"run --timeout 3 x -- true", "dlock run -w", "COMMAND"},
		{"run --nb x -- true", "dlock run -n", "COMMAND"},
		{"try -w 3 x -- true", "dlock run -w", "COMMAND"},
		{"help run nonsense", `unknown command "nonsense"`, `"run"`},
		{"run --wait 1e99 x -- true", "out of range", ""},
		{"run --wait soon x -- true", "5, 1.5s or 2m30s", ""},
		{"run -n taken -- true", `"taken": not acquired: held by night job`, "try-lock"},
		{"run --wait 2.5 taken -- true", "not acquired within 2.5s: held by night job, for ", ""},
		{"run --wait 2.5 taken -- true", "s, fence ", "mutex"},
		{"run --url file:/proc/1/no/such x -- true", "/proc/1/no", "mutex"},
	} {
		got := dlockRun(t, on(url), strings.Fields(row.line)...)
		if !strings.Contains(got.stderr, row.says) ||
			row.never != "" && strings.Contains(got.stderr, row.never) {
			t.Errorf("dlock %s: %q, want %q and no %q", row.line, got.stderr, row.says, row.never)
		}
		if strings.Contains(got.stdout, "secret") {
			t.Errorf("dlock %s writes %s", row.line, got.stdout)
		}
	}
}

// A URL is a good name of a lock if it is not the URL of a server with a password.
func TestNameMayBeAURL(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	names := []string{
		"https://example.com/@user", "redis://host/", "redis://host/@user", "a:b@c",
		"mysql:nightly@host", "redis://host:6379/@user", "notredis:a:b@c",
		"file:backup:root@db1", "file:/backup:root@db1", "redis:flush:alice@web1",
		"redis://[::1]:6379/@user", "restart of redis: why: ask bob@example.com",
		"redis://web1: ask bob@example.com", "redis://web1:6379: ask bob@example.com",
	}
	for _, name := range names {
		got := dlockRun(t, on(url), "run", "--meta", name, name, "--", "true")
		if got.code != 0 {
			t.Errorf("%s: exit code %d: %s", name, got.code, got.stderr)
		}
		got = dlockRun(t, on(url), "status", name)
		if got.code != 0 || !strings.Contains(got.stdout, name) {
			t.Errorf("status of %s: exit code %d: %s", name, got.code, got.stdout+got.stderr)
		}
		if got = dlockRun(t, on(url), "ls", "--prefix", name, name); got.code != 0 {
			t.Errorf("ls of %s: exit code %d: %s", name, got.code, got.stderr)
		}
	}
}

// The error of a wrong URL does not name --wait, however short it is.
func TestWaitIsNoCauseOfAWrongURL(t *testing.T) {
	t.Parallel()
	got := dlockRun(t, on("nosuch://host"), "run", "-w", "1ns", "x", "--", "true")
	if got.code != exitUsage || strings.Contains(got.stderr, "within") {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}

// The help of break warns that the command of the holder may run until its grace is over, and that
// the grace may begin with the next renewal.
func TestHelpOfBreakNamesTheOverlap(t *testing.T) {
	t.Parallel()
	got := dlockRun(t, nil, "help", "break")
	for _, want := range []string{"up to its --grace", "at the next renewal"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("the help is %q, without %q", got.stdout, want)
		}
	}
}

// dlock gives up a taken lock when --wait is over. This includes memcached, where waiters poll.
func TestWaitIsShort(t *testing.T) {
	t.Parallel()
	url, name := testenv.Memcached(t).URL, nameFor(t)
	holder := startDlock(t, url, "run", name, "--", "sh", "-c", "echo ready; read line")
	holder.expect("ready")
	timed := func(flags ...string) time.Duration {
		began := time.Now()
		args := append(append([]string{"run"}, flags...), name, "--", "true")
		got := dlockRun(t, on(url), args...)
		if got.code != exitNotAcquired {
			t.Fatalf("exit code %d: %s", got.code, got.stderr)
		}
		return time.Since(began)
	}
	const wait = 500 * time.Millisecond
	probe := testenv.Probe(t, url)
	testenv.InTime(t, 2*wait, probe, func() (begun time.Time, more time.Duration) {
		begun = time.Now()
		return begun, timed("--wait", wait.String()) - timed("-n")
	})
}

// --wait limits the connection to a server that accepts connections and never answers.
func TestWaitBoundsConnecting(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	for _, scheme := range []string{"redis", "memcached", "zk", "etcd", "mysql", "postgres"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			url := scheme + "://" + listener.Addr().String()
			if scheme == "mysql" || scheme == "postgres" {
				url += "/test"
			}
			if scheme != "zk" { // zk has no such parameter
				url += "?timeout=1m"
			}
			testenv.InTime(t, openLimit/2, nil, func() (began time.Time, took time.Duration) {
				began = time.Now()
				got := dlockRun(t, on(url), "run", "--wait", "0.3", "x", "--", "true")
				if got.code != exitUnavailable || !strings.Contains(got.stderr, "within 300ms") {
					t.Errorf("exit code %d; standard error: %s", got.code, got.stderr)
				}
				return began, time.Since(began)
			})
		})
	}
}

// openLimit is how long dlock.Open may take without --wait.
const openLimit = 10 * time.Second

// A request that is under way when --wait is over does not prove a silent server: the lock is
// taken.
func TestWaitEndsDuringARequest(t *testing.T) {
	t.Parallel()
	server, name := testenv.Memcached(t), nameFor(t)
	holder := startDlock(t, server.URL, "run", name, "--", "sh", "-c", "echo ready; read line")
	holder.expect("ready")
	proxy := testenv.NewProxy(t, server.Addr)
	// A waiter pauses for some milliseconds between its requests, so one is always under way.
	proxy.Latency(t, 150*time.Millisecond)
	got := dlockRun(t, on("memcached://"+proxy.Addr()), "run", "--wait", "6s", name, "--", "true")
	const want = "not acquired within 6s: held by"
	if got.code != exitNotAcquired || !strings.Contains(got.stderr, want) {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}
