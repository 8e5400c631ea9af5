package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/membackend"
)

// TestSignalBeforeTheMinimumHold checks a signal that comes just before dlock waits for the end of
// the minimum hold, and a signal that dlock has received earlier.
func TestSignalBeforeTheMinimumHold(t *testing.T) {
	t.Parallel()
	for name, receive := range map[string]func(*holder){
		"just before": func(h *holder) { h.signals <- syscall.SIGTERM },
		"earlier":     func(h *holder) { h.interrupt = syscall.SIGTERM },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSignalBeforeTheMinimumHold(t, receive)
		})
	}
}

func testSignalBeforeTheMinimumHold(t *testing.T, receive func(*holder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, err := dlock.New(membackend.New(&membackend.Options{Space: t.Name()}))
		if err != nil {
			t.Fatal(err)
		}
		lease, err := c.Lock(t.Context(), "x", dlock.WithMinHold(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		var messages bytes.Buffer
		h := &holder{
			app: &app{messages: &messages}, flags: &lockFlags{}, name: "x",
			signals: make(inbox, 1), client: c, held: true,
		}
		receive(h)
		begun := time.Now()
		h.close()
		if waited := time.Since(begun); waited > partingWait || h.interrupt != syscall.SIGTERM {
			t.Errorf("dlock ends after %v with the signal %v", waited, h.interrupt)
		}
		if !strings.Contains(messages.String(), "not freed in good order") {
			t.Errorf("the messages are %q", messages.String())
		}
		_ = c.Shutdown(t.Context())
	})
}

// TestParametersOfFiles checks the parameters of file: that dlock run sets: a stopped job keeps its
// lock, the kernel wakes the waiter, and the job inherits the lock unless -o is given. Other URLs
// stay as they are.
func TestParametersOfFiles(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		raw, want string
		leave     bool
	}{
		{raw: "file:/x", want: "file:/x?endless=1&block=1&inherit=1"},
		{raw: "file:/x", leave: true, want: "file:/x?endless=1&block=1"},
		{raw: "redis://h", want: "redis://h"},
	} {
		flags := &lockFlags{}
		flags.register(pflag.NewFlagSet("", pflag.ContinueOnError))
		flags.leave = row.leave
		if got := (&holder{flags: flags}).parameters(row.raw); got != row.want {
			t.Errorf("with -o %v, %s becomes %s, want %s", row.leave, row.raw, got, row.want)
		}
	}
}

// TestTTLOfTheFlagReachesTheOpener checks that --ttl is also the TTL of the URL, so that a session
// of ZooKeeper follows it. Without the flag, the URL stays as it is.
func TestTTLOfTheFlagReachesTheOpener(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		raw  string
		args []string
		want string
		ttl  time.Duration // that dlock.Open gives to the Opener
	}{
		{"zk://h", []string{"--ttl", "7s"}, "zk://h?ttl=7s", 7 * time.Second},
		{"zk://h?ttl=9s&tls=1", []string{"--ttl", "7s"}, "zk://h?tls=1&ttl=7s", 7 * time.Second},
		{"zk://h?ttl=9s", nil, "zk://h?ttl=9s", 9 * time.Second},
		{"zk://h", nil, "zk://h", 0},
	} {
		flags := &lockFlags{}
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.register(set)
		if err := set.Parse(row.args); err != nil {
			t.Fatal(err)
		}
		got := (&holder{flags: flags}).parameters(row.raw)
		if got != row.want {
			t.Errorf("with %q, %s becomes %s, want %s", row.args, row.raw, got, row.want)
		}
		if ttl, err := ttlOf(got, 0); err != nil || ttl != row.ttl {
			t.Errorf("the TTL of %s is %v, %v, want %v", got, ttl, err, row.ttl)
		}
	}
}

// blind is a driver that answers no Inspect.
type blind struct {
	backend.Driver
	backend.Inspector
	err error
}

func (b blind) Inspect(context.Context, string) (*backend.Info, error) { return nil, b.err }

// TestNestedNeedsAnAnswer checks that a nested dlock does not wait for a lock if it cannot find out
// whether it would wait for itself. A backend without Inspect is the exception.
func TestNestedNeedsAnAnswer(t *testing.T) {
	t.Parallel()
	for failure, want := range map[error]error{
		dlock.ErrUnavailable: dlock.ErrUnavailable, dlock.ErrUnsupported: nil,
	} {
		d := membackend.New(&membackend.Options{Space: t.Name()})
		c, err := dlock.New(blind{d, d.(backend.Inspector), failure})
		if err != nil {
			t.Fatal(err)
		}
		env := []string{ownersVariable + "=outer"}
		h := &holder{app: &app{env: env}, flags: &lockFlags{}, name: "x", client: c}
		if got := h.refuseNested(t.Context()); !errors.Is(got, want) {
			t.Errorf("Inspect returns %v: the error is %v, want %v", failure, got, want)
		}
		_ = c.Shutdown(t.Context())
	}
}

// TestRequestUnderWayIsNoSilentServer checks a wait that ends while a request is under way, for a
// lock that another client holds: the server is not to blame.
func TestRequestUnderWayIsNoSilentServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := dlock.New(membackend.New(&membackend.Options{Space: t.Name()}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Lock(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		flags := &lockFlags{wait: time.Second, conflictCode: exitNotAcquired}
		h := &holder{app: &app{}, flags: flags, name: "x", client: c}
		got := h.notAcquired(fmt.Errorf("%w: %w", dlock.ErrUncertain, context.DeadlineExceeded))
		coded, ok := errors.AsType[*exitError](got)
		if !ok || coded.code != exitNotAcquired || !strings.Contains(got.Error(), "held by") {
			t.Errorf("the error is %v", got)
		}
		_ = c.Shutdown(t.Context())
	})
}
