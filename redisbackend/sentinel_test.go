package redisbackend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// impostor is a server that answers commands as its handler decides. The lag of a sentinel, and the
// answers of foreign servers, cannot be forced on a real one.
type impostor struct {
	addr    string
	running sync.WaitGroup
}

// handler serves a connection until it returns. read returns the words of the next command.
type handler = func(conn net.Conn, read func() ([]string, error))

func newImpostor(tb testing.TB, handle handler) *impostor {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &impostor{addr: l.Addr().String()}
	s.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.running.Go(func() {
				stop := context.AfterFunc(tb.Context(), func() { _ = conn.Close() })
				defer stop()
				defer conn.Close()
				r := bufio.NewReader(conn)
				handle(conn, func() ([]string, error) { return readCommand(r) })
			})
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		s.running.Wait()
	})
	return s
}

// array is a reply of strings.
func array(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b.String()
}

// fakeSentinel has a view of its own.
type fakeSentinel struct {
	*impostor

	mu          sync.Mutex
	master      string
	epoch       int
	hold        <-chan struct{} // answers wait until it is closed
	subscribers map[net.Conn]bool
}

// newFakeSentinels starts sentinels that have the same view.
func newFakeSentinels(tb testing.TB, n int, master string, epoch int) (all []*fakeSentinel, url string) {
	tb.Helper()
	var addrs []string
	for range n {
		f := &fakeSentinel{master: master, epoch: epoch, subscribers: make(map[net.Conn]bool)}
		f.impostor = newImpostor(tb, f.serve)
		all, addrs = append(all, f), append(addrs, f.addr)
	}
	return all, "redis+sentinel://" + strings.Join(addrs, ",") + "/mymaster?timeout=1m"
}

func (f *fakeSentinel) serve(conn net.Conn, read func() ([]string, error)) {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.subscribers, conn)
	}()
	for {
		words, err := read()
		if err != nil {
			return
		}
		if _, err := io.WriteString(conn, f.answer(conn, words)); err != nil {
			return
		}
	}
}

func (f *fakeSentinel) answer(conn net.Conn, words []string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch name := strings.ToLower(strings.Join(words[:min(2, len(words))], " ")); name {
	case "subscribe +switch-master":
		f.subscribers[conn] = true
		return "*3\r\n" + "$9\r\nsubscribe\r\n" + "$14\r\n+switch-master\r\n" + ":1\r\n"
	case "sentinel master", "sentinel get-master-addr-by-name":
		if f.hold != nil {
			hold := f.hold
			f.mu.Unlock()
			<-hold
			f.mu.Lock()
		}
		host, port, _ := net.SplitHostPort(f.master)
		if name == "sentinel master" {
			return array("name", "mymaster", "ip", host, "port", port, "config-epoch", strconv.Itoa(f.epoch))
		}
		return array(host, port)
	}
	return "-ERR unknown command\r\n"
}

// switchTo gives the sentinel another view. It announces that unless it is mute.
func (f *fakeSentinel) switchTo(master string, epoch int, mute bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := strings.Replace(f.master, ":", " ", 1)
	f.master, f.epoch = master, epoch
	if mute {
		return
	}
	text := "mymaster " + old + " " + strings.Replace(master, ":", " ", 1)
	for conn := range f.subscribers {
		_, _ = io.WriteString(conn, array("message", switchMaster, text))
	}
}

// answerLate holds the sentinel's answers until the test ends, or release is called.
func (f *fakeSentinel) answerLate(tb testing.TB) (release func()) {
	tb.Helper()
	hold := make(chan struct{})
	f.mu.Lock()
	f.hold = hold
	f.mu.Unlock()
	release = sync.OnceFunc(func() { close(hold) })
	tb.Cleanup(release)
	context.AfterFunc(tb.Context(), release)
	return release
}

func (f *fakeSentinel) awaitSubscriber(t *testing.T) {
	t.Helper()
	eventually(t, "a subscription", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.subscribers) > 0
	})
}

// eventually returns when a condition without a signal is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); pause(t, time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// believes waits until a driver believes in a master.
func believes(t *testing.T, d *driver, master string) {
	t.Helper()
	s := d.conn.sentinels
	eventually(t, "the master "+master, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.believed.master == master
	})
}

