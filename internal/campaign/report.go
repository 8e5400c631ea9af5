//go:build unix

package campaign

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// maxShown is the largest number of violations in a report.
const maxShown = 20

// WriteReport writes a report on a campaign as text.
func (v *Verdict) WriteReport(w io.Writer) {
	f := &v.Figures
	fmt.Fprintf(w, "%s (%s), seed %d: %d grants in %d rounds, %v\n",
		f.Server, f.Version, f.Seed, f.Grants, f.Rounds, f.Took)
	for _, l := range locks {
		if of := f.Kinds[l.kind]; of != nil {
			fmt.Fprintf(w, "  %-12s grants %6d  violations %s\n",
				l.kind, of.Grants, counted(of.Violations))
		}
	}
	for _, k := range kinds {
		if of := f.Faults[k]; of != nil {
			note := ""
			if !of.Counts() {
				note = fmt.Sprintf("   too few to count: at least %d injections and %d grants",
					minInjected, minGrants)
			}
			fmt.Fprintf(w, "  %-12s class %s  injected %3d  grants %6d  overlap %v%s\n",
				k, of.Class, of.Injected, of.Grants, short(of.Overlap), note)
		}
	}
	fmt.Fprintf(w, "  unlock → grant %v, kill → grant %v, stop → grant %v, "+
		"wake → loss %v, taken → loss %v\n",
		f.Handoff, f.KillToGrant, f.StopToGrant, f.WakeToLoss, f.TakeToLoss)
	fmt.Fprintf(w, "  stale writes refused %d, lost updates with the fence %d, without it %d, "+
		"void losses on a slow machine %d\n",
		f.RefusedF, f.LostFenced, f.LostPlain, f.Voids)
	if e := f.Election; e != nil {
		fmt.Fprintf(w, "  election: %d calls of lead, %d leaders killed, "+
			"kill → next lead p50/max %v, TTL %v\n", e.Terms, e.Gap.N, e.Gap, e.TTL)
	}
	for _, x := range v.Violations[:min(len(v.Violations), maxShown)] {
		fmt.Fprintf(w, "  VIOLATION of rule %s at %v, %s: %s\n",
			x.Rule, v.since(x.At), cmp.Or(x.Name, "no lock"), x.Text)
	}
	if more := len(v.Violations) - maxShown; more > 0 {
		fmt.Fprintf(w, "  and %d more violations\n", more)
	}
	if len(v.Violations) == 0 {
		fmt.Fprintln(w, "  no violation")
	}
}

// since returns the time from the beginning of the history to at.
func (v *Verdict) since(at Instant) time.Duration {
	if events := v.ledger.Events; len(events) > 0 {
		return at.Sub(events[0].At).Round(time.Millisecond)
	}
	return 0
}

// String returns "p50/max".
func (t Times) String() string {
	if t.N == 0 {
		return "–"
	}
	return short(t.P50) + "/" + short(t.Max)
}

// max returns the longest time as text.
func (t Times) max() string {
	if t.N == 0 {
		return "–"
	}
	return short(t.Max)
}

