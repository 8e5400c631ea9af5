//go:build unix

package campaign

import (
	"math/rand/v2"
	"time"
)

// ElectionWorkers is the number of processes in an election. Each is one candidate.
const ElectionWorkers = 5

// aims is the number of attempts to hit a process while it leads. A leader that resigns at the same
// time escapes.
const aims = 5

// ElectionFigures are the numbers of an election whose leaders are killed.
type ElectionFigures struct {
	Version    string        `json:"version"`
	Seed       uint64        `json:"seed"`
	Date       string        `json:"date"`
	TTL        time.Duration `json:"ttl"`
	Terms      int           `json:"terms"`      // calls of lead
	Violations int           `json:"violations"` // of all rules
	Gap        Times         `json:"gap"`        // from a kill to the next call of lead
}

// withElection adapts s to an election: the kills are the only faults, one after the other, and
// each has the time for the next leader.
func (s Settings) withElection() Settings {
	s.Workers, s.Locks, s.Kinds = ElectionWorkers, 1, []LockKind{Leader}
	s.Faults = map[Kind]Class{Kill: X}
	s.Round = time.Duration(s.Elections) * s.recovery()
	return s
}

// electionPlan returns the schedule of an election. Its kills are in the lane that has all workers.
func (s Settings) electionPlan() Plan {
	random := rand.New(rand.NewPCG(s.Seed, hash(s.Server)))
	r := Round{Class: X, Kind: Leader}
	for i := range s.Elections {
		r.Faults = append(r.Faults, Injection{
			Kind: Kill, Lane: lanes, Begin: time.Duration(i+1) * s.recovery(),
			N: random.IntN(1 << 16),
		})
	}
	return Plan{Seed: s.Seed, Rounds: []Round{r}}
}

// election checks that each leader that was killed was followed by another one, and adds the
// figures.
func (j judge) election() {
	f, wanted := &j.verdict.Figures, j.Settings.Elections
	if wanted == 0 {
		return
	}
	if n := f.KillToGrant.N; n < wanted && !j.Cut {
		j.violation(RuleD, j.Ended, "", "%d of %d leaders were killed and followed", n, wanted)
	}
	f.Election = &ElectionFigures{
		Version: f.Version, Seed: f.Seed, Date: f.Date, TTL: f.TTL, Terms: f.Grants,
		Violations: len(j.verdict.Violations), Gap: f.KillToGrant,
	}
}