// wantLockOn repeats an acquisition until it succeeds, because a failover cuts connections. The lock must be on
// one server and not on the other.
func wantLockOn(t *testing.T, d *driver, on, not *testenv.Server) {
	t.Helper()
	req := raw.Request(t, time.Minute)
	var grant *backend.Grant
	eventually(t, "a lock", func() bool {
		g, err := d.Acquire(t.Context(), req)
		grant = g
		return err == nil
	})
	for s, want := range map[*testenv.Server]int64{on: 1, not: 0} {
		if n := do(t, admin(t, s), "exists", newKeys(req.Key).lock); n != want {
			t.Errorf("%d locks on %s at %s, want %d", n, s.Name, s.Addr, want)
		}
	}
	raw.Release(t, d, grant)
}

// The majority of the sentinels may lag behind a failover. A new client believes the newest, in
// whatever order they answer.
func TestNewestSentinelIsBelieved(t *testing.T) {
	t.Parallel()
	before, now := testenv.Redis(t), testenv.Valkey(t)
	for newest := range 3 {
		t.Run(strconv.Itoa(newest), func(t *testing.T) {
			t.Parallel()
			all, url := newFakeSentinels(t, 3, before.Addr, 1)
			all[newest].switchTo(now.Addr, 2, true)
			all[(newest+1)%3].answerLate(t) // so that both of the others count
			wantLockOn(t, openURL(t, url), now, before)
		})
	}
}

// A client that has received an announcement never goes back to the former master, whatever the other
// sentinels answer, and even if the sentinel that announced it fails.
func TestOlderAnswerIsNotBelieved(t *testing.T) {
	t.Parallel()
	before, now := testenv.Redis(t), testenv.Valkey(t)
	for announcer := range 3 {
		t.Run(strconv.Itoa(announcer), func(t *testing.T) {
			t.Parallel()
			all, url := newFakeSentinels(t, 3, before.Addr, 1)
			d := openURL(t, url)
			wantLockOn(t, d, before, now)
			all[announcer].awaitSubscriber(t)
			all[announcer].answerLate(t) // its word is the announcement alone
			all[announcer].switchTo(now.Addr, 2, false)
			believes(t, d, now.Addr)
			wantLockOn(t, d, now, before)
		})
	}
}

// A sentinel that lags announces a switch that is not the last one.
func TestOlderAnnouncementIsNotBelieved(t *testing.T) {
	t.Parallel()
	before, now := testenv.Redis(t), testenv.Valkey(t)
	all, url := newFakeSentinels(t, 3, now.Addr, 1)
	for _, f := range all[1:] {
		f.switchTo(now.Addr, 3, true)
	}
	d := openURL(t, url)
	all[0].awaitSubscriber(t)
	asked := func() time.Time {
		d.conn.sentinels.mu.Lock()
		defer d.conn.sentinels.mu.Unlock()
		return d.conn.sentinels.views[all[0].addr].asked
	}
	last := asked()
	all[0].switchTo(before.Addr, 2, false)
	eventually(t, "the announcement", func() bool { return asked().After(last) })
	wantLockOn(t, d, now, before)
}

// An operator that sets the sentinels up again resets their epochs.
func TestUnanimousSentinelsAreBelieved(t *testing.T) {
	t.Parallel()
	before, now := testenv.Redis(t), testenv.Valkey(t)
	all, url := newFakeSentinels(t, 3, before.Addr, 7)
	d := openURL(t, url)
	for _, f := range all {
		f.awaitSubscriber(t)
		f.switchTo(now.Addr, 0, true)
	}
	for _, f := range all {
		if err := d.conn.sentinels.ask(t.Context(), f.addr); err != nil {
			t.Error(err)
		}
	}
	believes(t, d, now.Addr)
	wantLockOn(t, d, now, before)
}

