package bench

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Workload is one thing to measure.
type Workload struct {
	ID          string // W1 to W10, or recovery
	Title       string
	Description string // in a sentence or two

	measure func(context.Context, *run)
	cost    func(*run, Subject) time.Duration // the planned time
}

// Workloads returns all workloads, in their order.
func Workloads() []Workload {
	return []Workload{
		{
			"W1", "One lock, uncontended",
			"One goroutine locks and unlocks one uncontended name: " +
				"the latency of the pair, and of the floor.",
			uncontended, func(r *run, _ Subject) time.Duration { return r.Duration },
		},
		{
			"W2", "Many locks, uncontended",
			fmt.Sprintf("%d goroutines lock and unlock %d names, and no two of them use the same "+
				"name: pairs per second, and floors per second.", manyWorkers, manyNames),
			many, func(r *run, _ Subject) time.Duration { return r.Duration },
		},
		{
			"W3", "One lock, contended inside a process",
			"The goroutines of one process contend for one name and hold it for no time, " +
				"without and with hand-offs inside the process: " +
				"changes of holder, and the time of a hand-off.",
			contended, costOfContended,
		},
		{
			"W4", "One lock, contended across processes",
			fmt.Sprintf("The same with %d processes of %d goroutines.", crews, crewSize),
			crossed, func(r *run, s Subject) time.Duration {
				return r.Duration * time.Duration(len(handoffs(s)))
			},
		},
		{
			"W5", "The cost of waiting",
			"Many goroutines of one process wait for a name that another process holds: " +
				"the cost for the server and the process, and the time until all had their turn.",
			waiting, func(r *run, _ Subject) time.Duration { return r.Duration },
		},
		{
			"W6", "The cost of holding",
			"One process holds many locks, which are renewed: " +
				"the cost for the server and the process, and the number of lost locks.",
			holding, func(r *run, _ Subject) time.Duration { return r.holdTime() },
		},
		{
			"W7", "Readers of one lock",
			fmt.Sprintf("%d processes of %d readers lock one name, without a writer: pairs per "+
				"second, and pairs of a mutex with as many contenders. "+
				"The aim is × MUTEX 0.05. Then one writer locks among the readers: how long it "+
				"waits. The aim is a fifth of the TTL and a request.", crews, readersEach),
			readers, costOf(3),
		},
		{
			"W8", "Semaphore",
			fmt.Sprintf("%d processes of %d goroutines contend for the %d permits of one "+
				"semaphore: changes of holder, and changes of a mutex with as many contenders. "+
				"The aim is × MUTEX 0.25.", crews, permitContenders, permits),
			semaphore, costOf(2),
		},
		{
			"W9", "Several locks at once",
			fmt.Sprintf("One goroutine acquires %d uncontended names with LockAll and frees them: "+
				"the latency, and the latency of a pair of one name. "+
				"The aim is × MUTEX 1.5.", severalNames),
			lockAll, costOf(2),
		},
		{
			"W10", "Election after a death",
			fmt.Sprintf("A leader is killed, or stops its renewals if the subject has no "+
				"processes: the time until the next leader's function is called. "+
				"The TTL is %v, as in the recovery. The aim is the TTL and 100 ms.", recoveryTTL),
			election, costOfElection,
		},
		{
			"recovery", "Recovery from kill -9",
			fmt.Sprintf("A process that holds a lock is killed: the time until a waiter has it. "+
				"The TTL is %v, or the nearest that the backend supports. If locks live with a "+
				"session or a process, that session or process must end first.", recoveryTTL),
			recovery, costOfRecovery,
		},
	}
}

// Find returns the workload with this ID, in upper or lower case. It returns
// false if there is none.
func Find(id string) (Workload, bool) {
	for _, w := range Workloads() {
		if strings.EqualFold(w.ID, id) {
			return w, true
		}
	}
	return Workload{}, false
}

// handoffs returns the values of Settings.Handoff that make a difference.
func handoffs(s Subject) []bool {
	if s.Handoff {
		return []bool{false, true}
	}
	return []bool{false}
}
