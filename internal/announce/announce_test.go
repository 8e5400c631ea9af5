package announce

import "testing"

func TestParse(t *testing.T) {
	want := Server{Backend: "mysql", Source: "container", Version: `MySQL 9.7.4 "GPL"`}
	if got, ok := Parse("    server.go:12: " + want.String() + "\n"); !ok || got != want {
		t.Errorf("Parse(String) = %+v, %v", got, ok)
	}
	for _, line := range []string{
		"", "dlock-server", "dlock-server backend=x source=y version=z", "PASS",
	} {
		if got, ok := Parse(line); ok {
			t.Errorf("Parse(%q) = %+v", line, got)
		}
	}
}
