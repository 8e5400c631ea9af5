package conformance

import (
	"slices"
	"testing"
)

// Option is an option of [Run].
type Option func(*settings)

type settings struct {
	exact        bool
	inapplicable []string
}

// Inapplicable is the complete list of the cases that do not apply to the driver or its Harness.
// Run then fails for an unlisted case that does not apply, and for a listed case that applies. So
// no case is skipped unnoticed when a driver or a Harness changes. Do not list the cases that need
// [Faults] for a Harness with a method NoServer. Without Inapplicable, Run skips the cases that do
// not apply; go test -v prints their names and the reasons.
func Inapplicable(cases ...string) Option {
	return func(s *settings) { s.exact, s.inapplicable = true, append(s.inapplicable, cases...) }
}

// scope states, before a case runs, whether it applies.
type scope int

const (
	unknown scope = iota
	applies
	doesNotApply
)

// settingsOf returns the settings. It fails t if they name a case that does not exist.
func settingsOf(t *testing.T, opts []Option) *settings {
	t.Helper()
	s := &settings{}
	for _, opt := range opts {
		opt(s)
	}
	for _, name := range s.inapplicable {
		if !slices.ContainsFunc(Cases(), func(c Case) bool { return c.Name == name }) {
			t.Errorf("Inapplicable: there is no case %q", name)
		}
	}
	return s
}

func (s *settings) scope(c Case) scope {
	switch {
	case slices.Contains(s.inapplicable, c.Name):
		return doesNotApply
	case s.exact:
		return applies
	default:
		return unknown
	}
}
