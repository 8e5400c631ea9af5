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

// impostor is a server whose handler answers the commands. A real server cannot be forced to lag
// like a sentinel, or to answer like a foreign server.
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

// array returns a reply of strings.
func array(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b.String()
}

// fakeSentinel is a sentinel with its own view of the master.
type fakeSentinel struct {
	*impostor

	mu          sync.Mutex
	master      string
	epoch       int
	hold        <-chan struct{} // answers wait until hold is closed
	subscribers map[net.Conn]bool
}

// newFakeSentinels starts n sentinels with the same view.
func newFakeSentinels(
	tb testing.TB, n int, master string, epoch int,
) (all []*fakeSentinel, url string) {
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
	case "ping":
		return array("pong", "")
	case "sentinel master", "sentinel get-master-addr-by-name":
		if f.hold != nil {
			hold := f.hold
			f.mu.Unlock()
			<-hold
			f.mu.Lock()
		}
		host, port, _ := net.SplitHostPort(f.master)
		if name == "sentinel master" {
			return array("name", "mymaster", "ip", host, "port", port,
				"config-epoch", strconv.Itoa(f.epoch))
		}
		return array(host, port)
	}
	return "-ERR unknown command\r\n"
}

// switchTo gives the sentinel another view. The sentinel announces the switch unless it is mute.
func (f *fakeSentinel) switchTo(master string, epoch int, mute bool) {
	f.mu.Lock()
	old := f.master
	f.master, f.epoch = master, epoch
	f.mu.Unlock()
	if !mute {
		f.announce(old, master)
	}
}

// announce announces a switch, whatever the view of the sentinel is.
func (f *fakeSentinel) announce(old, master string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := strings.ReplaceAll("mymaster "+old+" "+master, ":", " ")
	for conn := range f.subscribers {
		_, _ = io.WriteString(conn, array("message", switchMaster, text))
	}
}

// answerLate delays the sentinel's answers until the test ends or release is called.
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

// eventually polls until a condition without a signal is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); pause(t, time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// believes waits until the driver believes that master is the master.
func believes(t *testing.T, d *driver, master string) {
	t.Helper()
	s := d.conn.sentinels
	eventually(t, "the master "+master, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.accepted.master == master
	})
}

// wantLockOn repeats an acquisition until it succeeds, because a failover cuts connections. The
// lock must be on one server and not on the other.
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

// TestNewestSentinelWins checks that a new client believes the newest sentinel, although the
// majority may lag behind a failover. The order of their answers does not matter.
func TestNewestSentinelWins(t *testing.T) {
	t.Parallel()
	before, now := testenv.Redis(t), testenv.Valkey(t)
	for newest := range 3 {
		t.Run(strconv.Itoa(newest), func(t *testing.T) {
			t.Parallel()
			all, url := newFakeSentinels(t, 3, before.Addr, 1)
			all[newest].switchTo(now.Addr, 2, true)
			all[(newest+1)%3].answerLate(t) // the other two answers decide
			wantLockOn(t, openURL(t, url), now, before)
		})
	}
}

// TestOlderAnswerIsIgnored checks that a client never returns to the former master after it has
// received an announcement. The answers of the other sentinels do not change this, nor does a
// failure of the sentinel that has announced it and confirmed it.
func TestOlderAnswerIsIgnored(t *testing.T) {
	t.Parallel()
	before, now := testenv.Redis(t), testenv.Valkey(t)
	for announcer := range 3 {
		t.Run(strconv.Itoa(announcer), func(t *testing.T) {
			t.Parallel()
			all, url := newFakeSentinels(t, 3, before.Addr, 1)
			d := openURL(t, url)
			wantLockOn(t, d, before, now)
			all[announcer].awaitSubscriber(t)
			all[announcer].switchTo(now.Addr, 2, false)
			believes(t, d, now.Addr)
			all[announcer].answerLate(t)
			wantLockOn(t, d, now, before)
		})
	}
}