// A switch that is announced while a connection is dialled retires that connection, too.
func TestSwitchWhileDialling(t *testing.T) {
	t.Parallel()
	before, now := testenv.Redis(t), testenv.Valkey(t)
	all, url := newFakeSentinels(t, 3, before.Addr, 1)
	var mu sync.Mutex
	var gate chan struct{}
	dialling := make(chan struct{}, 1)
	network := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		mu.Lock()
		wait := gate
		mu.Unlock()
		if addr == before.Addr && wait != nil {
			select {
			case dialling <- struct{}{}:
			default:
			}
			<-wait
		}
		return conn, err
	}
	opened, err := parsed(t, url).open(t.Context(), network)
	if err != nil {
		t.Fatal(err)
	}
	d := opened.(*driver)
	t.Cleanup(func() { _ = d.Close() })
	for _, f := range all {
		f.awaitSubscriber(t)
	}
	mu.Lock()
	gate = make(chan struct{})
	mu.Unlock()
	req := raw.Request(t, time.Minute)
	result := make(chan error, 1)
	go func() {
		result <- d.Release(t.Context(), &backend.Grant{Request: *req})
	}()
	<-dialling
	all[0].switchTo(now.Addr, 2, false)
	believes(t, d, now.Addr)
	close(gate)
	raw.WantIs(t, "a request on the connection that was being dialled", <-result, backend.ErrUnavailable)
	wantLockOn(t, d, now, before)
}

func parsed(t *testing.T, url string) *target {
	t.Helper()
	u, err := backend.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	target, err := parseTarget(u)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// A sentinel that has missed a failover names a server that is a replica now.
func TestReplicaIsNoMaster(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t, "--replicaof", "127.0.0.1", "1")
	_, url := newFakeSentinels(t, 1, s.Addr, 1)
	d, err := testenv.Open(t.Context(), url)
	if err == nil {
		_ = d.Close()
	}
	raw.WantIs(t, "Open", err, backend.ErrUnavailable)
	if !errors.Is(err, errNotMaster) {
		t.Errorf("Open: %v, want %v", err, errNotMaster)
	}
}

// A server that is no sentinel neither ends the process nor costs much memory, and no more time than
// the caller has.
func TestHostileSentinel(t *testing.T) {
	lag := meter(t)
	for name, attack := range map[string]func(conn net.Conn){
		"a string of 1 GB":          func(c net.Conn) { endless(c, "$1000000000\r\n", strings.Repeat("x", 1<<16)) },
		"a string of 128 MB":        func(c net.Conn) { endless(c, "$134217728\r\n", strings.Repeat("x", 1<<16)) },
		"a string beyond integers":  func(c net.Conn) { endless(c, "$9223372036854775807\r\n", "x") },
		"an array of 1,000,000,000": func(c net.Conn) { endless(c, "*1000000000\r\n", "+\r\n") },
		"nested arrays":             func(c net.Conn) { endless(c, "", strings.Repeat("*1\r\n", 1<<14)) },
		"an endless line":           func(c net.Conn) { endless(c, "+", strings.Repeat("x", 1<<16)) },
		"empty lines":               func(c net.Conn) { endless(c, "", "\r\n") },
		"nothing":                   func(net.Conn) {},
		"one byte now and then": func(c net.Conn) {
			for _, err := io.WriteString(c, "+"); err == nil; _, err = io.WriteString(c, "x") {
				time.Sleep(100 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newImpostor(t, func(conn net.Conn, read func() ([]string, error)) {
				if _, err := read(); err != nil {
					return
				}
				attack(conn)
				_, _ = read() // until the client goes
			})
			due := time.Now().Add(time.Second)
			ctx, cancel := context.WithDeadline(t.Context(), due)
			defer cancel()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			d, err := testenv.Open(ctx, "redis+sentinel://"+s.addr+"/mymaster?timeout=10m")
			inTime(t, lag, "Open", due)
			runtime.ReadMemStats(&after)
			if err == nil {
				_ = d.Close()
			}
			raw.WantIs(t, "Open", err, backend.ErrUnavailable)
			if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
				t.Errorf("Open allocated %d MB", used>>20)
			}
		})
	}
}

// endless writes until the other side is gone.
func endless(w io.Writer, first, then string) {
	_, err := io.WriteString(w, first)
	for err == nil {
		_, err = io.WriteString(w, then)
	}
}