// short formats a duration without needless digits.
func short(d time.Duration) string {
	switch {
	case d < 5*time.Microsecond:
		return "0"
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// tableBegin and tableEnd mark the tables in the document.
const tableBegin, tableEnd = "<!-- campaign: make campaign -->\n", "<!-- end of campaign -->\n"

// Publish updates the file with the latest figures of all servers, and writes their tables into a
// document.
func Publish(file, document string, latest []Figures) error {
	all := make(map[string]Figures)
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, f := range latest {
		all[f.Server] = f.merged(all[f.Server])
	}
	if data, err = json.MarshalIndent(all, "", "\t"); err != nil {
		return err
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	before, rest, begun := bytes.Cut(text, []byte(tableBegin))
	_, after, ended := bytes.Cut(rest, []byte(tableEnd))
	if !begun || !ended {
		return fmt.Errorf("%s has no marks of the campaign", document)
	}
	text = slices.Concat(before, []byte(tableBegin), []byte(tables(all)), []byte(tableEnd), after)
	return errors.Join(
		os.WriteFile(file, append(data, '\n'), 0o644), os.WriteFile(document, text, 0o644))
}

// merged returns the figures of the latest election, of the latest campaign, and of the latest
// campaign of each kind of lock. A campaign without some of the kinds that the server has changes
// the figures of its kinds only.
func (f Figures) merged(old Figures) Figures {
	if f.Election != nil {
		old.Server, old.Election = f.Server, f.Election
		return old
	}
	f.Election = old.Election
	kinds := make(map[LockKind]*KindFigures)
	maps.Copy(kinds, old.Kinds)
	maps.Copy(kinds, f.Kinds)
	if len(kinds) > len(f.Kinds) {
		f = old
	}
	f.Kinds = kinds
	return f
}

// tables returns the figures in Markdown: a row for each server, the kinds of locks and the faults
// of each server, and the elections.
func tables(all map[string]Figures) string {
	var b strings.Builder
	servers := slices.Sorted(maps.Keys(all))
	servers = slices.DeleteFunc(servers, func(s string) bool { return all[s].Rounds == 0 })
	b.WriteString("\n| server | grants | violations | unlock → grant p50/max | " +
		"kill → grant p50/max | stop → grant p50/max | wake → loss max | taken → loss max | " +
		"overlap max, F and U | stale writes refused | " +
		"lost updates with the fence, without | seed, hours |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range servers {
		f := all[s]
		fmt.Fprintf(&b, "| %s | %d | %s | %v | %v | %v | %s | %s | %s | %d | %d, %d | %d, %.2f |\n",
			label(s, f.Version), f.Grants, counted(f.Violations), f.Handoff, f.KillToGrant,
			f.StopToGrant, f.WakeToLoss.max(), f.TakeToLoss.max(), short(f.OverlapF), f.RefusedF,
			f.LostFenced, f.LostPlain, f.Seed, f.Took.Hours())
	}
	fmt.Fprintf(&b, "\n| kind: grants, violations | %s |\n|---|%s\n",
		strings.Join(servers, " | "), strings.Repeat("---|", len(servers)))
	for _, l := range locks {
		fmt.Fprintf(&b, "| %s |", l.kind)
		for _, s := range servers {
			fmt.Fprintf(&b, " %s |", all[s].Kinds[l.kind])
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\n| fault | %s |\n|---|%s\n",
		strings.Join(servers, " | "), strings.Repeat("---|", len(servers)))
	for _, k := range kinds {
		fmt.Fprintf(&b, "| %s |", k)
		for _, s := range servers {
			fmt.Fprintf(&b, " %s |", all[s].Faults[k])
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	b.WriteString(elections(all))
	return b.String()
}

// elections returns the table of the elections.
func elections(all map[string]Figures) string {
	var b strings.Builder
	for _, s := range slices.Sorted(maps.Keys(all)) {
		e := all[s].Election
		if e == nil {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("| election | calls of `lead` | leaders killed | violations | " +
				"kill → next `lead` p50/max | TTL | seed |\n|---|---|---|---|---|---|---|\n")
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %v | %v | %d |\n", label(s, e.Version),
			e.Terms, e.Gap.N, e.Violations, e.Gap, e.TTL, e.Seed)
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	return b.String()
}

// label returns the name of a server and its version, if it has one.
func label(server, version string) string {
	if version == "" {
		return server
	}
	return server + " (" + version + ")"
}

// counted returns the violations of each rule as text.
func counted(violations map[Rule]int) string {
	var found []string
	for _, r := range rules {
		if n := violations[r]; n > 0 {
			found = append(found, fmt.Sprintf("%s: %d", r, n))
		}
	}
	return cmp.Or(strings.Join(found, ", "), "0")
}

// String returns a cell of the table of kinds.
func (k *KindFigures) String() string {
	if k == nil {
		return "–"
	}
	return fmt.Sprintf("%d, %s", k.Grants, counted(k.Violations))
}

// String returns a cell of the table of faults.
func (f *FaultFigures) String() string {
	switch {
	case f == nil:
		return "–"
	case !f.Counts():
		return fmt.Sprintf("%s (%d)", f.Class, f.Injected)
	case f.Class == X:
		return fmt.Sprintf("X %d", f.Injected)
	}
	return fmt.Sprintf("%s %d, %s", f.Class, f.Injected, short(f.Overlap))
}
