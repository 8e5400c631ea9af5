//go:build unix

package command

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/pki"
)

// verifyRun runs dlock verify until it ends, which may take minutes.
func verifyRun(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := dlockCommand(ctx, nil, append([]string{"verify"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok || ctx.Err() != nil {
		t.Fatalf("dlock verify %q: %v %v; standard output: %s",
			args, err, ctx.Err(), stdout.String())
	}
	return result{codeOf(cmd), stdout.String(), stderr.String()}
}

// findings parses the output of --json.
func (r result) findings(t *testing.T) []finding {
	t.Helper()
	var all []finding
	for decoder := json.NewDecoder(strings.NewReader(r.stdout)); ; {
		var f finding
		if err := decoder.Decode(&f); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%v in %s", err, r.stdout)
		}
		all = append(all, f)
	}
}

// some matches cases of every kind, which take a few seconds in all.
const some = "^(AcquireGrants|OneHolderAtATime$|ListShows|Hostile|LeaseIsRenewed|ClientsLeave|" +
	"LostReply|LostRepl.*Ghost|.*BlackHole|.*Pause)"

// The whole suite passes on backends without a server.
func TestVerifyWithoutServer(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"mem:" + t.Name(), fileURL(t)} {
		t.Run(url[:4], func(t *testing.T) {
			t.Parallel()
			got := verifyRun(t, "--json", url)
			if got.code != 0 || got.stderr != "" {
				t.Errorf("exit code %d; standard error: %s", got.code, got.stderr)
			}
			count := map[outcome]int{}
			for _, f := range got.findings(t) {
				if f.URL != url || f.Promise == "" || f.Seen == nil || f.Void == nil ||
					f.Outcome == failed {
					t.Errorf("finding %+v", f)
				}
				count[f.Outcome]++
			}
			all := len(conformance.Cases())
			if count[passed] < 100 || count[passed]+count[skipped] != all {
				t.Errorf("%v of %d cases", count, all)
			}
		})
	}
}

func TestVerifyServers(t *testing.T) {
	t.Parallel()
	servers := map[string]func(testenv.TB) *testenv.Server{
		"redis": testenv.Redis, "memcached": testenv.Memcached, "zookeeper": testenv.ZooKeeper,
		"etcd": testenv.Etcd, "mysql": testenv.MySQL, "postgres": testenv.Postgres,
	}
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := verifyRun(t, "--json", "--faults", "--run", some, start(t).URL)
			if got.code != 0 || got.stderr != "" {
				t.Errorf("exit code %d; standard error: %s", got.code, got.stderr)
			}
			ran := 0
			for _, f := range got.findings(t) {
				want := passed
				switch {
				case strings.Contains(f.Case, "Pause"):
					want = skipped // it would stop the server
				case f.Outcome == skipped && needsMore(f.Case):
					continue
				}
				if f.Outcome != want {
					t.Errorf("finding %+v, want outcome %s", f, want)
				}
				ran++
			}
			if ran < 15 {
				t.Errorf("only %d cases ran", ran)
			}
		})
	}
}

// needsMore reports whether a case does not apply to servers without some kinds of locks.
func needsMore(name string) bool {
	return slices.ContainsFunc(conformance.Cases(), func(c conformance.Case) bool {
		return c.Name == name && (c.Mode != 0 || c.Combine)
	})
}

// distant matches cases with short terms, with limits in time, or with many requests in sequence.
const distant = "^(OneHolderAtATime$|OneHolderAcross|ReleaseWakes|LeaseIsRenewed|LossIs|" +
	"AbandonedGrant|LockEnds|Extend|.*BlackHole|MaxHold|LongNames|.*Fifty|KilledPermits|" +
	"OppositeOrders|LostRepliesL|DeadHolder|DeadLeader)"

// A distant server breaks no promise.
func TestVerifyDistantServer(t *testing.T) {
	t.Parallel()
	s := testenv.Redis(t)
	p := testenv.NewProxy(t, s.Addr)
	p.Latency(t, 100*time.Millisecond)
	url := strings.Replace(s.URL, s.Addr, p.Addr(), 1)
	got := verifyRun(t, "--json", "--faults", "--parallel", "16", "--run", distant, url)
	if got.code != 0 || got.stderr != "" {
		t.Errorf("exit code %d; standard error: %s", got.code, got.stderr)
	}
	for _, f := range got.findings(t) {
		if f.Outcome != passed || f.Void == nil {
			t.Errorf("finding %+v", f)
		}
	}
}

