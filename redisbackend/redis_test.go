package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// patience limits the wait for events that happen at once on any machine. Without the event the
// next chance comes at least a minute later.
const patience = 30 * time.Second

// longTerm outlasts every test that does not test the end of a term.
const longTerm = time.Hour

// openURL opens a driver and closes it at the end of the test. Its requests have a timeout of a
// minute, unless the URL sets another one: a busy machine may need more than the default.
func openURL(tb testing.TB, raw string) *driver {
	tb.Helper()
	if base, query, _ := strings.Cut(raw, "?"); !strings.Contains(query, "timeout=") {
		raw = base + "?" + strings.TrimPrefix(query+"&timeout=1m", "&")
	}
	d, err := testenv.Open(tb.Context(), raw)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return d.(*driver)
}

// admin returns a client with which a test changes the server. It sends each request once, and
// waits for a server that stands still for a moment.
func admin(tb testing.TB, s *testenv.Server) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: s.Addr, ReadTimeout: time.Minute, MaxRetries: -1,
	})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func do(tb testing.TB, c *redis.Client, args ...any) any {
	tb.Helper()
	reply, err := c.Do(context.Background(), args...).Result()
	if err != nil {
		tb.Fatalf("%v: %v", args, err)
	}
	return reply
}

// killOthers closes the connections of all other clients but those for pub/sub. It returns when the
// server has closed them, which is later than its answer.
func killOthers(t *testing.T, c *redis.Client) {
	t.Helper()
	do(t, c, "client", "kill", "type", "normal", "skipme", "yes")
	for strings.Count(do(t, c, "client", "list", "type", "normal").(string), "\n") > 1 {
		pause(t, time.Millisecond)
	}
}

// slack is the tolerated delay of a call that waits only for this process.
const slack = 2 * time.Second

// inTime fails the test if a call that returns now is late. A call is late if it returns after due,
// by more than slack and the lag of this process since then.
func inTime(tb testing.TB, meter *lag.Meter, what string, due time.Time) {
	tb.Helper()
	if late := time.Since(due) - meter.Worst(due); late > slack {
		tb.Errorf("%s returned %v late", what, late)
	}
}

// meter measures the lag of this process until the test ends.
func meter(tb testing.TB) *lag.Meter {
	tb.Helper()
	m := lag.Start()
	tb.Cleanup(m.Stop)
	return m
}

// reply is an error as the server sends it.
type reply string

func (r reply) Error() string { return string(r) }
func (r reply) RedisError()   {}

func TestInterpretError(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	const in6 = "ERR Error running script (call to f_5e0b): @user_script:12: @user_script: 12: -"
	type test struct {
		name string
		ctx  context.Context
		err  error
		want error // nil means that the outcome is unknown
	}
	tests := []test{
		{
			name: "dialer", err: fmt.Errorf("%w: refused", backend.ErrUnavailable),
			want: backend.ErrUnavailable,
		},
		{
			name: "dial of a lent client", err: &net.OpError{Op: "dial", Err: io.EOF},
			want: backend.ErrUnavailable,
		},
		{name: "pool timeout", err: redis.ErrPoolTimeout, want: backend.ErrUnavailable},
		{name: "pool exhausted", err: redis.ErrPoolExhausted, want: backend.ErrUnavailable},
		{name: "client closed", err: redis.ErrClosed, want: backend.ErrUnavailable},
		{name: "connection lost", err: io.EOF},
		{name: "read timeout", err: &net.OpError{Op: "read", Err: io.ErrNoProgress}},
		{name: "write timeout", err: &net.OpError{Op: "write", Err: io.ErrNoProgress}},
		{name: "a faulty script", err: reply("ERR user_script:3: attempt to index a nil value")},
		{name: "cancelled", ctx: ended, err: io.EOF},
		{name: "no WAIT", err: &replicaError{err: reply("NOPERM this user has no permissions")}},
	}
	for want, replies := range map[error]map[string]string{
		backend.ErrUnavailable: {
			"loading":          "LOADING Redis is loading the dataset in memory",
			"read-only":        "READONLY You can't write against a read only replica.",
			"read-only in 6":   in6 + "READONLY You can't write",
			"master down":      "MASTERDOWN Link with MASTER is down",
			"cluster down":     "CLUSTERDOWN The cluster is down",
			"moved":            "MOVED 3999 127.0.0.1:6381",
			"too few replicas": "NOREPLICAS Not enough good replicas to write.",
			"disk":             "MISCONF Errors writing to the AOF file",
			"memory":           "OOM command not allowed when used memory > 'maxmemory'.",
			"memory in 6":      in6 + "OOM command not allowed",
			"a slow script":    "BUSY Redis is busy running a script.",
			"no password":      "NOAUTH Authentication required.",
			"wrong password":   "WRONGPASS invalid username-password pair",
			"access list":      "NOPERM this user has no permissions",
			"clients":          "ERR max number of clients reached",
			"no script":        "NOSCRIPT No matching script. Please use EVAL.",
		},
		backend.ErrConflict: {
			"foreign type":      "WRONGTYPE Operation against a key",
			"foreign type in 6": in6 + "WRONGTYPE Operation against a key",
			"foreign value":     "CONFLICT the value under the key is not dlock's",
		},
		backend.ErrUnsupported: {
			"no scripts": "ERR unknown command 'evalsha'",
		},
	} {
		for name, text := range replies {
			tests = append(tests, test{name: name, err: reply(text), want: want})
		}
	}
	definite := []error{
		backend.ErrUnavailable, backend.ErrConflict, backend.ErrUnsupported,
		backend.ErrLost, backend.ErrNotHeld,
	}
	for _, tt := range tests {
		ctx := tt.ctx
		if ctx == nil {
			ctx = context.Background()
		}
		got := interpretError(ctx, tt.err)
		if !errors.Is(got, tt.err) {
			t.Errorf("%s: %v does not wrap the client's own error", tt.name, got)
		}
		if !errors.Is(got, ctx.Err()) && ctx.Err() != nil {
			t.Errorf("%s: %v does not wrap the end of the context", tt.name, got)
		}
		for _, d := range definite {
			if errors.Is(got, d) != errors.Is(tt.want, d) {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
			}
		}
	}
	if interpretError(ended, nil) != nil {
		t.Error("interpretError of nil returned an error")
	}
}

