package testenv

import (
	"testing"

	"github.com/dlock-go/dlock/internal/announce"
)

// InTime repeats a try, at most five times, until it returns an empty string. Otherwise a try
// returns why it was late. A server that stands still for a moment makes one try late, and a defect
// makes all of them late.
func InTime(tb testing.TB, try func() (late string)) {
	tb.Helper()
	for range 4 {
		late := try()
		if late == "" {
			return
		}
		tb.Log(announce.Void(late))
	}
	if late := try(); late != "" {
		tb.Error(late)
	}
}