// verify names the promise that a server breaks by losing its data.
func TestVerifyNamesTheBrokenPromise(t *testing.T) {
	t.Parallel()
	url := testenv.Redis(t).URL
	prefix := "stolen-" + strings.ToLower(t.Name()) + "-"
	ctx, stop := context.WithCancel(t.Context())
	stolen := make(chan error, 1)
	go func() { stolen <- steal(ctx, url, prefix) }()
	got := verifyRun(t, "--prefix", prefix, "--run", "^LeaseIsRenewed$", url)
	stop()
	if err := <-stolen; err != nil {
		t.Fatal(err)
	}
	if got.code != exitNo || got.stderr != "" {
		t.Errorf("exit code %d, want %d; standard error: %s", got.code, exitNo, got.stderr)
	}
	for _, text := range []string{
		"FAIL  LeaseIsRenewed", "A lease that is held for more than its term is renewed, not lost",
		"seen: ", "0 of 1 promises kept",
	} {
		if !strings.Contains(got.stdout, text) {
			t.Errorf("standard output lacks %q: %s", text, got.stdout)
		}
	}
}

// steal deletes all keys of dlock's that begin with prefix, until ctx ends.
func steal(ctx context.Context, url, prefix string) error {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	client := redis.NewClient(opts)
	defer client.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		keys := client.Scan(ctx, 0, "dlock:{"+prefix+"*", 1000).Iterator()
		for keys.Next(ctx) {
			if err := client.Del(ctx, keys.Val()).Err(); err != nil && ctx.Err() == nil {
				return err
			}
		}
		<-tick.C
	}
	return nil
}

func TestVerifyExitCodes(t *testing.T) {
	t.Parallel()
	file, closed := fileURL(t), "redis://"+closedPort
	tests := map[int][][]string{
		exitUsage: {
			{},
			{"--run", "(", file},
			{"--run", "NoSuchCase", file},
			{"--parallel", "0", file},
			{"--parallel", "x", file},
			{"--no-such-flag", file},
			{"--prefix", strings.Repeat("x", maxPrefix+1), file},
			{"--prefix", "\n", file},
			{"nonsense"},
			{"nonsense://h"},
			{"redis://h:port"},
			{file + "?no-such-parameter=1"},
			{"--faults", "redis:?socket=/no/such/socket"},
			{"--faults", "etcds://a,b"},
			{"--faults", "memcached://a,b?tls=1"},
		},
		exitUnavailable: {{closed}, {"--faults", closed}, {closed, "--faults"}},
		exitUnsupported: {{file + "?require=break"}},
	}
	for want, lines := range tests {
		for _, args := range lines {
			got := verifyRun(t, args...)
			if got.code != want || got.stdout != "" {
				t.Errorf("verify %q: exit code %d, want %d; standard output: %s",
					args, got.code, want, got.stdout)
			}
			checkLine(t, "verify "+strings.Join(args, " "), got.stderr)
		}
	}
}

// After a URL that fails, verify goes on with the other URLs. It never prints a password.
func TestVerifyGoesOn(t *testing.T) {
	t.Parallel()
	closed := "redis://:hunter2@" + closedPort
	got := verifyRun(t, "--run", "^AcquireGrantsAFreeLock$",
		"redis://u:hunter2@h:port", closed, fileURL(t))
	if got.code != exitUsage || !strings.Contains(got.stdout, "1 of 1 promises kept") {
		t.Errorf("exit code %d; standard output: %s", got.code, got.stdout)
	}
	if strings.Count(got.stderr, "\n") != 2 || strings.Contains(got.stdout+got.stderr, "hunter2") {
		t.Errorf("standard error: %s", got.stderr)
	}
	got = verifyRun(t, "--run", "^AcquireGrantsAFreeLock$", closed, fileURL(t))
	if got.code != exitUnavailable {
		t.Errorf("exit code %d, want %d", got.code, exitUnavailable)
	}
}