// TestOlderAnnouncementIsIgnored checks that the client ignores an old switch that a lagging
// sentinel announces.
func TestOlderAnnouncementIsIgnored(t *testing.T) {
	t.Parallel()
	before, now := testenv.Redis(t), testenv.Valkey(t)
	all, url := newFakeSentinels(t, 3, now.Addr, 1)
	for _, f := range all[1:] {
		f.switchTo(now.Addr, 3, true)
	}
	d := openURL(t, url)
	all[0].awaitSubscriber(t)
	last := lastView(d.conn.sentinels, all[0]).sent
	all[0].switchTo(before.Addr, 2, false)
	eventually(t, "the announcement", func() bool {
		return lastView(d.conn.sentinels, all[0]).sent.After(last)
	})
	wantLockOn(t, d, now, before)
}

// TestStaleAnnouncementIsIgnored checks that the client ignores an announcement that it reads after
// a later failover. A process that stood still during two failovers finds such announcements.
func TestStaleAnnouncementIsIgnored(t *testing.T) {
	t.Parallel()
	const first, second, third = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
	all, url := newFakeSentinels(t, 3, third, 7)
	d := dialer{ctx: t.Context(), dial: new(net.Dialer).DialContext, timeout: time.Minute}
	s := newSentinels(raw.Target(t, parseTarget, url), d)
	defer s.close()
	s.running.Go(func() { s.follow(all[0].addr) })
	eventually(t, "the answer after the subscription", func() bool {
		return lastView(s, all[0]).master == third
	})
	last := lastView(s, all[0]).sent
	all[0].announce(first, second)
	eventually(t, "the answer after the announcement", func() bool {
		return lastView(s, all[0]).sent.After(last)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accepted.master != third {
		t.Errorf("the client believes in %s, want %s", s.accepted.master, third)
	}
}

// lastView returns the last view that f has reported to s.
func lastView(s *sentinels, f *fakeSentinel) view {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.views[f.addr]
}

// TestUnanimousSentinelsWin checks that the client believes all sentinels together, even
// with an older epoch. An operator that sets up the sentinels again resets their epochs.
func TestUnanimousSentinelsWin(t *testing.T) {
	t.Parallel()
	before, now := testenv.Redis(t), testenv.Valkey(t)
	all, url := newFakeSentinels(t, 3, before.Addr, 7)
	d := openURL(t, url)
	for _, f := range all {
		f.awaitSubscriber(t)
		f.switchTo(now.Addr, 0, true)
	}
	for _, f := range all {
		if err := d.conn.sentinels.query(t.Context(), f.addr); err != nil {
			t.Error(err)
		}
	}
	believes(t, d, now.Addr)
	wantLockOn(t, d, now, before)
}

// TestSwitchWhileDialling checks a connection that is dialled while a switch is announced. The
// driver retires this connection, too.
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
	opened, err := raw.Target(t, parseTarget, url).open(t.Context(), network)
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
	raw.WantIs(t, "a request on the connection that was being dialled",
		<-result, backend.ErrUnavailable)
	wantLockOn(t, d, now, before)
}

// TestReplicaIsNoMaster checks that Open refuses a replica that a sentinel names as the master. The
// sentinel has missed a failover.
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

// TestHostileSentinel checks that a server which is not a sentinel neither crashes the process nor
// costs much memory. Open ends with the caller's context.
func TestHostileSentinel(t *testing.T) {
	lag := meter(t)
	for name, attack := range map[string]func(conn net.Conn){
		"a string of 1 GB":          endless("$1000000000\r\n", strings.Repeat("x", 1<<16)),
		"a string of 128 MB":        endless("$134217728\r\n", strings.Repeat("x", 1<<16)),
		"a string beyond integers":  endless("$9223372036854775807\r\n", "x"),
		"an array of 1,000,000,000": endless("*1000000000\r\n", "+\r\n"),
		"nested arrays":             endless("", strings.Repeat("*1\r\n", 1<<14)),
		"an endless line":           endless("+", strings.Repeat("x", 1<<16)),
		"empty lines":               endless("", "\r\n"),
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
				_, _ = read() // until the client disconnects
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

// endless returns an attack that writes until the connection is closed.
func endless(first, then string) func(conn net.Conn) {
	return func(conn net.Conn) {
		_, err := io.WriteString(conn, first)
		for err == nil {
			_, err = io.WriteString(conn, then)
		}
	}
}

// TestErrorsShowNoCredentials checks that no error contains a credential. Servers without AUTH
// answer with its arguments.
func TestErrorsShowNoCredentials(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("s3cret", 30)
	for _, tt := range []struct {
		name, text string // text is the answer; it quotes the words of the command
	}{
		{"Redis 6", "-ERR unknown command `%[1]s`, with args beginning with: %.120[2]s\r\n"},
		{"another", "-ERR wrong number of arguments: %[1]s %[2]s\r\n"},
		{"no server of Redis", "%[1]s %[2]s\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newImpostor(t, func(conn net.Conn, read func() ([]string, error)) {
				for words, err := read(); err == nil; words, err = read() {
					quoted := "`" + strings.Join(words[1:], "` `") + "`"
					_, _ = fmt.Fprintf(conn, tt.text, words[0], quoted)
				}
			})
			for _, url := range []string{
				"redis://joe:s3cret@" + s.addr,
				"redis://joe:" + long + "@" + s.addr,
				"redis+cluster://joe:s3cret@" + s.addr,
				"redis+sentinel://" + s.addr + "/m?sentinel-user=joe&sentinel-password=s3cret",
				"redis+sentinel://" + s.addr + "/m?sentinel-user=joe&sentinel-password=" + long,
			} {
				_, err := testenv.Open(t.Context(), url)
				wantNoSecret(t, url, err)
			}
			lent := redis.NewClient(&redis.Options{
				Addr: s.addr, Username: "joe", Password: "s3cret",
				MaxRetries: -1, DialerRetries: 1,
			})
			defer lent.Close()
			wantNoSecret(t, "New", openLent(lent))
		})
	}
}