// TestLastMillisecondIsTime checks that a refusal in the last millisecond of a term has a remaining
// time. In RetryAfter, 0 means that the time is unknown.
func TestLastMillisecondIsTime(t *testing.T) {
	t.Parallel()
	for left, want := range map[int64]time.Duration{
		-1: 0, 0: time.Millisecond, 1: time.Millisecond, 7: 7 * time.Millisecond,
	} {
		busy, err := decodeBusy([]any{left, "holder"}, position{}, longTerm)
		if err != nil || busy.RetryAfter != want {
			t.Errorf("%d ms: %+v, %v, want %v", left, busy, err, want)
		}
	}
}

// TestOpenExplainsWithoutSecrets checks the errors of servers and users that cannot be used. They
// contain no password.
func TestOpenExplainsWithoutSecrets(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t, "--requirepass", "right")
	for url, want := range map[string]string{
		"redis://" + raw.Login + s.Addr:                     "WRONGPASS",
		"redis://" + raw.Login[1:] + s.Addr:                 "WRONGPASS",
		"redis://" + s.Addr:                                 "NOAUTH",
		"redis://:right@" + s.Addr + "/9999":                "DB index",
		"redis://" + raw.Login + "127.0.0.1:1":              "refused",
		"rediss://" + raw.Login + s.Addr + "?timeout=1s":    "TLS",
		"redis://" + raw.Login + "nowhere.invalid":          "nowhere.invalid",
		"redis://" + raw.Login + "/?socket=/does/not/exist": "/does/not/exist",
	} {
		if err := raw.Refused(t, url, want); strings.Contains(fmt.Sprint(err), "right") {
			t.Errorf("%s: the error %v contains a credential", url, err)
		}
	}
}

func TestRefusesOldServersAndClusters(t *testing.T) {
	t.Parallel()
	for info, ok := range map[string]bool{
		"redis_version:8.0.6\r\nredis_mode:standalone\r\n": true,
		"redis_version:6.2.0\r\n":                          true,
		"redis_version:7.2.4\r\nserver_name:valkey\r\n":    true,
		"redis_version:10.0.0\r\n":                         true,
		"":                                                 true,
		"redis_version:6.0.16\r\n":                         false,
		"redis_version:5.0.14\r\n":                         false,
		"redis_version:8.0.6\r\nredis_mode:cluster\r\nos:x\r\n": false,
	} {
		if err := checkServer(info, false); (err == nil) != ok {
			t.Errorf("%q: %v", info, err)
		} else if err != nil {
			raw.WantIs(t, info, err, backend.ErrUnsupported)
		}
	}
}

func TestScriptsAreSentAgainWhenForgotten(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, c := openURL(t, s.URL), admin(t, s)
	flush := func() { do(t, c, "script", "flush") }
	flush()
	g := raw.Acquire(t, d, raw.Request(t, longTerm))
	flush()
	for i, r := range d.RenewAll(t.Context(), []*backend.Grant{g, g}) {
		if r.Err != nil {
			t.Errorf("renewal %d: %v", i, r.Err)
		}
	}
	flush()
	if info, err := d.Inspect(t.Context(), t.Name()); err != nil || len(info.Holders) != 1 {
		t.Errorf("Inspect: %v %v", info, err)
	}
	flush()
	if err := d.Break(t.Context(), t.Name(), g.Owner); err != nil {
		t.Errorf("Break: %v", err)
	}
	flush()
	raw.WantIs(t, "Release", d.Release(t.Context(), g), backend.ErrNotHeld)
}

func TestServerWithoutMemoryStillRenewsAndReleases(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t, "--maxmemory-policy", "noeviction")
	d, other, c := openURL(t, s.URL), openURL(t, s.URL), admin(t, s)
	g := raw.Acquire(t, d, raw.Request(t, longTerm))
	next := raw.Request(t, longTerm)
	b := raw.Busy(t, other, next)

	do(t, c, "config", "set", "maxmemory", "1")
	free := raw.Request(t, longTerm)
	free.Key += "/another"
	_, err := d.Acquire(t.Context(), free)
	raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	raw.Release(t, d, g)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	passed, err := other.Wait(ctx, next, b)
	if err != nil || passed == nil || passed.Fence <= g.Fence {
		t.Fatalf("Wait: %+v, %v, want a grant above %d", passed, err, g.Fence)
	}
	raw.Release(t, other, passed)
	if info, err := d.Inspect(t.Context(), t.Name()); err != nil || len(info.Holders) != 0 {
		t.Errorf("Inspect after the release: %+v, %v", info, err)
	}
}

func TestReplicaIsUnavailable(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, c := openURL(t, s.URL), admin(t, s)
	g := raw.Acquire(t, d, raw.Request(t, longTerm))
	do(t, c, "replicaof", "127.0.0.1", "1")
	free := raw.Request(t, longTerm)
	free.Key += "/another"
	_, err := d.Acquire(t.Context(), free)
	raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
	_, err = d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew", err, backend.ErrUnavailable)
	raw.WantIs(t, "Release", d.Release(t.Context(), g), backend.ErrUnavailable)
	do(t, c, "replicaof", "no", "one")
	raw.Release(t, d, g)
}

