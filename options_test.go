package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// scripts holds, by its path, each driver that a URL with the scheme script opens.
var scripts sync.Map

func init() {
	backend.Register("script", func(_ context.Context, u *backend.URL) (backend.Driver, error) {
		if message, ok := u.Take("fail"); ok {
			return nil, errors.New(message)
		}
		d, _ := scripts.Load(u.Path)
		d.(*script).opened = u.TTL
		return d.(*script), nil
	})
}

// openURL opens d by a URL with the given parameters.
func openURL(
	t *testing.T, d *script, parameters string, opts ...dlock.Option,
) (*dlock.Client, error) {
	t.Helper()
	scripts.Store(t.Name(), d)
	path := strings.ReplaceAll(t.Name(), "#", "%23")
	c, err := dlock.Open(t.Context(), "script:"+path+"?"+parameters, opts...)
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	d := newScript()
	lease := takes(t, open(t, d), "x")
	req := d.of("acquire")[0].req
	if req.TTL != 30*time.Second || req.Fair || req.Key != "x" {
		t.Errorf("the request is %+v", req)
	}
	frees(t, lease)
}

// TestDefaultMeta is not parallel, because it changes the arguments of the program.
func TestDefaultMeta(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	defer func(args []string) { os.Args = args }(os.Args)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"/bin/job", "-v"}, fmt.Sprintf("job@%s:%d", host, os.Getpid())},
		{[]string{"/bin/job"}, fmt.Sprintf("job@%s:%d", host, os.Getpid())},
		{[]string{"a\nb"}, fmt.Sprintf("pid %d", os.Getpid())},
		{nil, fmt.Sprintf("go@%s:%d", host, os.Getpid())},
	} {
		os.Args = test.args
		d := newScript()
		frees(t, takes(t, open(t, d), "x"))
		if meta := d.of("acquire")[0].req.Meta; meta != test.want {
			t.Errorf("the meta of %q is %q, want %q", test.args, meta, test.want)
		}
	}
}

func TestPrecedence(t *testing.T) {
	for _, test := range []struct {
		name       string
		parameters string
		client     []dlock.Option
		lock       []dlock.Option
		ttl        time.Duration
		fair       bool
	}{
		{"default", "", nil, nil, 30 * time.Second, false},
		{
			"option of Open", "",
			[]dlock.Option{dlock.WithTTL(time.Second), dlock.WithFair()},
			nil,
			time.Second, true,
		},
		{"URL", "ttl=2s&fair=1", nil, nil, 2 * time.Second, true},
		{
			"URL over option of Open", "ttl=2s&fair=0",
			[]dlock.Option{dlock.WithTTL(time.Second), dlock.WithFair()},
			nil,
			2 * time.Second, false,
		},
		{
			"option of the lock over URL", "ttl=2s&fair=0",
			nil,
			[]dlock.Option{dlock.WithTTL(3 * time.Second), dlock.WithFair()},
			3 * time.Second, true,
		},
		{
			"option of the lock over option of Open", "",
			[]dlock.Option{dlock.WithTTL(time.Second)},
			[]dlock.Option{nil, dlock.WithTTL(3 * time.Second)},
			3 * time.Second, false,
		},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			d := newScript()
			parameters := strings.TrimPrefix(test.parameters+"&prefix=p/", "&")
			c, err := openURL(t, d, parameters, test.client...)
			if err != nil {
				t.Fatal(err)
			}
			lease := takes(t, c, "x", test.lock...)
			req := d.of("acquire")[0].req
			if req.TTL != test.ttl || req.Fair != test.fair || req.Key != "p/x" ||
				lease.Name() != "x" {
				t.Errorf("the request for %q is %+v", lease.Name(), req)
			}
			frees(t, lease)
		})
	}
}

