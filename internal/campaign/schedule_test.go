//go:build unix

package campaign

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

func settings(seed uint64) Settings {
	s := Settings{
		Server: "redis", TTL: 2 * time.Second, Duration: 10 * time.Minute, Seed: seed,
		Fair: true, Faults: make(map[Kind]Class),
	}
	for _, k := range kinds {
		s.Faults[k] = X
	}
	s.Faults[Break], s.Faults[Wipe] = F, U
	return s
}

// TestPlanFollowsFromTheSeed checks that the same seed gives the same schedule, and another seed
// another schedule.
func TestPlanFollowsFromTheSeed(t *testing.T) {
	if !reflect.DeepEqual(NewPlan(settings(3)), NewPlan(settings(3))) {
		t.Error("one seed gives two schedules")
	}
	if reflect.DeepEqual(NewPlan(settings(3)).Rounds, NewPlan(settings(4)).Rounds) {
		t.Error("two seeds give one schedule")
	}
}

// TestPlanHasEveryFault checks that each fault is in rounds of its class, often enough, and never
// at the same time as another fault of its lane.
func TestPlanHasEveryFault(t *testing.T) {
	s := settings(1)
	count := make(map[Kind]int)
	for _, r := range NewPlan(s).Rounds {
		var until [lanes + 1]time.Duration
		for _, in := range r.Faults {
			count[in.Kind]++
			if (s.Faults[in.Kind] == X) != (r.Class == X) {
				t.Errorf("%s in a round of class %s", in.Kind, r.Class)
			}
			if in.Kind.ofWorker() != (in.Lane < lanes) || in.Begin < until[in.Lane] {
				t.Errorf("%+v begins in a wrong lane, or before %v", in, until[in.Lane])
			}
			until[in.Lane] = in.Begin + in.For
		}
	}
	for k := range s.Faults {
		if count[k] < minInjected {
			t.Errorf("%s occurs %d times, want at least 3", k, count[k])
		}
	}
}

// TestShortPlan checks that the shortest campaign has one round with faults of class X and one with
// other faults.
func TestShortPlan(t *testing.T) {
	s := settings(1)
	s.Duration = time.Second
	plan := NewPlan(s)
	if len(plan.Rounds) != 2 || plan.Rounds[0].Class != X || plan.Rounds[1].Class != F {
		t.Errorf("the shortest campaign has %d rounds", len(plan.Rounds))
	}
}

// TestPlanHasEveryKindOfLock checks that even the shortest campaign has a round of each kind of
// lock.
func TestPlanHasEveryKindOfLock(t *testing.T) {
	s := settings(1)
	s.Duration, s.Kinds = time.Second, LockKinds()
	missing := LockKinds()
	for _, r := range NewPlan(s).Rounds {
		missing = slices.DeleteFunc(missing, func(k LockKind) bool { return k == r.Kind })
	}
	if len(missing) > 0 {
		t.Errorf("no round has the kinds %v", missing)
	}
}

func TestParseLockKinds(t *testing.T) {
	got, err := ParseLockKinds("leader,mutex,leader")
	if err != nil || !reflect.DeepEqual(got, []LockKind{Leader, Mutex}) {
		t.Errorf("ParseLockKinds = %v, %v", got, err)
	}
	if got, err = ParseLockKinds(""); err != nil || len(got) != len(locks) {
		t.Errorf("ParseLockKinds without kinds = %v, %v", got, err)
	}
	if _, err := ParseLockKinds("mutex,barrier"); err == nil {
		t.Error("an unknown kind is accepted")
	}
}

func TestParseKinds(t *testing.T) {
	got, err := ParseKinds("stop,cut")
	if err != nil || !reflect.DeepEqual(got, []Kind{Stop, Cut}) {
		t.Errorf("ParseKinds = %v, %v", got, err)
	}
	if _, err := ParseKinds("stop,earthquake"); err == nil {
		t.Error("an unknown fault is accepted")
	}
}

// TestElectionPlan checks that an election has one kill after the other, and no other fault.
func TestElectionPlan(t *testing.T) {
	s := settings(1)
	s.Elections = 20
	plan := NewPlan(s)
	if len(plan.Rounds) != 1 || plan.Rounds[0].Kind != Leader ||
		len(plan.Rounds[0].Faults) != s.Elections {
		t.Fatalf("the schedule is %+v", plan)
	}
	begin := time.Duration(0)
	for _, in := range plan.Rounds[0].Faults {
		if in.Kind != Kill || in.Lane != lanes || in.Begin-begin < s.TTL {
			t.Errorf("%+v follows a kill at %v", in, begin)
		}
		begin = in.Begin
	}
	if s = s.withDefaults(); s.Workers != ElectionWorkers || begin > s.Round {
		t.Errorf("the settings are %+v", s)
	}
}