// modes are the kinds of locks, with the limit of a request.
var modes = map[backend.Mode]int{backend.Exclusive: 0, backend.Shared: 0, backend.Permit: 3}

// TestDemotedMasterIsIgnored checks that no answer of a demoted master is definite. It may lack
// data of the present master.
func TestDemotedMasterIsIgnored(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testenv.TB, ...string) *testenv.Server{
		"redis": testenv.NewRedis, "valkey": testenv.NewValkey,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			d, c := openURL(t, s.URL), admin(t, s)
			// The present master has the lock unknown, and has released the lock another.
			unknown := &backend.Grant{Request: *raw.Request(t, longTerm)}
			unknown.Key += "/unknown"
			another := raw.Acquire(t, d, raw.Request(t, longTerm))
			do(t, c, "replicaof", "127.0.0.1", "1")
			for _, err := range []error{
				d.RenewAll(t.Context(), []*backend.Grant{unknown})[0].Err,
				d.RenewAll(t.Context(), []*backend.Grant{unknown, another})[0].Err,
				d.Release(t.Context(), unknown),
				d.Break(t.Context(), unknown.Key, unknown.Owner),
				d.Break(t.Context(), unknown.Key, ""),
				d.Break(t.Context(), another.Key, unknown.Owner),
				inspectError(t, d, unknown.Key),
				inspectError(t, d, another.Key),
				listError(t, d, unknown.Key),
				listError(t, d, another.Key),
				openError(t, s.URL),
			} {
				raw.WantIs(t, "a request", err, backend.ErrUnavailable)
			}
			for _, queue := range []bool{false, true} {
				for mode, limit := range modes {
					req := raw.Request(t, longTerm)
					req.Mode, req.Limit, req.Queue = mode, limit, queue
					_, err := d.Acquire(t.Context(), req)
					what := fmt.Sprintf("Acquire, %v, queue %v", mode, queue)
					raw.WantIs(t, what, err, backend.ErrUnavailable)
				}
			}
			do(t, c, "replicaof", "no", "one")
			raw.Release(t, d, another)
		})
	}
}

func inspectError(t *testing.T, d *driver, name string) error {
	t.Helper()
	_, err := d.Inspect(t.Context(), name)
	return err
}

func listError(t *testing.T, d *driver, prefix string) error {
	t.Helper()
	for _, err := range d.List(t.Context(), prefix) {
		if err != nil {
			return err
		}
	}
	return nil
}

func openError(t *testing.T, url string) error {
	t.Helper()
	d, err := testenv.Open(t.Context(), url)
	if err == nil {
		_ = d.Close()
	}
	return err
}

// TestInspectNeedsNoWrites checks that a master which refuses all writes can be opened, inspected
// and listed.
func TestInspectNeedsNoWrites(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t, "--maxmemory-policy", "noeviction")
	d, c := openURL(t, s.URL), admin(t, s)
	g := raw.Acquire(t, d, raw.Request(t, longTerm))
	for setting, reset := range map[string]string{"min-replicas-to-write": "0", "maxmemory": "0"} {
		do(t, c, "config", "set", setting, "1")
		raw.WantIs(t, "Open with "+setting, openError(t, s.URL), nil)
		info, err := d.Inspect(t.Context(), g.Key)
		if err != nil || len(info.Holders) != 1 {
			t.Errorf("Inspect with %s: %+v, %v", setting, info, err)
		}
		raw.WantIs(t, "List with "+setting, listError(t, d, g.Key), nil)
		do(t, c, "config", "set", setting, reset)
	}
	raw.Release(t, d, g)
}

// TestListNeedsNoWait checks that a server which does not permit WAIT can be listed.
func TestListNeedsNoWait(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	do(t, admin(t, s), "acl", "setuser", "default", "-wait")
	d := openURL(t, s.URL)
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, longTerm)))
	raw.WantIs(t, "List", listError(t, d, t.Name()), nil)
}

// TestDemotedMasterReportsNoConflict checks that only a master reports a value of another program
// as a conflict.
func TestDemotedMasterReportsNoConflict(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, c := openURL(t, s.URL), admin(t, s)
	lock := lockKey(t.Name())
	for name, value := range map[string][]any{
		"lock, a string":    {"set", lock, "x"},
		"lock, a list":      {"rpush", lock, "x"},
		"fence, a string":   {"set", fenceKey, "x"},
		"fence, a list":     {"rpush", fenceKey, "x"},
		"fence, used up":    {"set", fenceKey, "4019025413685247"},
		"fence, not digits": {"set", fenceKey, "zzzzzzzzzzzzzzzz"},
	} {
		do(t, c, "del", lock, fenceKey)
		do(t, c, value...)
		for mode, limit := range modes {
			req := raw.Request(t, longTerm)
			req.Mode, req.Limit = mode, limit
			_, err := d.Acquire(t.Context(), req)
			raw.WantIs(t, fmt.Sprintf("%s on a master, %v", name, mode), err, backend.ErrConflict)
			do(t, c, "replicaof", "127.0.0.1", "1")
			_, err = d.Acquire(t.Context(), req)
			raw.WantIs(t, fmt.Sprintf("%s on a replica, %v", name, mode),
				err, backend.ErrUnavailable)
			do(t, c, "replicaof", "no", "one")
		}
	}
}