// TestOpenerGetsTheTTL checks that the Opener gets the default TTL of the client's locks, whether
// it comes from an option, the URL or the default.
func TestOpenerGetsTheTTL(t *testing.T) {
	for _, test := range []struct {
		name, parameters string
		opts             []dlock.Option
		ttl              time.Duration
	}{
		{"default", "prefix=p", nil, 30 * time.Second},
		{"option of Open", "prefix=p", []dlock.Option{dlock.WithTTL(time.Second)}, time.Second},
		{"URL", "ttl=2s", nil, 2 * time.Second},
		{
			"URL over option of Open", "ttl=2s",
			[]dlock.Option{dlock.WithTTL(time.Second)},
			2 * time.Second,
		},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			d := newScript()
			if _, err := openURL(t, d, test.parameters, test.opts...); err != nil {
				t.Fatal(err)
			}
			if d.opened != test.ttl {
				t.Errorf("the Opener gets the TTL %v, want %v", d.opened, test.ttl)
			}
		})
	}
}

// TestLongSessionIsLogged checks that Open logs a session that outlasts the TTL. The locks of a
// dead process then stay taken until the end of the session.
func TestLongSessionIsLogged(t *testing.T) {
	for _, test := range []struct {
		name    string
		session bool
		maxTTL  time.Duration
		log     string
	}{
		{"no limit", true, 0, ""},
		{"a session as long as the TTL", true, 2 * time.Second, ""},
		{"a longer session", true, 4 * time.Second, "longest=4s ttl=2s"},
		{"terms of their own", false, 4 * time.Second, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				d := newScript()
				d.caps.Session, d.caps.MaxTTL = test.session, test.maxTTL
				logger := slog.New(slog.NewTextHandler(&log, nil))
				open(t, d, dlock.WithTTL(2*time.Second), dlock.WithLogger(logger))
				synctest.Wait()
				got := log.String()
				if !strings.Contains(got, test.log) || strings.Contains(got, "error=") ||
					test.log == "" && got != "" {
					t.Errorf("the log is %q, want %q", got, test.log)
				}
			})
		})
	}
}

func TestBadURLs(t *testing.T) {
	for _, test := range []struct{ parameters, want string }{
		{"ttl=0s", `"ttl"`},
		{"ttl=-1s", `"ttl"`},
		{"ttl=soon", `"ttl"`},
		{"fair=perhaps", `"fair"`},
		{"fair=perhaps&require=fair", `"fair"`},
		{"require=", `"require"`},
		{"require=fair,miracles", `"require"`},
		{"prefix=%ff", `"prefix"`},
		{"tll=3s", `"tll"`},
		{"fail=no+server&pasword=s3cret", `"pasword"`},
		{"fail=no-server", "no-server"},
	} {
		t.Run(test.parameters, func(t *testing.T) {
			t.Parallel()
			d := newScript()
			scripts.Store("bad", d)
			_, err := dlock.Open(t.Context(), "script:bad?"+test.parameters)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("the error is %v, want one with %s", err, test.want)
			}
			if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "soon") {
				t.Errorf("the error repeats a value: %v", err)
			}
			if e, ok := errors.AsType[*dlock.Error](err); !ok || e.Op != "open" {
				t.Errorf("the error is a %T", err)
			}
		})
	}
}

// TestOpenThatFailsLeavesNothingOpen checks that Open closes the driver if it fails after it has
// opened it.
func TestOpenThatFailsLeavesNothingOpen(t *testing.T) {
	for _, test := range []struct {
		parameters string
		opt        dlock.Option
	}{
		{"tll=3s", nil},
		{"ttl=3s", dlock.WithMinHold(-1)},
		{"require=move", nil},
	} {
		t.Run(test.parameters, func(t *testing.T) {
			t.Parallel()
			d := newScript()
			if _, err := openURL(t, d, test.parameters, test.opt); err == nil {
				t.Error("no error")
			}
			wantStory(t, d, "close")
		})
	}
}

func TestNewThatFailsClosesNothing(t *testing.T) {
	t.Parallel()
	d := newScript()
	if _, err := dlock.New(d, dlock.WithTTL(-1)); err == nil {
		t.Error("no error")
	}
	if _, err := dlock.New(nil); err == nil {
		t.Error("no error without a driver")
	}
	wantStory(t, d, "")
}

func TestUnknownSchemeListsTheKnown(t *testing.T) {
	t.Parallel()
	_, err := dlock.Open(t.Context(), "redis://user:s3cret@host")
	if err == nil || !strings.Contains(err.Error(), "mem") ||
		!strings.Contains(err.Error(), "dlock/redisbackend") ||
		strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error is %v", err)
	}
}

