//go:build unix

package campaign

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// lanes is the number of faults of workers that can last at the same time. No worker is a victim in
// two lanes. One more lane is for faults of the server.
const lanes = 3

// DefaultWorkers is the default number of processes in a campaign.
const DefaultWorkers = 2 * lanes

// Plan is a schedule of faults. The same Settings and seed give the same Plan.
type Plan struct {
	Seed   uint64  `json:"seed"`
	Rounds []Round `json:"rounds"`
}

// Round is a part of a campaign with lock names that no other part uses.
type Round struct {
	Class  Class       `json:"class"`
	Kind   LockKind    `json:"kind"`
	Fair   bool        `json:"fair"`
	Faults []Injection `json:"faults"`
}

// Injection is one fault of a round.
type Injection struct {
	Kind  Kind          `json:"kind"`
	Lane  int           `json:"lane"`
	Begin time.Duration `json:"begin"` // from the beginning of the round
	For   time.Duration `json:"for"`
	N     int           `json:"n"` // chooses the victim, the lock, and the reply to lose
}

// Settings describe a campaign.
type Settings struct {
	Server   string
	TTL      time.Duration
	Expiry   time.Duration // the longest time from a holder's death to the release by the server
	Duration time.Duration
	Round    time.Duration // the phase of faults of a round; 0: 15 s
	Workers  int           // processes; 0: 6
	Locks    int           // names per round; 0: 2
	Fair     bool          // every second round uses fair locks
	Shared   bool          // the workers run in the engine's process: goroutines are not counted
	Seed     uint64
	Faults   map[Kind]Class
	Kinds    []LockKind // empty: mutexes
	// Elections, if not 0, replaces the random schedule by an election among [ElectionWorkers]
	// processes, whose leader is killed that many times. Duration, Round, Workers, Locks, Fair,
	// Faults and Kinds are ignored.
	Elections int
}

func (s Settings) withDefaults() Settings {
	s.Round = cmp.Or(s.Round, 15*time.Second)
	s.Workers = cmp.Or(s.Workers, DefaultWorkers)
	s.Locks = cmp.Or(s.Locks, 2)
	s.Expiry = cmp.Or(s.Expiry, s.TTL)
	if len(s.Kinds) == 0 {
		s.Kinds = []LockKind{Mutex}
	}
	if s.Elections > 0 {
		return s.withElection()
	}
	return s
}

// recovery is the time for which the workers continue after the faults of a round. The lock must
// recover within this time.
func (s Settings) recovery() time.Duration { return s.Expiry + bound + s.TTL/2 }

// drain is the time in which the waiters at the end of a round get the lock, one after the other.
// The workers make no new attempts then, so that a lost wake-up leaves a gap.
func (s Settings) drain() time.Duration { return s.Expiry + 2*bound + s.TTL/2 }

// NewPlan returns a random schedule for s. Two rounds of class X are followed by a round of the
// other classes, if the server has faults of these classes. One of two rounds of class X has no
// faults of the server. Each kind of lock has at least one round.
func NewPlan(s Settings) Plan {
	s = s.withDefaults()
	if s.Elections > 0 {
		return s.electionPlan()
	}
	p := planner{Settings: s, random: rand.New(rand.NewPCG(s.Seed, hash(s.Server)))}
	decks := []*deck[Kind]{p.deck(X, true), p.deck(X, false), p.deck(F, true), p.deck(F, false)}
	lockKinds := deck[LockKind]{cards: s.Kinds}
	rounds := max(len(s.Kinds), int(s.Duration/(s.Round+s.recovery()+s.drain())))
	if decks[3].empty() && decks[2].empty() {
		decks = decks[:2]
	} else {
		rounds = max(2, rounds)
	}
	plan := Plan{Seed: s.Seed}
	quiet := false
	for i := range rounds {
		r := Round{Class: X, Kind: lockKinds.draw(p.random), Fair: s.Fair && i%2 == 1}
		workers, server := decks[0], decks[1]
		if len(decks) > 2 && (i%3 == 2 || i == 1 && rounds == 2) {
			r.Class, workers, server = F, decks[2], decks[3]
		}
		for lane := range lanes {
			p.fill(&r, workers, lane)
		}
		if r.Class != X || !quiet {
			p.fill(&r, server, lanes)
		}
		quiet = r.Class == X && !quiet && !workers.empty()
		slices.SortStableFunc(r.Faults, func(a, b Injection) int {
			return cmp.Compare(a.Begin, b.Begin)
		})
		plan.Rounds = append(plan.Rounds, r)
	}
	return plan
}

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

type planner struct {
	Settings
	random *rand.Rand
}

// deck deals its cards at random, each equally often.
type deck[K Kind | LockKind] struct {
	cards, left []K
}

// deck returns the faults of a class, either for the workers' lanes or for the server's lane.
func (p *planner) deck(c Class, ofWorker bool) *deck[Kind] {
	d := &deck[Kind]{}
	for _, k := range slices.Sorted(maps.Keys(p.Faults)) {
		if (p.Faults[k] == X) == (c == X) && k.ofWorker() == ofWorker {
			d.cards = append(d.cards, k)
		}
	}
	return d
}

func (d *deck[K]) empty() bool { return len(d.cards) == 0 }

func (d *deck[K]) draw(random *rand.Rand) K {
	if len(d.left) == 0 {
		d.left = slices.Clone(d.cards)
		random.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	k := d.left[0]
	d.left = d.left[1:]
	return k
}

// fill adds faults to one lane of r, one after the other, with quiet times between them.
func (p *planner) fill(r *Round, d *deck[Kind], lane int) {
	if d.empty() {
		return
	}
	for at := p.quiet(lane); ; {
		k := d.draw(p.random)
		in := Injection{
			Kind: k, Lane: lane, Begin: at, For: k.length(p.TTL), N: p.random.IntN(1 << 16),
		}
		if at += in.For + p.quiet(lane); in.Begin+in.For > p.Round && len(r.Faults) > 0 {
			d.left = append(d.left, k) // for the next round
			return
		}
		r.Faults = append(r.Faults, in)
	}
}

// quiet returns the time before the next fault of a lane. Faults of the server affect all workers,
// so they are rarer.
func (p *planner) quiet(lane int) time.Duration {
	least := p.TTL / 10
	if lane == lanes {
		least = p.TTL / 2
	}
	return least + time.Duration(p.random.Int64N(int64(p.TTL/2)))
}
