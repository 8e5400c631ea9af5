//go:build unix

package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/bench"
	"github.com/dlock-go/dlock/command/internal/guard"
	"github.com/dlock-go/dlock/internal/testenv"
)

// benchTiny returns the command line of the shortest possible bench.
func benchTiny(args ...string) []string {
	tiny := []string{
		"bench", "--duration", "10ms", "--contenders", "2", "--waiters", "5", "--locks", "5",
	}
	return append(tiny, args...)
}

func TestBenchTable(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	got := dlockRun(t, nil, benchTiny("--workloads", "w1,W4,recovery", "mem:", url)...)
	if got.code != 0 || got.stderr != "" { // without a terminal there is no bar
		t.Fatalf("exit code %d, standard error: %s", got.code, got.stderr)
	}
	for _, want := range []string{
		"W1: ", "W4: ", "recovery: ", "\nmem: ", "\n" + url + " ", "PAIRS/S",
		"4 × 8, connections of one process",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("the table has no %q:\n%s", want, got.stdout)
		}
	}
	if strings.Contains(got.stdout, "W2") || strings.Contains(got.stdout, "\x1b") {
		t.Errorf("the table has W2 or a control sequence:\n%s", got.stdout)
	}
}

func TestBenchJSON(t *testing.T) {
	t.Parallel()
	got := dlockRun(t, nil, benchTiny("--json", "--workloads", "W1,W3", "mem:")...)
	report := benchReport(t, got)
	if !report.Complete || len(report.Results) != 3 || report.Machine.CPUs == 0 {
		t.Errorf("%+v", report)
	}
	for _, r := range report.Results {
		if r.Operations == 0 || r.Error != "" {
			t.Errorf("%+v", r)
		}
	}
}

// benchReport parses the one object on standard output.
func benchReport(t *testing.T, got result) (report bench.Report) {
	t.Helper()
	err := json.Unmarshal([]byte(got.stdout), &report)
	if err != nil || strings.Count(got.stdout, "\n") != 1 {
		t.Fatalf("standard output is not one object: %v\n%s\n%s", err, got.stdout, got.stderr)
	}
	return report
}

// The page loads nothing from elsewhere.
func TestBenchHTML(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "page.html")
	got := dlockRun(t, nil, benchTiny("--html", file, "--workloads", "W1,W3,W5", "mem:")...)
	if got.code != 0 {
		t.Fatalf("exit code %d, standard error: %s", got.code, got.stderr)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, foreign := range []string{
		"http:", "https:", "src=", "href=", "@import", "url(", "ZgotmplZ",
	} {
		if strings.Contains(text, foreign) {
			t.Errorf("the page has a %q", foreign)
		}
	}
	for _, id := range []string{"W1", "W3", "W5"} {
		if !strings.Contains(text, "<h2>"+id+": ") {
			t.Errorf("the page has no %s", id)
		}
	}
	if plots := strings.Count(text, "</svg>"); plots < 5 || plots != strings.Count(text, "<svg ") {
		t.Errorf("the page has %d plots", plots)
	}
}

func TestBenchUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"bench"},
		{"bench", "nonsense"},
		{"bench", "nonsense://host"},
		{"bench", "--workloads", "W11", "mem:"},
		{"bench", "--workloads", "", "mem:"},
		{"bench", "--contenders", "0", "mem:"},
		{"bench", "--contenders", "2,-1", "mem:"},
		{"bench", "--contenders", "", "mem:"},
		{"bench", "--duration", "0", "mem:"},
		{"bench", "--duration", "-1s", "mem:"},
		{"bench", "--waiters", "0", "mem:"},
		{"bench", "--locks", "-1", "mem:"},
		{"bench", "--prefix", "", "mem:"},
		{"bench", "--html", "", "mem:"},
		{"bench-process", "x"},
		{"bench-process"},
	} {
		got := dlockRun(t, nil, args...)
		if got.code != exitUsage || got.stdout != "" {
			t.Errorf("dlock %q: exit code %d, standard output %q", args, got.code, got.stdout)
		}
		checkLine(t, fmt.Sprint(args), got.stderr)
	}
	page := filepath.Join(t.TempDir(), "no", "such", "directory")
	got := dlockRun(t, nil, "bench", "--html", page, "mem:")
	if got.code != exitNo {
		t.Errorf("a page that cannot be written: exit code %d, standard error: %s",
			got.code, got.stderr)
	}
}

