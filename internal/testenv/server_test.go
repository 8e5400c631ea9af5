package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/announce"
)

// kinds are the servers that have Go code, with the product each of them must turn out to be.
var kinds = []struct {
	spec    *spec
	product string
}{
	{redisSpec, "Redis "},
	{valkeySpec, "Valkey "},
}

func TestShared(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.spec.name, func(t *testing.T) {
			s := kind.spec.share(t)
			if !strings.HasPrefix(s.Version, kind.product) {
				t.Errorf("the server says that it is %q", s.Version)
			}
			if again := kind.spec.share(t); again != s {
				t.Error("a second call gives another server")
			}
		})
	}
}

func TestOwn(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.spec.name, func(t *testing.T) { controlled(t, kind.spec.own(t, []string{"--requirepass", "s3cret"})) })
	}
}

// Where Docker is there the processes are tested too, if the programs are.
func TestProcess(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.spec.name, func(t *testing.T) {
			program, err := findProgram(kind.spec.program)
			if err != nil {
				t.Log(err)
				return
			}
			s, err := kind.spec.boot(sourceProcess, nil, func(port int) (control, error) {
				return newProcess(kind.spec, program, port, nil)
			})
			if err != nil {
				t.Fatal(err)
			}
			controlled(t, s)
			if err := s.ctl.remove(); err != nil {
				t.Error(err)
			}
		})
	}
}

// prompt bounds what must happen.
const prompt = time.Minute

// controlled pauses and restarts a server.
func controlled(t *testing.T, s *Server) {
	t.Helper()
	addr, ctx := s.Addr, t.Context()
	write(t, s, "kept")

	resume := s.Pause(t)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := s.spec.probe(short, s.URL); err == nil {
		t.Error("a paused server answers")
	}
	resume()
	if _, err := s.await(prompt); err != nil {
		t.Errorf("after resume: %v", err)
	}

	s.Kill(t)
	if _, err := s.spec.probe(ctx, s.URL); err == nil {
		t.Error("a killed server answers")
	}
	s.Start(t)
	if s.Addr != addr {
		t.Errorf("the address was %s and is %s", addr, s.Addr)
	}
	if got := read(t, s); got != "kept" {
		t.Errorf("after the restart the server has %q", got)
	}
	s.Restart(t)
}

func write(t *testing.T, s *Server, value string) {
	t.Helper()
	c, err := redisClient(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Set(t.Context(), "key", value, 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, s *Server) string {
	t.Helper()
	c, err := redisClient(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	value, err := c.Get(t.Context(), "key").Result()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestGiven(t *testing.T) {
	s := Redis(t)
	t.Setenv(redisSpec.urlVariable(), s.URL)
	given, err := redisSpec.given()
	if err != nil {
		t.Fatal(err)
	}
	if given.Source != sourceURL || given.Addr != s.Addr || given.Version != s.Version || given.ctl != nil {
		t.Errorf("given server: %+v", given)
	}
	t.Setenv(redisSpec.urlVariable(), "127.0.0.1:6379")
	if _, err := redisSpec.given(); err == nil {
		t.Error("an address passes for a URL")
	}
}

// A server that cannot start is an error that shows what the server said.
func TestBootFails(t *testing.T) {
	_, err := redisSpec.launch([]string{"--no-such-flag", "x"})
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("launch: %v", err)
	}
}

// fakeTB records what a test would have done.
type fakeTB struct {
	*testing.T
	name, skipped, failed string
	logs                  []string
}

func (f *fakeTB) Name() string                   { return f.name }
func (f *fakeTB) Logf(format string, a ...any)   { f.logs = append(f.logs, fmt.Sprintf(format, a...)) }
func (f *fakeTB) Skipf(format string, a ...any)  { f.skipped = fmt.Sprintf(format, a...) }
func (f *fakeTB) Fatalf(format string, a ...any) { f.failed = fmt.Sprintf(format, a...) }

func TestAnnounceOncePerTest(t *testing.T) {
	announced.Clear() // of an earlier run with -count
	fakes := []*fakeTB{{T: t, name: "TestX/a"}, {T: t, name: "TestX/b"}, {T: t, name: "TestY"}}
	for _, f := range fakes {
		Announce(f, "mem", sourceProcess, "Go 1.26")
		Announce(f, "file", sourceProcess, "Linux 6.1 ext4")
	}
	for i, want := range []int{2, 0, 2} {
		if got := len(fakes[i].logs); got != want {
			t.Errorf("%s has %d announcements, want %d", fakes[i].name, got, want)
		}
	}
	if got, ok := announce.Parse(fakes[0].logs[0]); !ok || got.Version != "Go 1.26" {
		t.Errorf("Parse: %+v, %v", got, ok)
	}
}

// A test without a server fails and says what to do, or is skipped where that was asked for.
func TestMissing(t *testing.T) {
	t.Setenv("DLOCK_TEST_ALLOW_SKIP", "")
	f := &fakeTB{T: t}
	missing(f, redisSpec.none(os.ErrNotExist, os.ErrNotExist))
	for _, want := range []string{"DLOCK_TEST_REDIS_URL", "scripts/images.sh redis", "redis-server"} {
		if !strings.Contains(f.failed, want) {
			t.Errorf("the failure does not name %s:\n%s", want, f.failed)
		}
	}
}

func TestMissingSkips(t *testing.T) {
	t.Setenv("DLOCK_TEST_ALLOW_SKIP", "1")
	f := &skippingTB{fakeTB{T: t}}
	func() {
		defer func() { _ = recover() }()
		missing(f, os.ErrNotExist)
	}()
	if f.skipped == "" || f.failed != "" {
		t.Errorf("skipped %q, failed %q", f.skipped, f.failed)
	}
}

// skippingTB leaves the caller at a skip, as a test does.
type skippingTB struct{ fakeTB }

func (f *skippingTB) Skipf(format string, a ...any) {
	f.fakeTB.Skipf(format, a...)
	panic("skipped")
}

func TestAddress(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://h":                    "h:6379",
		"redis://u:p@h:1/2?x=y":        "h:1",
		"rediss://[::1]:7":             "[::1]:7",
		"redis://[::1]":                "[::1]:6379",
		"redis+cluster://a:1,b:2/path": "a:1",
	} {
		if got, err := address(raw, 6379); err != nil || got != want {
			t.Errorf("address(%q) = %q, %v, want %q", raw, got, err, want)
		}
	}
}

func TestParseRedisInfo(t *testing.T) {
	for info, want := range map[string]string{
		"# Server\r\nredis_version:8.0.6\r\n":                                               "Redis 8.0.6",
		"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n": "Valkey 9.1.2",
		"redis_version:7.4.0\r\ndragonfly_version:df-v1.30.0\r\n":                           "Dragonfly 1.30.0",
		"": "",
	} {
		if got, err := parseRedisInfo(info); got != want || (err == nil) != (want != "") {
			t.Errorf("parseRedisInfo(%q) = %q, %v", info, got, err)
		}
	}
}

func TestOwnerDead(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	ended := exec.Command(os.Args[0], "-test.run=^$")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host string
		pid  int
		want bool
	}{
		{host, os.Getpid(), false},
		{host, ended.Process.Pid, true},
		{"another-" + host, ended.Process.Pid, false},
	} {
		if got := ownerDead(map[string]string{labelHost: c.host, labelPID: strconv.Itoa(c.pid)}); got != c.want {
			t.Errorf("ownerDead(%s, %d) = %v", c.host, c.pid, got)
		}
	}
}