func TestUnparsableURL(t *testing.T) {
	t.Parallel()
	_, err := dlock.Open(t.Context(), "mem://user:s3cret@host/#fragment")
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error is %v", err)
	}
}

func TestRequire(t *testing.T) {
	all := backend.Capabilities{
		Modes: backend.Exclusive | backend.Shared | backend.Permit, Fair: backend.FairOptional,
		Fencing: backend.FenceDurable, List: true, Break: true, Move: true, Notify: true,
	}
	for _, test := range []struct {
		word string
		take func(*backend.Capabilities)
	}{
		{"fair", func(c *backend.Capabilities) { c.Fair = backend.FairNo }},
		{"shared", func(c *backend.Capabilities) { c.Modes &^= backend.Shared }},
		{"permit", func(c *backend.Capabilities) { c.Modes &^= backend.Permit }},
		{"fence", func(c *backend.Capabilities) { c.Fencing = backend.FenceNone }},
		{"fence-durable", func(c *backend.Capabilities) { c.Fencing = backend.FenceVolatile }},
		{"list", func(c *backend.Capabilities) { c.List = false }},
		{"break", func(c *backend.Capabilities) { c.Break = false }},
		{"move", func(c *backend.Capabilities) { c.Move = false }},
	} {
		t.Run(test.word, func(t *testing.T) {
			t.Parallel()
			d := newScript()
			d.caps = all
			if _, err := openURL(t, d, "require=break,"+test.word); err != nil {
				t.Error(err)
			}
			poor := newScript()
			poor.caps = all
			test.take(&poor.caps)
			_, err := openURL(t, poor, "require="+test.word)
			wantErr(t, err, dlock.ErrUnsupported)
			word := strings.TrimSuffix(test.word, "-durable")
			if err != nil && !strings.Contains(err.Error(), word) {
				t.Errorf("%v does not name the missing capability", err)
			}
		})
	}
}

func TestWithRequire(t *testing.T) {
	t.Parallel()
	d := newScript()
	open(t, d, dlock.WithRequire(backend.Capabilities{Break: true, Fencing: backend.FenceVolatile}))
	_, err := dlock.New(d, dlock.WithRequire(backend.Capabilities{Move: true}))
	wantErr(t, err, dlock.ErrUnsupported)
	_, err = openURL(t, d, "require=break", dlock.WithRequire(backend.Capabilities{Move: true}))
	wantErr(t, err, dlock.ErrUnsupported)
}

func TestImpossibleOptions(t *testing.T) {
	for _, test := range []struct {
		name        string
		opts        []dlock.Option
		unsupported bool
		caps        func(*backend.Capabilities)
	}{
		{"no TTL", []dlock.Option{dlock.WithTTL(0)}, false, nil},
		{"negative TTL", []dlock.Option{dlock.WithTTL(-time.Second)}, false, nil},
		{"negative lock-delay", []dlock.Option{dlock.WithLockDelay(-1)}, false, nil},
		{"negative minimum hold", []dlock.Option{dlock.WithMinHold(-1)}, false, nil},
		{"negative maximum hold", []dlock.Option{dlock.WithMaxHold(-1)}, false, nil},
		{
			"minimum above maximum",
			[]dlock.Option{dlock.WithMinHold(2), dlock.WithMaxHold(1)},
			false,
			nil,
		},
		{"negative hand-off", []dlock.Option{dlock.WithLocalHandoff(-1)}, false, nil},
		{"too many hand-offs", []dlock.Option{dlock.WithLocalHandoff(4096)}, false, nil},
		{"no poll interval", []dlock.Option{dlock.WithPollInterval(0)}, false, nil},
		{"meta with a control character", []dlock.Option{dlock.WithMeta("a\nb")}, false, nil},
		{"long meta", []dlock.Option{dlock.WithMeta(strings.Repeat("m", 513))}, false, nil},
		{
			"TTL below the server's",
			[]dlock.Option{dlock.WithTTL(time.Second - 1)},
			true,
			func(c *backend.Capabilities) { c.MinTTL = time.Second },
		},
		{
			"TTL above the server's",
			[]dlock.Option{dlock.WithTTL(time.Hour), dlock.WithLockDelay(1)},
			true,
			func(c *backend.Capabilities) { c.MaxTTL = time.Hour },
		},
		{
			"lock-delay of a session",
			[]dlock.Option{dlock.WithLockDelay(time.Second)},
			true,
			func(c *backend.Capabilities) { c.Session = true },
		},
		{
			"fair",
			[]dlock.Option{dlock.WithFair()},
			true,
			func(c *backend.Capabilities) { c.Fair = backend.FairNo },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newScript()
			if test.caps != nil {
				test.caps(&d.caps)
			}
			_, err := dlock.New(d, test.opts...)
			if err == nil || errors.Is(err, dlock.ErrUnsupported) != test.unsupported {
				t.Errorf("New: %v", err)
			}
			c := open(t, d)
			_, err = c.Mutex("x", test.opts...)
			if err == nil || errors.Is(err, dlock.ErrUnsupported) != test.unsupported {
				t.Errorf("Mutex: %v", err)
			}
			_, err = c.Lock(t.Context(), "x", test.opts...)
			if err == nil {
				t.Error("Lock accepts the option")
			}
			wantStory(t, d, "")
		})
	}
}

