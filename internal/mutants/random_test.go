package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// changesIn returns "operator: old -> new" for each mutant of a file with that text.
func changesIn(t *testing.T, name, text string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	changes, err := changesOf(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		if c.old != text[c.from:c.to] {
			t.Errorf("%q is at %d, not %q", text[c.from:c.to], c.from, c.old)
		}
		got = append(got, c.operator+": "+oneLine(c.old)+" -> "+oneLine(c.new))
	}
	return got
}

func TestMutantsOfGo(t *testing.T) {
	t.Parallel()
	got := changesIn(t, "x.go", "package x\n"+
		"func f(a, b int, ok bool) error {\n"+
		"\tif !ok && a < b {\n\t\tclose(c)\n\t}\n"+
		"\treturn err\n"+
		"}\n")
	want := []string{
		"always: !ok && a < b -> (!ok && a < b) || true",
		"never: !ok && a < b -> (!ok && a < b) && false",
		"swap operator: && -> ||",
		"drop operand: !ok && -> nothing",
		"drop operand: && a < b -> nothing",
		"drop not: ! -> nothing",
		"swap operator: < -> <=",
		"remove statement: close(c) -> nothing",
		"return nil: err -> nil",
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("no mutant %q in %q", w, got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d mutants, want %d: %q", len(got), len(want), got)
	}
}

func TestMutantsOfScripts(t *testing.T) {
	t.Parallel()
	lua := changesIn(t, "x.lua", "-- a == b\nif a == b then\n  redis.call('DEL', KEYS[1])\nend\n")
	for _, w := range []string{
		"swap operator: == -> ~=", "never: if a == b then -> if false and (a == b) then",
		"remove call: redis.call('DEL', KEYS[1]) -> nothing", "other key: KEYS[1] -> KEYS[2]",
	} {
		if !slices.Contains(lua, w) {
			t.Errorf("no mutant %q in %q", w, lua)
		}
	}
	sql := changesIn(t, "x.sql", "-- n <= 1\n"+
		"UPDATE t SET token = token + 1\n"+
		"WHERE owner = ?\n  AND expires > UTC_TIMESTAMP(6)\n")
	for _, w := range []string{
		"one more: + 1 -> + 0", "swap operator: > -> >=", "swap operator: AND -> OR",
		"drop condition: AND expires > UTC_TIMESTAMP(6) -> nothing",
	} {
		if !slices.Contains(sql, w) {
			t.Errorf("no mutant %q in %q", w, sql)
		}
	}
}

func TestMutantsOfATest(t *testing.T) {
	t.Parallel()
	if got := changesIn(t, "x_test.go", "package x\nvar a = 1 + 1\n"); len(got) > 0 {
		t.Errorf("a test has mutants: %q", got)
	}
}

func TestParts(t *testing.T) {
	t.Parallel()
	if _, err := chosenParts("root,nonsense"); err == nil {
		t.Error("an unknown part is accepted")
	}
	if all, err := chosenParts(""); err != nil || len(all) != len(parts) {
		t.Errorf("an empty list chooses %d parts, error %v", len(all), err)
	}
}

// TestEquivalentsAreThere checks that each known equivalent still matches a mutant.
func TestEquivalentsAreThere(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	var all []change
	for _, p := range parts {
		changes, err := p.changes()
		if err != nil {
			t.Fatal(err)
		}
		if len(changes) == 0 {
			t.Errorf("%s has no mutants", p.name)
		}
		all = append(all, changes...)
	}
	for _, e := range equivalents {
		if !slices.ContainsFunc(all, func(c change) bool { return c.equivalent == e.why }) {
			t.Errorf("no mutant is equivalent by %q", e.why)
		}
	}
}