// Servers without AUTH answer with its arguments. No error shows them.
func TestErrorsShowNoCredentials(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("s3cret", 30)
	for _, tt := range []struct {
		name, text string // text is the answer, with the words of the command
	}{
		{"Redis 6", "-ERR unknown command `%[1]s`, with args beginning with: %.120[2]s\r\n"},
		{"another", "-ERR wrong number of arguments: %[1]s %[2]s\r\n"},
		{"no server of Redis", "%[1]s %[2]s\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newImpostor(t, func(conn net.Conn, read func() ([]string, error)) {
				for words, err := read(); err == nil; words, err = read() {
					_, _ = fmt.Fprintf(conn, tt.text, words[0], "`"+strings.Join(words[1:], "` `")+"`")
				}
			})
			for _, url := range []string{
				"redis://joe:s3cret@" + s.addr, "redis://joe:" + long + "@" + s.addr, "redis+cluster://joe:s3cret@" + s.addr,
				"redis+sentinel://" + s.addr + "/m?sentinel-user=joe&sentinel-password=s3cret",
				"redis+sentinel://" + s.addr + "/m?sentinel-user=joe&sentinel-password=" + long,
			} {
				_, err := testenv.Open(t.Context(), url)
				wantNoSecret(t, url, err)
			}
			lent := redis.NewClient(&redis.Options{Addr: s.addr, Username: "joe", Password: "s3cret", MaxRetries: -1, DialerRetries: 1})
			defer lent.Close()
			wantNoSecret(t, "New", openLent(lent))
		})
	}
}

// A driver does not have the password of a lent client with a provider. Of a reply that names a command's
// arguments it shows none.
func TestErrorsShowNoArguments(t *testing.T) {
	t.Parallel()
	s := newImpostor(t, func(conn net.Conn, read func() ([]string, error)) {
		for words, err := read(); err == nil; words, err = read() {
			_, _ = fmt.Fprintf(conn, "-ERR unknown command `%s`, with args beginning with: `%s`\r\n", words[0], strings.Join(words[1:], "` `"))
		}
	})
	lent := redis.NewClient(&redis.Options{
		Addr: s.addr, MaxRetries: -1, CredentialsProvider: func() (string, string) { return "joe", "s3cret" },
	})
	defer lent.Close()
	wantNoSecret(t, "New", openLent(lent))
}

func openLent(c *redis.Client) error {
	_, err := New(c, nil)
	return err
}

func wantNoSecret(t *testing.T, what string, err error) {
	t.Helper()
	text := fmt.Sprint(err)
	if reply, ok := errors.AsType[redis.Error](err); ok {
		text += reply.Error()
	}
	if err == nil || strings.Contains(text, "s3cret") || strings.Contains(text, "joe") {
		t.Errorf("%s: %s", what, text)
	}
}

// written is a logger of go-redis.
type written struct {
	mu    sync.Mutex
	lines []string
}

// Printf implements the interface that redis.SetLogger takes.
func (w *written) Printf(_ context.Context, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// go-redis has one logger for all clients of a process. A driver that cannot connect causes no line
// of it. The test is not parallel, because clients of other tests do.
func TestNothingIsWrittenToStandardError(t *testing.T) {
	log := new(written)
	redis.SetLogger(log)
	defer logging.Enable()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	_ = l.Close()
	_, stale := newFakeSentinels(t, 1, gone, 1)
	for _, url := range []string{
		"redis://" + gone, "rediss://" + gone, "redis+cluster://" + gone, "redis+sentinel://" + gone + "/mymaster", stale,
		"rediss://" + testenv.Redis(t).Addr,
	} {
		_, err := testenv.Open(t.Context(), url)
		raw.WantIs(t, url, err, backend.ErrUnavailable)
	}
	s := testenv.NewRedis(t)
	d := openURL(t, s.URL)
	s.Kill(t)
	for range 50 { // more than there are connections
		_, err := d.Acquire(t.Context(), raw.Request(t, time.Minute))
		if err == nil {
			t.Error("Acquire of a server that is gone")
		}
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	for _, line := range log.lines {
		t.Errorf("written: %s", line)
	}
}