// TestDefaultTTLFitsTheServer checks that the default TTL is adapted to the server's limits. Only a
// TTL that the user has set is refused.
func TestDefaultTTLFitsTheServer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		least, most, want time.Duration
		opts              []dlock.Option
	}{
		{0, 0, 30 * time.Second, nil},
		{0, 10 * time.Second, 10 * time.Second, nil},
		{time.Minute, 0, time.Minute, nil},
		{
			0, 10 * time.Second, 10 * time.Second,
			[]dlock.Option{dlock.WithLockDelay(4 * time.Second)},
		},
	} {
		d := newScript()
		d.caps.MinTTL, d.caps.MaxTTL = test.least, test.most
		takes(t, open(t, d, test.opts...), "x")
		if got := d.of("acquire")[0].req.TTL; got != test.want {
			t.Errorf("with the limits %v and %v the request has the TTL %v, want %v",
				test.least, test.most, got, test.want)
		}
	}
	d := newScript()
	d.caps.MaxTTL = 10 * time.Second
	_, err := dlock.New(d, dlock.WithTTL(30*time.Second))
	if !errors.Is(err, dlock.ErrUnsupported) {
		t.Errorf("a TTL beyond the bounds: %v", err)
	}
}

// TestLockDelayThatLeavesNoTTL checks that the error of a lock-delay that is too long for the
// server is about the lock-delay, and not about a TTL that the user has not set. A lock-delay that
// leaves the shortest TTL is accepted.
func TestLockDelayThatLeavesNoTTL(t *testing.T) {
	t.Parallel()
	const most, shortest = time.Hour, 50 * time.Millisecond
	for delay, accepted := range map[time.Duration]bool{
		most - shortest: true, most - shortest + 1: false, most: false, 2 * most: false,
		math.MaxInt64: false,
	} {
		d := newScript()
		d.caps.MaxTTL = most
		c, err := dlock.New(d, dlock.WithLockDelay(delay))
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		switch {
		case accepted != (err == nil):
			t.Errorf("lock-delay %v: %v", delay, err)
		case accepted:
		case !errors.Is(err, dlock.ErrUnsupported) || !strings.Contains(err.Error(), "lock-delay"):
			t.Errorf("lock-delay %v: %v, want ErrUnsupported and the lock-delay", delay, err)
		}
	}
}

func TestOptionsAtTheirBounds(t *testing.T) {
	t.Parallel()
	d := newScript()
	d.caps.MinTTL, d.caps.MaxTTL = time.Second, time.Hour
	c := open(t, d)
	for _, opts := range [][]dlock.Option{
		{dlock.WithTTL(time.Second)},
		{dlock.WithTTL(time.Hour - 1), dlock.WithLockDelay(1)},
		{dlock.WithLocalHandoff(0)},
		{dlock.WithLocalHandoff(4095)},
		{dlock.WithMinHold(1), dlock.WithMaxHold(1)},
		{dlock.WithMeta("")},
	} {
		if _, err := c.Mutex("x", opts...); err != nil {
			t.Error(err)
		}
	}
}