// TestUncontendedLockDoesNotQueue checks that a pair on a free lock without a queue does not use
// the queue.
func TestUncontendedLockDoesNotQueue(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, c := openURL(t, s.URL), admin(t, s)
	req := raw.Request(t, longTerm)
	queued := func() bool {
		info, err := c.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(info, "cmdstat_z") // prefix of each command for the queue
	}
	g := raw.Acquire(t, d, req)
	if again := raw.Acquire(t, d, req); again.Fence != g.Fence {
		t.Errorf("second Acquire: fence %d, want %d", again.Fence, g.Fence)
	}
	raw.Release(t, d, g)
	if queued() {
		t.Error("an uncontended pair has used the queue")
	}
	raw.Acquire(t, d, req)
	_ = raw.Busy(t, d, raw.Request(t, longTerm))
	if !queued() {
		t.Error("a waiter has not entered the queue")
	}
}

// TestFullServerQueuesNoWaiter checks that a server without memory refuses a waiter, even if
// the lock is free. A free lock also refuses an attempt that does not wait.
func TestFullServerQueuesNoWaiter(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t, "--maxmemory-policy", "noeviction")
	d, c := openURL(t, s.URL), admin(t, s)
	g := raw.Acquire(t, d, raw.Request(t, longTerm))
	do(t, c, "config", "set", "maxmemory", "1")
	_, err := d.Acquire(t.Context(), raw.Request(t, longTerm))
	raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
	for mode, limit := range modes {
		for _, queue := range []bool{false, true} {
			req := raw.Request(t, longTerm)
			req.Key += "/free"
			req.Mode, req.Limit, req.Queue = mode, limit, queue
			_, err := d.Acquire(t.Context(), req)
			what := fmt.Sprintf("Acquire of a free lock, %v, queue %v", mode, queue)
			raw.WantIs(t, what, err, backend.ErrUnavailable)
		}
	}
	try := raw.Request(t, longTerm)
	try.Queue = false
	_ = raw.Busy(t, d, try) // needs no memory
	raw.Release(t, d, g)
}