// TestErrorsShowNoArguments checks a lent client with a credentials provider, so the driver does
// not have the password. If a reply quotes the arguments of a command, the driver shows none of
// them.
func TestErrorsShowNoArguments(t *testing.T) {
	t.Parallel()
	s := newImpostor(t, func(conn net.Conn, read func() ([]string, error)) {
		for words, err := read(); err == nil; words, err = read() {
			const text = "-ERR unknown command `%s`, with args beginning with: `%s`\r\n"
			_, _ = fmt.Fprintf(conn, text, words[0], strings.Join(words[1:], "` `"))
		}
	})
	lent := redis.NewClient(&redis.Options{
		Addr: s.addr, MaxRetries: -1,
		CredentialsProvider: func() (string, string) { return "joe", "s3cret" },
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

// Printf implements the parameter type of redis.SetLogger.
func (w *written) Printf(_ context.Context, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// TestNothingIsWrittenToStandardError checks that a driver logs nothing through go-redis if it
// cannot connect. go-redis has one logger for all clients of a process. The test is not parallel,
// because clients of other tests use that logger.
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
		"redis://" + gone, "rediss://" + gone, "redis+cluster://" + gone,
		"redis+sentinel://" + gone + "/mymaster", stale, "rediss://" + testenv.Redis(t).Addr,
	} {
		_, err := testenv.Open(t.Context(), url)
		raw.WantIs(t, url, err, backend.ErrUnavailable)
	}
	s := testenv.NewRedis(t)
	d := openURL(t, s.URL)
	s.Kill(t)
	for range 50 { // more requests than connections
		_, err := d.Acquire(t.Context(), raw.Request(t, time.Minute))
		if err == nil {
			t.Error("Acquire on a stopped server returned no error")
		}
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	for _, line := range log.lines {
		t.Errorf("go-redis logged: %s", line)
	}
}