func TestOptionsOfAClientAreNotOfALock(t *testing.T) {
	t.Parallel()
	c := open(t, newScript())
	for _, opt := range []dlock.Option{
		dlock.WithRequire(backend.Capabilities{}), dlock.WithLogger(nil), dlock.WithObserver(nil),
	} {
		if _, err := c.Mutex("x", opt); err == nil {
			t.Error("a lock accepts an option of the client")
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	d := newScript()
	c := open(t, d)
	for _, name := range []string{
		"", "a\nb", "a\x7f", "a\u0085", "\xff", strings.Repeat("n", 513),
	} {
		_, mutexErr := c.Mutex(name)
		_, lockErr := c.Lock(t.Context(), name)
		_, tryErr := c.TryLock(t.Context(), name)
		_, inspectErr := c.Inspect(t.Context(), name)
		for _, err := range []error{
			mutexErr, lockErr, tryErr, inspectErr, c.Break(t.Context(), name, ""),
		} {
			if !errors.Is(err, dlock.ErrInvalidName) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	for _, name := range []string{" ", "a b", "ä/€{}%", strings.Repeat("n", 512)} {
		if m, err := c.Mutex(name); err != nil || m.Name() != name {
			t.Errorf("%q: %v", name, err)
		}
	}
	wantStory(t, d, "")
}

func TestCapabilitiesAreTheDrivers(t *testing.T) {
	t.Parallel()
	d := newScript()
	d.caps.Late = time.Minute
	if caps := open(t, d).Capabilities(); caps != d.caps {
		t.Errorf("the capabilities are %+v", caps)
	}
}

func TestUnclaimedInterfacesAreNotCalled(t *testing.T) {
	t.Parallel()
	silent := newScript()
	silent.caps = backend.Capabilities{Modes: backend.Exclusive}
	for name, d := range map[string]backend.Driver{
		"no claim":  silent,
		"no method": struct{ backend.Driver }{newScript()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := open(t, d)
			_, inspectErr := c.Inspect(t.Context(), "x")
			var listErr error
			for _, listErr = range c.List(t.Context(), "") {
			}
			for _, err := range []error{inspectErr, listErr, c.Break(t.Context(), "x", "")} {
				wantErr(t, err, dlock.ErrUnsupported)
			}
		})
	}
}

func TestNilContexts(t *testing.T) {
	t.Parallel()
	d := newScript()
	c := open(t, d)
	var none context.Context
	_, openErr := dlock.Open(none, "script:x")
	_, lockErr := c.Lock(none, "x")
	_, tryErr := c.TryLock(none, "x")
	_, inspectErr := c.Inspect(none, "x")
	lease := takes(t, c, "y")
	for i, err := range []error{
		openErr, lockErr, tryErr, inspectErr, c.Break(none, "x", ""), lease.Extend(none),
	} {
		if err == nil {
			t.Errorf("call %d accepts a nil context", i)
		}
	}
	for i, err := range []error{lease.Unlock(none), c.Shutdown(none), c.Shutdown(none)} {
		if err != nil {
			t.Errorf("closing call %d: %v", i, err)
		}
	}
	wantStory(t, d, "acquire release close")
}

func TestDeadContexts(t *testing.T) {
	t.Parallel()
	d := newScript()
	c := open(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, lockErr := c.Lock(ctx, "x")
	_, tryErr := c.TryLock(ctx, "x")
	_, inspectErr := c.Inspect(ctx, "x")
	for _, err := range []error{lockErr, tryErr, inspectErr, c.Break(ctx, "x", "")} {
		wantErr(t, err, context.Canceled)
		wantNoErr(t, err, dlock.ErrUncertain, dlock.ErrUnavailable)
	}
	wantStory(t, d, "")
}

// TestTTLWithinTheMargin checks that a TTL within the safety margin is refused, because the lease
// would end before it begins.
func TestTTLWithinTheMargin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, newScript())
		if _, err := c.Mutex("x", dlock.WithTTL(10*time.Millisecond)); err == nil {
			t.Error("a TTL of 10 ms is accepted, although no lease can have it")
		}
	})
}