// TestDialInPlaceEndsWithTheContext checks a request that runs in the caller's goroutine and finds
// its connection dead. It does not wait for a new connection after its context has ended.
func TestDialInPlaceEndsWithTheContext(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	target := raw.Target(t, parseTarget, s.URL+"?timeout=1m")
	var silent atomic.Bool
	ended := make(chan struct{})
	defer close(ended)
	dialOrStall := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if silent.Load() {
			select {
			case <-ended:
			case <-time.After(2 * patience):
			}
			return nil, net.ErrClosed
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	opened, err := target.open(t.Context(), dialOrStall)
	if err != nil {
		t.Fatal(err)
	}
	d := opened.(*driver)
	defer d.Close()
	acquire := func(limit time.Duration) error {
		ctx := bound.New(context.Background(), limit)
		defer ctx.Cancel()
		req := raw.Request(t, longTerm)
		req.Key += req.Owner
		_, err := d.Acquire(ctx, req)
		return err
	}
	for d.main.idle.Load() == 0 {
		if err := acquire(patience); err != nil {
			t.Fatal(err)
		}
	}
	silent.Store(true)
	c := admin(t, s)
	killOthers(t, c)
	const limit = 200 * time.Millisecond
	lag, due := meter(t), time.Now().Add(limit)
	if err := acquire(limit); err == nil {
		t.Error("Acquire returned a lock without a connection")
	}
	if early := time.Until(due); early > 0 {
		t.Errorf("Acquire with a timeout of %v returned %v early", limit, early)
	}
	inTime(t, lag, "Acquire", due)
}

// TestScriptIsSentAgainDuringADial checks a request in place whose script the server has forgotten.
// Another request dials meanwhile, which ends the context of the request in place.
func TestScriptIsSentAgainDuringADial(t *testing.T) {
	t.Parallel()
	dials := newDials()
	dial := dials.announced(func(context.Context, string, string) (net.Conn, error) {
		return nil, nil
	})
	fake := newFakeServer(t, func(command string) string {
		if command != "evalsha" {
			return ""
		}
		_, _ = dial(context.Background(), "", "")
		return "-NOSCRIPT No matching script. Please use EVAL.\r\n"
	})
	l := connection{owned: true, dials: dials}.lane(fake.client(t), Options{})
	defer l.close()
	if err := l.client.Ping(t.Context()).Err(); err != nil { // opens the connection
		t.Fatal(err)
	}
	l.idle.Store(1)
	ctx := bound.New(context.Background(), patience)
	defer ctx.Cancel()
	r := (&driver{keys: newKeys}).newRequest("name", "owner").with()
	if _, err := l.runAlone(ctx, releaseScript, r); err != nil {
		t.Errorf("a request during a dial: %v", err)
	}
}

// TestLentClientWaitsOnce checks that a request waits for replicas only once, even if its client is
// lent to several drivers.
func TestLentClientWaitsOnce(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	c := admin(t, s)
	var last backend.Driver
	for range 3 {
		d, err := New(c, &Options{Wait: 1, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		last = d
	}
	for range 2 { // the first request loads the scripts
		do(t, c, "config", "resetstat")
		_, err := last.Acquire(t.Context(), raw.Request(t, 300*time.Millisecond))
		raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
	}
	stats := do(t, c, "info", "commandstats").(string)
	if !strings.Contains(stats, "cmdstat_wait:calls=1,") {
		t.Errorf("want one WAIT, the statistics are %s", stats)
	}
}

func TestLoadingServerIsUnavailable(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t, "--key-load-delay", "50") // µs per key
	d, c := openURL(t, s.URL), admin(t, s)
	do(t, c, "eval", "for i = 1, 120000 do redis.call('SET', 'filler' .. i, i) end return 1", 0)
	s.Restart(t)
	info, err := c.Info(t.Context(), "persistence").Result()
	for errors.Is(err, io.EOF) { // the restart has cut connections
		info, err = c.Info(t.Context(), "persistence").Result()
	}
	if err != nil || !strings.Contains(info, "loading:1") {
		t.Fatalf("the server loaded its data faster than its key-load-delay, or %v", err)
	}
	_, err = d.Acquire(t.Context(), raw.Request(t, longTerm))
	for errors.Is(err, io.EOF) { // the restart has cut connections
		_, err = d.Acquire(t.Context(), raw.Request(t, longTerm))
	}
	raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
	if !strings.Contains(err.Error(), "LOADING") {
		t.Errorf("Acquire: %v, want LOADING", err)
	}
}

func TestForeignValues(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, c := openURL(t, s.URL), admin(t, s)
	lock := newKeys(t.Name()).lock
	mine := raw.Request(t, longTerm)
	mine.Key += "/mine"
	held := raw.Acquire(t, d, mine)
	foreign := &backend.Grant{Request: *raw.Request(t, longTerm)}
	for _, value := range [][]any{
		{"set", lock, "x"},
		{"set", lock, ""},
		{"rpush", lock, "x"},
		{"hset", lock, "a", "b"},
		{"set", lock, "dlock1\n" + raw.NewOwner() + "\n1\n1\n1\nx\nanother name\nmeta"},
	} {
		do(t, c, "del", lock)
		do(t, c, value...)
		before := do(t, c, "dump", lock)
		_, err := d.Acquire(t.Context(), &foreign.Request)
		raw.WantIs(t, "Acquire", err, backend.ErrConflict)
		_, err = d.Inspect(t.Context(), t.Name())
		raw.WantIs(t, "Inspect", err, backend.ErrConflict)
		err = d.Release(t.Context(), foreign)
		if !errors.Is(err, backend.ErrConflict) && !errors.Is(err, backend.ErrNotHeld) {
			t.Errorf("Release: %v", err)
		}
		renewals := d.RenewAll(t.Context(), []*backend.Grant{foreign, held})
		raw.WantIs(t, "renewal of a foreign value", renewals[0].Err, backend.ErrLost)
		if renewals[1].Err != nil {
			t.Errorf("renewal in the same batch: %v", renewals[1].Err)
		}
		if value[0] != "set" || value[2] == "x" {
			raw.WantIs(t, "Break", d.Break(t.Context(), t.Name(), ""), backend.ErrConflict)
		}
		if after := do(t, c, "dump", lock); after != before {
			t.Errorf("the driver changed %v", value)
		}
	}
	do(t, c, "del", lock)
	for _, fence := range []string{
		"x", "not a fence at all", "zzzzzzzzzzzzzzzz", "4019025413685247",
	} {
		do(t, c, "set", newKeys(t.Name()).fence, fence)
		_, err := d.Acquire(t.Context(), &foreign.Request)
		raw.WantIs(t, "Acquire over the fence "+fence, err, backend.ErrConflict)
		if n := do(t, c, "exists", lock); n != int64(0) {
			t.Errorf("the lock was granted despite the fence %s", fence)
		}
	}
	do(t, c, "set", newKeys(t.Name()).fence, "4019025413685246")
	if g := raw.Acquire(t, d, &foreign.Request); g.Fence != backend.MaxFence-1 {
		t.Errorf("the last fence is %d", g.Fence)
	}
}

// TestFreeLocksLeaveOneFence checks that the driver keeps nothing under the name of a free lock.
// The last fence of all names stays for ever.
func TestFreeLocksLeaveOneFence(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, c := openURL(t, s.URL), admin(t, s)
	g := raw.Acquire(t, d, raw.Request(t, longTerm))
	waiter := raw.Request(t, 10*time.Second)
	_ = raw.Busy(t, d, waiter)
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	for _, k := range do(t, c, "keys", "*").([]any) {
		if left := do(t, c, "pttl", k).(int64); k == fenceKey != (left < 0) {
			t.Errorf("%v expires in %d ms", k, left)
		}
	}
	// The waiter never refreshed its entry, so its grant lasts only for the remaining time of the
	// entry.
	raw.Release(t, d, g)
	if left := do(t, c, "pttl", newKeys(t.Name()).lock).(int64); left > 10_000 {
		t.Errorf("the waiter was granted %d ms, its entry had at most 10,000 ms", left)
	}
	raw.Release(t, d, &backend.Grant{Request: *waiter})
	for i := range 100 {
		req := raw.Request(t, longTerm)
		req.Key += fmt.Sprint(i)
		raw.Release(t, d, raw.Acquire(t, d, req))
	}
	if keys := do(t, c, "keys", "*").([]any); len(keys) != 1 || keys[0] != fenceKey {
		t.Errorf("the server has the keys %v, want only %s", keys, fenceKey)
	}
}

func TestFenceGrowsWhenTheServerForgets(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, c := openURL(t, s.URL), admin(t, s)
	first := raw.Acquire(t, d, raw.Request(t, longTerm))
	do(t, c, "flushall")
	second := raw.Acquire(t, d, raw.Request(t, longTerm))
	if second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
	// The last fence is ahead of the clock, as after the clock was set back.
	ahead := int64(second.Fence) + backend.FenceEpoch + time.Hour.Microseconds()
	do(t, c, "set", newKeys(t.Name()).fence, ahead)
	raw.Release(t, d, second)
	third := raw.Acquire(t, d, raw.Request(t, longTerm))
	if want := uint64(ahead) + 1 - backend.FenceEpoch; third.Fence != want {
		t.Errorf("fence %d, want %d", third.Fence, want)
	}
	if again := raw.Acquire(t, d, &third.Request); again.Fence != third.Fence {
		t.Errorf("second Acquire: fence %d, want %d", again.Fence, third.Fence)
	}
	last := third
	for _, name := range []string{"/a", "/b", "/a"} { // fences are not per name
		req := raw.Request(t, longTerm)
		req.Key += name
		next := raw.Acquire(t, d, req)
		raw.Release(t, d, next)
		if next.Fence != last.Fence+1 {
			t.Errorf("%s: fence %d after %d", req.Key, next.Fence, last.Fence)
		}
		last = next
	}
}

// TestClockBeyondTheLastFence checks that a server whose clock is beyond the last fence grants
// nothing. It can grant again when its clock is right.
func TestClockBeyondTheLastFence(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, c := openURL(t, s.URL), admin(t, s)
	const now = "redis.call('TIME')"
	// The clock of this script shows the year 2100.
	source := strings.ReplaceAll(acquireScript().source.(string), now, "{'4102444800', '0'}")
	k := newKeys(t.Name())
	err := c.Do(t.Context(), "eval", source, 4, k.lock, k.fence, k.queue, k.waiters,
		raw.NewOwner(), 60_000, "me\n"+t.Name()+"\nmeta", 0).Err()
	raw.WantIs(t, "Acquire", interpretError(t.Context(), err), backend.ErrConflict)
	if keys := do(t, c, "keys", "*").([]any); len(keys) != 0 {
		t.Errorf("the server has the keys %v", keys)
	}
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, longTerm)))
}

