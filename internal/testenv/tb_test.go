package testenv

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/announce"
)

// fakeTB records the calls of a test.
type fakeTB struct {
	*testing.T
	name, skipped, failed string
	logs                  []string
}

func (f *fakeTB) Name() string                   { return f.name }
func (f *fakeTB) Skipf(format string, a ...any)  { f.skipped = fmt.Sprintf(format, a...) }
func (f *fakeTB) Fatalf(format string, a ...any) { f.failed = fmt.Sprintf(format, a...) }

func (f *fakeTB) Errorf(format string, a ...any) { f.failed = fmt.Sprintf(format, a...) }

func (f *fakeTB) Logf(format string, a ...any) {
	f.logs = append(f.logs, fmt.Sprintf(format, a...))
}

// skippingTB leaves the calling function at a skip, as a test does.
type skippingTB struct{ fakeTB }

func (f *skippingTB) Skipf(format string, a ...any) {
	f.fakeTB.Skipf(format, a...)
	panic("skipped")
}

func TestAnnounceOncePerTest(t *testing.T) {
	announced.Clear() // of an earlier run with -count
	fakes := []*fakeTB{{T: t, name: "TestX/a"}, {T: t, name: "TestX/b"}, {T: t, name: "TestY"}}
	for _, f := range fakes {
		Announce(f, "mem", "process", "Go 1.26")
		Announce(f, "file", "process", "Linux 6.1 ext4")
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

// TestMissing checks that a test without a server fails with the instructions, or is skipped if the
// environment allows it.
func TestMissing(t *testing.T) {
	t.Setenv("DLOCK_TEST_ALLOW_SKIP", "")
	f := &fakeTB{T: t}
	missing(f, os.ErrNotExist)
	if !strings.Contains(f.failed, os.ErrNotExist.Error()) || f.skipped != "" {
		t.Errorf("failed %q, skipped %q", f.failed, f.skipped)
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
