package engine

import (
	"container/heap"
	"slices"
	"strings"
	"testing"
	"time"
)

// wantChanges is the intended table of states: one row for each state and one column for each
// event. A dot marks an event without effect. The columns live, open and freed show whether the
// state counts in the Engine's fields of these names.
const wantChanges = `
state      live open freed grant   keep orphan   lost export release   silence  settle  finish

requesting no   no   no    granted .    .        .    .      releasing .        .       gone
granted    yes  yes  no    .       kept orphaned gone gone   releasing .        settled .
kept       yes  yes  no    .       .    orphaned gone .      releasing .        settled .
orphaned   no   yes  no    .       .    .        .    .      releasing .        .       gone
releasing  no   yes  no    .       .    .        .    .      .         orphaned settled gone
settled    no   yes  yes   .       .    .        .    .      repeating .        .       .
repeating  no   yes  yes   .       .    .        .    .      .         settled  settled gone
gone       no   no   no    .       .    .        .    .      .         .        .       .
`

// wantedState is one row of wantChanges.
type wantedState struct {
	live, open, freed int
	next              [events]string // a dot: no effect
}

func wantedStates(t *testing.T) map[string]wantedState {
	t.Helper()
	counts := map[string]int{"yes": 1, "no": 0}
	lines := strings.Split(strings.TrimSpace(wantChanges), "\n")
	if head := strings.Fields(lines[0])[4:]; !slices.Equal(head, eventNames[:]) {
		t.Fatalf("the events are %v, want %v", eventNames, head)
	}
	wanted := make(map[string]wantedState)
	for _, line := range lines[2:] {
		cells := strings.Fields(line)
		wanted[cells[0]] = wantedState{
			counts[cells[1]], counts[cells[2]], counts[cells[3]], [events]string(cells[4:]),
		}
	}
	if len(wanted) != states {
		t.Fatalf("the table has %d states, the code has %d", len(wanted), states)
	}
	return wanted
}

// wantTenureChanges is the intended table of a tenure, and wantLeaseChanges of a lease.
const wantTenureChanges = `
state   take end

pending held over
held    .    over
over    .    .
`

const wantLeaseChanges = `
state    drop    end   unlock

held     dropped ended unlocked
dropped  .       ended unlocked
ended    .       .     unlocked
unlocked .       .     .
`

// TestEveryCellOfTheTable applies each event in each state, including the impossible pairs.
func TestEveryCellOfTheTable(t *testing.T) {
	t.Parallel()
	t.Run("acquisition", everyCellOfAnAcquisition)
	t.Run("tenure", func(t *testing.T) {
		t.Parallel()
		everyCell(t, tables[1], wantTenureChanges, func(s, ev int) (int, bool) {
			a := &acquisition{engine: new(Engine), lock: &Lock{Settings: &Settings{}}}
			tenure := &tenure{acq: a, lock: a.lock, state: tenureState(s)}
			effect := tenure.on(tenureEvent(ev), time.Now())
			return int(tenure.state), effect
		})
	})
	t.Run("lease", func(t *testing.T) {
		t.Parallel()
		everyCell(t, tables[2], wantLeaseChanges, func(s, ev int) (int, bool) {
			l := &Lease{state: leaseState(s)}
			effect := l.on(leaseEvent(ev))
			return int(l.state), effect
		})
	})
}

// everyCell applies each event of a table in each state, and compares the effect with the text
// want. apply returns the next state, and whether the event had an effect.
func everyCell(t *testing.T, table table, want string, apply func(s, ev int) (int, bool)) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(want), "\n")
	if head := strings.Fields(lines[0])[1:]; !slices.Equal(head, table.events) {
		t.Fatalf("the events are %v, want %v", table.events, head)
	}
	rows := lines[2:]
	if len(rows) != len(table.states) {
		t.Fatalf("the code has %d states, want %d", len(table.states), len(rows))
	}
	for s, row := range rows {
		cells := strings.Fields(row)
		if cells[0] != table.states[s] {
			t.Errorf("state %d is %s, want %s", s, table.states[s], cells[0])
		}
		for ev, cell := range cells[1:] {
			next, effect := apply(s, ev)
			got := table.states[next]
			if !effect && next == s {
				got = "."
			}
			if got != cell {
				t.Errorf("%s in %s: now %s, want %s", table.events[ev], cells[0], got, cell)
			}
		}
	}
}

func everyCellOfAnAcquisition(t *testing.T) {
	t.Parallel()
	wanted := wantedStates(t)
	for s := range state(states) {
		for ev := range event(events) {
			before := wanted[s.String()]
			want := before.next[ev]
			effect := want != "."
			if !effect {
				want = s.String()
			}
			e := &Engine{live: before.live, open: before.open, freed: before.freed}
			a := &acquisition{engine: e, lock: &Lock{Settings: &Settings{}}, state: s}
			heap.Push(&e.due, a)
			if got := a.on(ev); got != effect || a.state.String() != want {
				t.Errorf("%v in %v: now %v (effect: %t), want %s (%t)",
					ev, s, a.state, got, want, effect)
			}
			after := wanted[want]
			if e.live != after.live || e.open != after.open || e.freed != after.freed {
				t.Errorf("%v in %v: %d live, %d open and %d freed, want %d, %d and %d",
					ev, s, e.live, e.open, e.freed, after.live, after.open, after.freed)
			}
			if a.live() != (e.live == 1) {
				t.Errorf("%v in %v: live() is %t", ev, s, a.live())
			}
			untimed := a.state == releasing || a.state == repeating || a.state == gone
			if scheduled := len(e.due) == 1; effect && scheduled == untimed {
				t.Errorf("%v in %v: now %v, and in the schedule: %t", ev, s, a.state, scheduled)
			}
		}
	}
}

// TestEveryStateIsReached checks that events lead from the first state to each state, and from each
// state to the last one. No event leads out of the last state.
func TestEveryStateIsReached(t *testing.T) {
	t.Parallel()
	for s := range state(states) {
		if !reachable(requesting)[s] {
			t.Errorf("%v is never reached", s)
		}
		if !reachable(s)[gone] {
			t.Errorf("%v never ends", s)
		}
	}
	if n := len(reachable(gone)); n != 1 {
		t.Errorf("gone leads to %d states", n-1)
	}
}

// reachable returns s and the states to which some sequence of events leads from s.
func reachable(s state) map[state]bool {
	reached := map[state]bool{s: true}
	for queue := []state{s}; len(queue) > 0; queue = queue[1:] {
		for _, next := range changes[queue[0]] {
			if next != none && !reached[next] {
				reached[next] = true
				queue = append(queue, next)
			}
		}
	}
	return reached
}
