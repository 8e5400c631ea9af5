//go:build unix

package campaign

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPublish checks that Publish replaces the figures of the servers that ran and does not change
// any other text.
func TestPublish(t *testing.T) {
	dir := t.TempDir()
	file, document := filepath.Join(dir, "figures.json"), filepath.Join(dir, "page.md")
	old := []byte("before\n" + tableBegin + "old\n" + tableEnd + "after\n")
	if err := os.WriteFile(document, old, 0o600); err != nil {
		t.Fatal(err)
	}
	first := Figures{Server: "redis", Rounds: 1, Grants: 11, Faults: map[Kind]*FaultFigures{
		Kill: {Class: X, Injected: 5, Grants: 200},
	}}
	second := Figures{
		Server: "etcd", Seed: 2, Rounds: 1, Grants: 22, OverlapF: 30 * time.Millisecond,
		Violations: map[Rule]int{RuleB: 3},
	}
	kinds := func(grants int, kinds ...LockKind) map[LockKind]*KindFigures {
		all := make(map[LockKind]*KindFigures)
		for _, k := range kinds {
			all[k] = &KindFigures{Grants: grants}
		}
		return all
	}
	first.Kinds, second.Kinds = kinds(66, Mutex, Permits), kinds(77, Mutex)
	partial := Figures{Server: "redis", Rounds: 1, Grants: 88, Kinds: kinds(88, Moved)}
	partial.Kinds[Moved].Violations = map[Rule]int{RuleA: 2}
	third := Figures{Server: "redis", Rounds: 1, Grants: 33, Faults: map[Kind]*FaultFigures{
		Kill: {Class: X, Injected: 6, Grants: 200},
		Wipe: {Class: F, Injected: 4, Grants: 200, Overlap: time.Second},
		Cut:  {Class: X, Injected: 2, Grants: 500},
	}}
	third.Kinds = kinds(99, Mutex, Permits, Moved)
	later := Figures{Server: "redis", Rounds: 1, Grants: 111, Kinds: kinds(111, Permits)}
	election := Figures{Server: "redis", Grants: 44, Rounds: 1, Election: &ElectionFigures{
		Version: "Redis 8", Terms: 44, TTL: 2 * time.Second, Seed: 7,
		Gap: Times{N: 20, P50: time.Second, Max: 3 * time.Second},
	}}
	alone := Figures{Server: "zk", Rounds: 1, Election: &ElectionFigures{Terms: 55}}
	for _, latest := range [][]Figures{
		{first}, {election, alone}, {partial}, {second, third}, {later},
	} {
		if err := Publish(file, document, latest); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{
		"before\n" + tableBegin, tableEnd + "after\n", "| etcd | 22 | b: 3 |", "| redis | 33 | 0 |",
		"| redis (Redis 8) | 44 | 20 | 0 | 1s/3s | 2s | 7 |", "| zk | 55 | 0 | 0 | – |",
		"| kind: grants, violations | etcd | redis |\n", "| mutex | 77, 0 | 99, 0 |",
		"| permits | – | 111, 0 |", "| moved | – | 99, 0 |", "| all | – | – |",
		"| fault | etcd | redis |\n", "| kill | – | X 6 |",
		"| wipe | – | F 4, 1s |", "| cut | – | X (2) |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the document has no %q:\n%s", want, text)
		}
	}
	for _, old := range []string{"old", "| 11 |"} {
		if strings.Contains(text, old) {
			t.Errorf("%q is still there", old)
		}
	}
}