// bench reports a URL that fails, and measures the other URLs.
func TestBenchGoesOn(t *testing.T) {
	t.Parallel()
	closed := "redis://" + closedPort
	for url, code := range map[string]int{
		closed: exitUnavailable, "mem:?no-such-parameter=1": exitUsage, "mem:": exitUsage,
	} {
		got := dlockRun(t, nil, benchTiny("--json", "--workloads", "W1", "mem:", url)...)
		if got.code != code || !strings.HasPrefix(got.stderr, "dlock: "+url+": ") {
			t.Errorf("exit code %d, want %d; standard error: %s", got.code, code, got.stderr)
		}
		checkLine(t, url, got.stderr)
		report := benchReport(t, got)
		if len(report.Results) != 1 || report.Results[0].Subject != "mem:" {
			t.Errorf("%+v", report.Results)
		}
	}
}

// bench refuses a prefix under which there are locks. It warns if the backend cannot list locks.
func TestBenchPrefix(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	holder := startDlock(t, url, "run", "theirs/x", "--", "sh", "-c", "echo ready; read line")
	holder.expect("ready")
	got := dlockRun(t, nil, benchTiny("--workloads", "W1", "--prefix", "theirs/", url)...)
	if got.code != exitUsage || !strings.Contains(got.stderr, `"theirs/x"`) || got.stdout != "" {
		t.Errorf("exit code %d, standard output %q, standard error: %s",
			got.code, got.stdout, got.stderr)
	}
	got = dlockRun(t, nil, benchTiny("--workloads", "W1", "--prefix", "ours/", url)...)
	if got.code != 0 {
		t.Errorf("exit code %d, standard error: %s", got.code, got.stderr)
	}
	memcached := testenv.Memcached(t).URL
	prefix := "bench-" + filepath.Base(t.TempDir())
	got = dlockRun(t, nil, benchTiny("--workloads", "W1", "--prefix", prefix, memcached)...)
	if got.code != 0 || !strings.Contains(got.stderr, "cannot list") {
		t.Errorf("exit code %d, standard error: %s", got.code, got.stderr)
	}
}

// After a signal, bench writes the results so far, and leaves neither locks nor files.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startDlock(t, "", benchForever("file:"+dir)...)
	awaitLock(t, "file:"+dir)
	p.send(syscall.SIGINT)
	var report bench.Report
	if err := json.Unmarshal([]byte(p.line()), &report); err != nil || report.Complete {
		t.Errorf("%+v, %v", report, err)
	}
	p.code(exitSignal + int(syscall.SIGINT))
	checkEmpty(t, dir)
}

// benchForever returns the command line of a bench whose processes contend until a signal comes.
func benchForever(url string) []string {
	return []string{"bench", "--json", "--duration", "1h", "--workloads", "W4", url}
}

// awaitLock waits until a lock is held.
func awaitLock(t *testing.T, url string) {
	t.Helper()
	client, err := dlock.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	look := time.NewTicker(guard.LookInterval)
	defer look.Stop()
	for end := time.Now().Add(patience); len(keysOf(t, client)) == 0; <-look.C {
		if time.Now().After(end) {
			t.Fatal("no lock is held")
		}
	}
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func keysOf(t *testing.T, client *dlock.Client) (keys []string) {
	t.Helper()
	for info, err := range client.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// bench removes the data of its locks from the server.
func TestBenchSweeps(t *testing.T) {
	t.Parallel()
	server := testenv.NewRedis(t)
	for _, url := range []string{server.URL, server.URL + "?prefix=mine/"} {
		if got := dlockRun(t, nil, benchTiny("--workloads", "W1,W3", url)...); got.code != 0 {
			t.Fatalf("exit code %d, standard error: %s", got.code, got.stderr)
		}
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	// The last fence of the server stays, because fences must not repeat.
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil || !slices.Equal(keys, []string{"dlock:fence"}) {
		t.Errorf("left behind: %q, %v", keys, err)
	}
}
