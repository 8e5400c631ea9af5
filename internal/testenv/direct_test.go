package testenv

import "testing"

func TestDirectURL(t *testing.T) {
	t.Parallel()
	s := Redis(t)
	version, err := s.spec.probe(t.Context(), s.DirectURL())
	if err != nil || version != s.Version {
		t.Errorf("%s: %q, %v, want %q", s.DirectURL(), version, err, s.Version)
	}
	given := &Server{URL: "redis://localhost"}
	if url := given.DirectURL(); url != given.URL {
		t.Errorf("of a server given by URL: %s", url)
	}
}
