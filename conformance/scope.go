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

// Inapplicable states which cases do not apply to the driver or its Harness: these and no others. With
// it, Run fails for another case that finds that it does not apply, and for one of these that runs.
// So no case drops out unseen when a driver or a Harness changes. The cases that need [Faults] do not
// belong to the list of a Harness with a method NoServer. Without Inapplicable, Run skips whatever
// does not apply; go test -v prints the names and the reasons.
func Inapplicable(cases ...string) Option {
	return func(s *settings) { s.exact, s.inapplicable = true, append(s.inapplicable, cases...) }
}

// scope is what is known, before a case runs, of whether it applies.
type scope int

const (
	unknown scope = iota
	applies
	doesNotApply
)

// settingsOf returns the settings. It fails if they name a case that does not exist.
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
