package testenv

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/announce"
)

// TestInTime checks that a late try is repeated only if something stood still, and that a defect
// fails the test at once.
func TestInTime(t *testing.T) {
	t.Parallel()
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	refuses := func(context.Context) error { return context.Canceled }
	for name, tt := range map[string]struct {
		probe       func(context.Context) error
		limit, took time.Duration
		tries       int
		fails       bool
	}{
		"in time":                {nil, time.Minute, time.Minute, 1, false},
		"late on a calm machine": {nil, time.Hour, 3 * time.Hour, 1, true},
		"late, and the server answers": {
			refuses, time.Hour, 3 * time.Hour, 1, true,
		},
		"late, and the server is silent": {
			silent, 100 * time.Millisecond, time.Hour, tries, true,
		},
		"in time, and the server is silent": {
			silent, 100 * time.Millisecond, 100 * time.Millisecond, 1, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, n := &fakeTB{T: t}, 0
			InTime(f, tt.limit, tt.probe, func() (begun time.Time, took time.Duration) {
				n++
				begun = time.Now()
				time.Sleep(50 * time.Millisecond) // longer than a tenth of the short limit
				return begun, tt.took
			})
			if n != tt.tries || (f.failed != "") != tt.fails {
				t.Errorf("%d tries, %q, want %d", n, f.failed, tt.tries)
			}
			for _, line := range f.logs {
				if !announce.IsVoid(line) {
					t.Errorf("the log has %q", line)
				}
			}
			if void := len(f.logs); void != n-1 {
				t.Errorf("%d of %d tries are void: %s", void, n, strings.Join(f.logs, "\n"))
			}
		})
	}
}

// TestInTimeForgetsThePast checks that a standstill before a try began does not excuse it.
func TestInTimeForgetsThePast(t *testing.T) {
	t.Parallel()
	first := make(chan struct{})
	probe := func(ctx context.Context) error {
		select {
		case <-first: // no later probe waits
		case <-time.After(20 * time.Millisecond):
			close(first)
		}
		return ctx.Err()
	}
	f, n := &fakeTB{T: t}, 0
	InTime(f, time.Hour, probe, func() (begun time.Time, took time.Duration) {
		n++
		<-first
		return time.Now(), 2 * time.Hour
	})
	if n != 1 || f.failed == "" {
		t.Errorf("%d tries, %q", n, f.failed)
	}
}
