package bench

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Workload is one thing to measure.
type Workload struct {
	ID          string // W1 to W6, or recovery
	Title       string
	Description string // in a sentence or two

	measure func(context.Context, *run)
	cost    func(*run, Subject) time.Duration // nominal
}

// Workloads returns all of them, in their order.
func Workloads() []Workload {
	return []Workload{
		{
			"W1", "One lock, uncontended",
			"One goroutine locks and unlocks one name that nobody else wants: the latency of the pair, beside the floor's.",
			uncontended, func(r *run, _ Subject) time.Duration { return r.Duration },
		},
		{
			"W2", "Many locks, uncontended",
			fmt.Sprintf("%d goroutines lock and unlock %d names, none of which two of them want at once: pairs per second, beside the floor's.", manyWorkers, manyNames),
			many, func(r *run, _ Subject) time.Duration { return r.Duration },
		},
		{
			"W3", "One lock, contended inside a process",
			"The goroutines of one process contend for one name and hold it for no time, without and with the hand-off inside of the process: changes of holder, and how long a hand-off takes.",
			contended, costOfContended,
		},
		{
			"W4", "One lock, contended across processes",
			fmt.Sprintf("The same with %d processes of %d goroutines.", crews, crewSize),
			crossed, func(r *run, s Subject) time.Duration { return r.Duration * time.Duration(len(handoffs(s))) },
		},
		{
			"W5", "The cost of waiting",
			"Many goroutines of one process wait for a name that another process holds: what that costs the server and the process, and how long it takes until all had their turn.",
			waiting, func(r *run, _ Subject) time.Duration { return r.Duration },
		},
		{
			"W6", "The cost of holding",
			"One process holds many locks, which are renewed: what that costs the server and the process, and whether any is lost.",
			holding, func(r *run, _ Subject) time.Duration { return r.holdTime() },
		},
		{
			"recovery", "Recovery from kill -9",
			fmt.Sprintf("A process that holds a lock with a TTL of %v, or the nearest that can be had, is killed: how long until a waiter has the lock. Where locks live with a session or a process, it is that which must end.", recoveryTTL),
			recovery, costOfRecovery,
		},
	}
}

// Find returns the workload of that ID, in whatever case.
func Find(id string) (Workload, bool) {
	for _, w := range Workloads() {
		if strings.EqualFold(w.ID, id) {
			return w, true
		}
	}
	return Workload{}, false
}

// handoffs are the settings of the hand-off inside of a process that make a difference.
func handoffs(s Subject) []bool {
	if s.Handoff {
		return []bool{false, true}
	}
	return []bool{false}
}