func TestListTakesItsPrefixLiterally(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.NewRedis(t).URL)
	names := []string{"a*", "ab", "a?", "a[b]", "a{b}", ".a", "é*", "a*b"}
	for _, name := range names {
		req := raw.Request(t, longTerm)
		req.Key = name
		raw.Acquire(t, d, req)
	}
	for prefix, want := range map[string]int{
		"a": 6, "a*": 2, "a?": 1, "a[": 1, "a{": 1, ".": 1, "é": 1, "": 8, "x": 0,
	} {
		var got []string
		for info, err := range d.List(t.Context(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info.Key)
		}
		outside := func(s string) bool { return !strings.HasPrefix(s, prefix) }
		if len(got) != want || slices.ContainsFunc(got, outside) {
			t.Errorf("List(%q) = %q, want %d", prefix, got, want)
		}
	}
}

func TestWaitersRetryAfterAReconnection(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	holder, waiter, c := openURL(t, s.URL), openURL(t, s.URL), admin(t, s)
	g := raw.Acquire(t, holder, raw.Request(t, longTerm))
	req := raw.Request(t, longTerm)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b := raw.Busy(t, waiter, req)
	result := make(chan *backend.Grant, 1)
	go func() {
		defer close(result)
		passed, err := waiter.Wait(ctx, req, b)
		if err != nil {
			t.Errorf("Wait: %v", err)
		}
		result <- passed
	}()
	// This is one step, so that no client receives the message of the release.
	k := newKeys(g.Key)
	if _, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Do(ctx, "client", "kill", "type", "pubsub")
		p.Do(ctx, "eval", releaseScript().source, 4, k.lock, k.fence, k.queue, k.waiters, g.Owner)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	passed := <-result
	if passed == nil {
		passed = raw.Acquire(t, waiter, req)
	}
	if passed.Fence <= g.Fence {
		t.Errorf("fence %d after %d", passed.Fence, g.Fence)
	}
}

func TestSilentConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	s := testenv.Redis(t)
	proxy := testenv.NewProxy(t, s.Addr)
	c := redis.NewClient(&redis.Options{
		Addr: proxy.Addr(), MaxRetries: -1, DialerRetries: 1,
		DialTimeout: patience, ReadTimeout: patience,
	})
	h := newHub(connection{}.lane(c, Options{}), raw.NewOwner())
	h.ping, h.silence = 50*time.Millisecond, 500*time.Millisecond
	if ok, err := h.start(t.Context()); !ok {
		t.Fatal(err)
	}
	defer c.Close()
	defer h.close()
	req := raw.Request(t, longTerm)
	p := h.admit(req)
	home := func() *link {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.link
	}
	first := home()
	heal := proxy.Cut(t)
	for end := time.Now().Add(patience); home() == first; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the driver still listens on the dead connection")
		}
	}
	heal()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := h.await(ctx, p.acquisition); err != nil { // else the waiter retries
		t.Error("the waiter was not woken after messages may have been lost")
	}
}

// TestLateMessageOfAnOlderGrant checks that a delayed message is not taken for a grant to the newer
// queue entry.
func TestLateMessageOfAnOlderGrant(t *testing.T) {
	t.Parallel()
	h := newHub(connection{}.lane(nil, Options{}), "me")
	d := &driver{hub: h, caps: backend.Capabilities{Notify: true}}
	req := raw.Request(t, longTerm)
	h.admit(req)
	second := h.admit(req)
	message := func(attempt string) *redis.Message {
		fence := fmt.Sprint(backend.FenceEpoch + 7)
		return &redis.Message{
			Channel: clientPrefix + "me",
			Payload: strings.Join([]string{"granted", req.Owner, fence, attempt}, "\n"),
		}
	}
	wait := func() *backend.Grant {
		g, err := d.Wait(t.Context(), req, &backend.Busy{Queued: true, State: &second})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	h.dispatch(nil, message("1"))
	if g := wait(); g != nil {
		t.Errorf("the grant to the first attempt was taken for one to the second: %+v", g)
	}
	h.dispatch(nil, message("2"))
	if g := wait(); g == nil || g.Fence != 7 || g.Term.Sent != second.sent {
		t.Errorf("the grant to the second attempt: %+v", g)
	}
}

// TestLateMessageAfterARefusal checks that a late message about an earlier attempt is not taken for
// a grant to a later attempt. A refusal makes the driver forget the acquisition.
func TestLateMessageAfterARefusal(t *testing.T) {
	t.Parallel()
	h := newHub(connection{}.lane(nil, Options{}), "me")
	d := &driver{hub: h, caps: backend.Capabilities{Notify: true}}
	req := raw.Request(t, longTerm)
	var before int64
	for range 3 {
		before = h.admit(req).attempt
	}
	readOnly := interpretError(t.Context(), reply("READONLY You can't write"))
	err := d.handleFailure(t.Context(), req, readOnly)
	raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
	after := h.admit(req)
	h.dispatch(nil, &redis.Message{
		Channel: clientPrefix + "me",
		Payload: fmt.Sprintf("granted\n%s\n%d\n%d", req.Owner, backend.FenceEpoch+7, before),
	})
	g, err := d.Wait(t.Context(), req, &backend.Busy{Queued: true, State: &after})
	if g != nil || err != nil {
		t.Errorf("the grant to attempt %d was taken for one to attempt %d: %+v, %v",
			before, after.attempt, g, err)
	}
}

func TestBreakReachesTheHolderAtOnce(t *testing.T) {
	t.Parallel()
	s := testenv.Redis(t)
	holder, breaker := openURL(t, s.URL), openURL(t, s.URL)
	lost := make(chan error, 1)
	req := raw.Request(t, longTerm)
	req.Lost = func(err error) { lost <- err }
	g := raw.Acquire(t, holder, req)
	if err := breaker.Break(t.Context(), req.Key, req.Owner); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-lost:
		raw.WantIs(t, "Lost", err, backend.ErrLost)
	case <-time.After(patience):
		t.Error("the driver did not report the loss to the holder")
	}
	raw.WantIs(t, "Release", holder.Release(t.Context(), g), backend.ErrNotHeld)
}

