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

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/membackend"
)

// TestSignalBeforeTheMinimumHold checks a signal that comes just before dlock waits for the end of
// the minimum hold.
func TestSignalBeforeTheMinimumHold(t *testing.T) {
	t.Parallel()
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
		h.signals <- syscall.SIGTERM
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
