package testenv

import "os"

// Alone returns a server, a group or an ensemble for this test alone, which may stop it while other tests run: kind is [Redis],
// [EtcdEnsemble] or their like. It is removed when the test ends. Where the environment gives a URL it is the one that all
// tests share.
func Alone[S any](tb TB, kind func(TB) S) S {
	tb.Helper()
	return kind(aloneTB{tb})
}

// aloneTB marks the TB of a test that needs a server of its own.
type aloneTB struct{ TB }

// isAlone reports whether tb wants a server of its own, and the environment gives none.
func isAlone(tb TB, urlVariable string) bool {
	_, alone := tb.(aloneTB)
	return alone && os.Getenv(urlVariable) == ""
}