func TestGoneWaitersAreForgotten(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, other, c := openURL(t, s.URL), openURL(t, s.URL), admin(t, s)
	held := raw.Acquire(t, other, raw.Request(t, longTerm))
	for _, queue := range []bool{false, true} {
		req := raw.Request(t, longTerm)
		req.Queue = queue
		b := raw.Busy(t, d, req)
		err := d.Release(t.Context(), &backend.Grant{Request: *req, State: b.State})
		if err != nil && !errors.Is(err, backend.ErrNotHeld) {
			t.Fatal(err)
		}
	}
	own := raw.Request(t, longTerm)
	own.Key += "/own"
	raw.Release(t, d, raw.Acquire(t, d, own))
	lost := raw.Acquire(t, d, own)
	do(t, c, "del", newKeys(own.Key).lock)
	_, err := d.Renew(t.Context(), lost)
	raw.WantIs(t, "Renew", err, backend.ErrLost)
	lost = raw.Acquire(t, d, own)
	do(t, c, "del", newKeys(own.Key).lock)
	_, err = d.Downgrade(t.Context(), lost)
	raw.WantIs(t, "Downgrade", err, backend.ErrLost)
	raw.Release(t, other, held)
	d.hub.mu.Lock()
	defer d.hub.mu.Unlock()
	if n := len(d.hub.acquisitions); n != 0 {
		t.Errorf("the driver keeps %d acquisitions", n)
	}
}

// TestBlackHole checks that the end of the context ends a request without an answer. The context
// ends by cancellation, or by a deadline where the request cannot run in the caller's goroutine.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	s := testenv.Redis(t)
	proxy := testenv.NewProxy(t, s.Addr)
	d := openURL(t, strings.Replace(s.URL, s.Addr, proxy.Addr(), 1)+"?timeout=5m")
	heal := proxy.Cut(t)
	defer heal()
	const short = 100 * time.Millisecond
	ends := map[string]func() (context.Context, context.CancelFunc){
		"cancelled": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(short, cancel)
			return ctx, cancel
		},
		"bounded": func() (context.Context, context.CancelFunc) {
			ctx := bound.New(context.Background(), short)
			return ctx, ctx.Cancel
		},
	}
	lag := meter(t)
	for name, end := range ends {
		for range 3 { // with an open connection, and without one
			ctx, cancel := end()
			due := time.Now().Add(short)
			_, err := d.Acquire(ctx, raw.Request(t, longTerm))
			if err == nil || errors.Is(err, backend.ErrUnavailable) ||
				errors.Is(err, backend.ErrNotAcquired) {
				t.Errorf("%s: %v, want an unknown outcome", name, err)
			}
			inTime(t, lag, name+": Acquire", due)
			cancel()
		}
	}
}