func TestVerifyRefusesForeignLocks(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	holder := startDlock(t, url, "run", "--prefix", "theirs/", "x", "--",
		"sh", "-c", "echo ready; read line")
	holder.expect("ready")
	got := verifyRun(t, "--prefix", "thei", url)
	if got.code != exitUsage || got.stdout != "" || !strings.Contains(got.stderr, `"theirs/x"`) {
		t.Errorf("exit code %d; standard output: %s; standard error: %s",
			got.code, got.stdout, got.stderr)
	}
	// verify puts the prefix of the URL before its own prefix: the user may have
	// access to no other names.
	got = verifyRun(t, "--run", "^AcquireGrantsAFreeLock$", url+"?prefix=ours/")
	if got.code != 0 || !strings.Contains(got.stdout, "below ours/dlock-verify/") {
		t.Errorf("exit code %d; standard output: %s; standard error: %s",
			got.code, got.stdout, got.stderr)
	}
}

func TestVerifyInterrupted(t *testing.T) {
	t.Parallel()
	url, prefix := testenv.Redis(t).URL, "interrupted-"+strings.ToLower(t.Name())+"/"
	p := startDlock(t, "", "verify", "--faults", "--prefix", prefix, url)
	for !strings.HasPrefix(p.line(), "ok ") {
		continue
	}
	p.send(syscall.SIGINT)
	for !strings.Contains(p.line(), "not checked: interrupted") {
		continue
	}
	p.code(128 + int(syscall.SIGINT))
	if got := dlockRun(t, on(url), "ls", "--json", prefix); got.code != 0 || got.stdout != "" {
		t.Errorf("locks are left: %s%s", got.stdout, got.stderr)
	}
}

// verify --faults works over TLS, although the certificate of the server does not name the proxy.
func TestVerifyFaultsOverTLS(t *testing.T) {
	t.Parallel()
	authority := pki.NewAuthority(t)
	cert := authority.Issue(t, "localhost", time.Now().Add(time.Hour)).TLS
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	addr := testenv.Forward(t, l, testenv.Redis(t).Addr).Addr()
	url := "rediss://" + strings.Replace(addr, "127.0.0.1", "localhost", 1) +
		"?ca=" + authority.File
	got := verifyRun(t, "--faults",
		"--run", "^(LostReplyToATryIsUndone|LockReturnsFromABlackHole)$", url)
	if got.code != 0 || !strings.Contains(got.stdout, "2 of 2 promises kept") {
		t.Errorf("exit code %d; standard output: %s; standard error: %s",
			got.code, got.stdout, got.stderr)
	}
}

// failing is a harness whose Driver returns an error.
type failing struct{ conformance.Harness }

func (failing) Driver(context.Context) (backend.Driver, error) {
	return nil, errors.New("no driver")
}

func (failing) Close() {}

// However a case ends, its clean-up runs, and the run goes on.
func TestTrial(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		mk   conformance.HarnessMaker
		want outcome
		seen string
	}{
		{"no driver", func(conformance.TB) conformance.Harness {
			return failing{}
		}, failed, "no driver"},
		{"fatal", func(t conformance.TB) conformance.Harness {
			t.Fatalf("why %d", 1)
			return nil
		}, failed, "why 1"},
		{"skip", func(t conformance.TB) conformance.Harness {
			t.Skipf("why %d", 2)
			return nil
		}, skipped, "why 2"},
		{"panic", func(conformance.TB) conformance.Harness {
			panic("on purpose")
		}, failed, "panic: on purpose"},
		{"panic in a clean-up", func(t conformance.TB) conformance.Harness {
			t.Cleanup(func() { panic("at the end") })
			t.Skipf("")
			return nil
		}, failed, "panic: at the end"},
		{"fatal in a clean-up", func(t conformance.TB) conformance.Harness {
			t.Cleanup(func() { t.Fatalf("at the end") })
			t.Skipf("")
			return nil
		}, failed, "at the end"},
	}
	cases := conformance.Cases()
	last := cases[len(cases)-1]
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var order []int
			got := try(t.Context(), last, func(t conformance.TB) conformance.Harness {
				t.Cleanup(func() { order = append(order, 2) })
				t.Cleanup(func() { order = append(order, 1) })
				_ = t.TempDir()
				return tt.mk(t)
			})
			outcome, seen := got.outcome()
			text := strings.Join(seen, "\n")
			if outcome != tt.want || !strings.Contains(text, tt.seen) {
				t.Errorf("%s: %q, want %s: %q", outcome, text, tt.want, tt.seen)
			}
			if !slices.Equal(order, []int{1, 2}) {
				t.Errorf("cleaned up in the order %v", order)
			}
		})
	}
}