func TestAcquirersCannotKeepRenewalsWaiting(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d := openURL(t, s.URL)
	g := raw.Acquire(t, d, raw.Request(t, longTerm))
	size := d.main.client.(*redis.Client).Options().PoolSize
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range size {
		go d.main.client.BLPop(ctx, longTerm, "nothing")
	}
	for d.main.client.PoolStats().TotalConns-d.main.client.PoolStats().IdleConns < uint32(size) {
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
		time.Sleep(time.Millisecond)
	}
	bound, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if _, err := d.Renew(bound, g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if err := d.Release(bound, g); err != nil {
		t.Errorf("Release: %v", err)
	}
}

func TestThousandWaitersNeedTwoConnectionsAndNoCommand(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	holder, c := openURL(t, s.URL), admin(t, s)
	held := make([]*backend.Grant, 1000)
	for i := range held {
		req := raw.Request(t, longTerm)
		req.Key = fmt.Sprint(t.Name(), i)
		held[i] = raw.Acquire(t, holder, req)
	}
	connections := func() int { return strings.Count(do(t, c, "client", "list").(string), "\n") }
	before := connections()
	d := openURL(t, s.URL)
	returned := make(chan error, len(held))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	entered := time.Now()
	for _, g := range held {
		req := g.Request
		req.Owner = raw.NewOwner()
		b := raw.Busy(t, d, &req)
		go func() {
			_, err := d.Wait(ctx, &req, b)
			if ctx.Err() != nil { // the lock is free, or it is this waiter's
				_, err = d.Acquire(t.Context(), &req)
			}
			returned <- err
		}()
	}
	if n := connections() - before; n > 2 {
		t.Errorf("%d connections", n)
	}
	commands := func() (n int) {
		_, after, _ := strings.Cut(do(t, c, "info", "stats").(string), "total_commands_processed:")
		_, _ = fmt.Sscan(after, &n)
		return n
	}
	start, first := time.Now(), commands()
	time.Sleep(500 * time.Millisecond) // nothing is expected to happen
	n := commands() - first
	// One command is this count.
	if pings := 2 * (1 + int(time.Since(start)/pingInterval)); n > 1+pings {
		t.Errorf("%d commands during a wait of %v", n, time.Since(start))
	}
	for _, g := range held {
		raw.Release(t, holder, g)
	}
	if time.Since(entered) > entryTerm/2 { // the first waiters may have lost their places
		cancel()
	}
	for range held {
		if err := <-returned; err != nil {
			t.Fatal(err)
		}
	}
}

func TestWithoutPubSubTheCorePolls(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	do(t, admin(t, s), "acl", "setuser", "mute", "on", ">pw", "~dlock:*", "resetchannels", "+@all")
	d := openURL(t, strings.Replace(s.URL, "://", "://mute:pw@", 1))
	if d.Capabilities().Notify {
		t.Error("Notify is set, although the user has no right to channels")
	}
	g := raw.Acquire(t, d, raw.Request(t, longTerm)) // its release can publish without a listener
	raw.Release(t, d, g)
	// A waiter that polls refreshes its entry in time. Here that lasts for less than entryTerm.
	raw.Acquire(t, d, raw.Request(t, longTerm))
	b := raw.Busy(t, d, raw.Request(t, 900*time.Millisecond))
	if !b.Queued || b.RetryAfter > 300*time.Millisecond {
		t.Errorf("a waiter with a TTL of 900ms: %+v, want RetryAfter <= 300ms", b)
	}
}

// TestDocumentedRightsSuffice checks that the rights in the package comment are sufficient. It uses
// a database that go-redis selects. WAIT has no replica, and is tested in a cluster.
func TestDocumentedRightsSuffice(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	do(t, admin(t, s), documentedRights(t)...)
	url := strings.Replace(s.URL, "://", "://locks:pw@", 1) + "/1"
	exercise(t, openURL(t, url))
	raw.WantIs(t, "Open with wait=1", openError(t, url+"?wait=1"), nil)
}

func TestDocumentedRightsSufficeInACluster(t *testing.T) {
	t.Parallel()
	g := testenv.RedisCluster(t)
	rights := append(documentedRights(t), "+cluster|slots")
	for _, s := range g.Nodes {
		do(t, admin(t, s), rights...)
	}
	exercise(t, openURL(t, strings.Replace(g.URL, "://", "://locks:pw@", 1)+"?wait=1"))
}

// documentedRights returns the command that gives a user the rights in the package comment. As in
// Redis 6.2, +@connection does not include some of the commands.
func documentedRights(t *testing.T) []any {
	t.Helper()
	command := []any{"acl", "setuser", "locks", "on", ">pw", "resetchannels", "-@all"}
	for right := range strings.FieldsSeq(raw.Documented(t, "~dlock:*")) {
		command = append(command, right)
		if right == "+@connection" {
			command = append(command, "-wait", "-select", "-asking")
		}
	}
	return command
}

// exercise uses all functions of a driver.
func exercise(t *testing.T, d *driver) {
	t.Helper()
	if !d.Capabilities().Notify {
		t.Error("Notify is not set")
	}
	g := raw.Acquire(t, d, raw.Request(t, longTerm))
	_ = raw.Busy(t, d, raw.Request(t, longTerm))
	waiter := raw.Request(t, longTerm)
	_ = raw.Busy(t, d, waiter)
	if info, err := d.Inspect(t.Context(), t.Name()); err != nil || info.Waiters < 1 {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	for _, err := range d.List(t.Context(), t.Name()) {
		if err != nil {
			t.Errorf("List: %v", err)
		}
	}
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if err := d.Break(t.Context(), t.Name(), g.Owner); err != nil {
		t.Errorf("Break: %v", err)
	}
	raw.Release(t, d, &backend.Grant{Request: *waiter})
}

func TestLentClient(t *testing.T) {
	t.Parallel()
	s := testenv.Redis(t)
	proxy := testenv.NewProxy(t, s.Addr)
	c := redis.NewClient(&redis.Options{Addr: proxy.Addr()}) // by default with three retries
	defer c.Close()
	d, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	var g *backend.Grant
	{ // loads the scripts
		if g, err = d.Acquire(t.Context(), raw.Request(t, longTerm)); err != nil {
			t.Fatal(err)
		}
		if err := d.Release(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	if g, err = d.Acquire(t.Context(), raw.Request(t, longTerm)); err != nil {
		t.Fatal(err)
	}
	// If the client repeated the request itself, the second answer would be that there is nothing
	// to release.
	proxy.DropReply(t, 1)
	if err := d.Release(t.Context(), g); err == nil || errors.Is(err, backend.ErrNotHeld) {
		t.Errorf("Release whose answer is lost: %v, want an unknown outcome", err)
	}
	raw.WantIs(t, "the second Release", d.Release(t.Context(), g), backend.ErrNotHeld)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the driver closed the lent client: %v", err)
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": s.Addr}})
	defer ring.Close()
	_, err = New(ring, nil)
	raw.WantIs(t, "a ring", err, backend.ErrUnsupported)
	if _, err := New(nil, nil); err == nil {
		t.Error("New accepted a nil client")
	}
}
