package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend/measure"
)

// Config is the size of a run. Zero values mean the defaults.
type Config struct {
	// Prefix comes before the name of each lock. The default is dlock-bench/, a
	// random word, and a slash.
	Prefix string
	// Duration is the time to measure each row, by default 1 s. If the subject has a floor, the
	// floor takes half of it. A run takes somewhat longer than the product of rows and Duration.
	Duration time.Duration
	// Contenders are the numbers of goroutines that contend in W3, by default 2, 16 and 128.
	Contenders []int
	// Waiters is the number of waiters in W5, by default 1,000. Locks is the number of held locks
	// in W6, by default 10,000.
	Waiters, Locks int
	// Progress is called during the run, from one goroutine. It must not block.
	Progress func(Progress)
}

// Progress is how far a run has come.
type Progress struct {
	Workload, Subject string
	Done              float64 // 0 to 1
}

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, "dlock-bench/"+strings.ToLower(rand.Text()[:8])+"/")
	c.Duration = cmp.Or(c.Duration, time.Second)
	c.Waiters, c.Locks = cmp.Or(c.Waiters, 1000), cmp.Or(c.Locks, 10_000)
	if len(c.Contenders) == 0 {
		c.Contenders = []int{2, 16, 128}
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	return c
}

// Run runs the workloads one after the other, each on all subjects in turns, and returns a
// Result for each row. If a subject fails, its row has the error, and the other subjects go
// on. When ctx ends, Run ends soon, frees its locks, and returns the results so far. The names
// of the subjects must differ.
func Run(ctx context.Context, config Config, workloads []Workload, subjects ...Subject) []Result {
	r := &run{
		Config: config.withDefaults(), subjects: subjects,
		results: []Result{}, used: make(map[string]map[string]bool),
	}
	for _, s := range subjects {
		r.used[s.Name] = make(map[string]bool)
	}
	for _, w := range workloads {
		for _, s := range subjects {
			r.planned += w.cost(r, s)
		}
	}
	for _, w := range workloads {
		if ctx.Err() == nil {
			r.workload = w.ID
			w.measure(ctx, r)
		}
	}
	r.sweep(context.WithoutCancel(ctx))
	return r.results
}

// sweepBatch is the maximum number of names that one request sweeps.
const sweepBatch = 1000

// sweepTimeout limits the sweep of one subject. Data that remains then is left to
// expire, if it has a TTL.
const sweepTimeout = 10 * time.Second

// sweep removes the data that servers keep for free locks.
func (r *run) sweep(ctx context.Context) {
	for _, s := range r.subjects {
		ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
		defer cancel()
		conn, err := aside(ctx, s)
		if err != nil {
			continue
		}
		defer conn.Close()
		sweeper, ok := conn.(measure.Sweeper)
		names := slices.Collect(maps.Keys(r.used[s.Name]))
		for i := range names {
			names[i] = s.Prefix + names[i]
		}
		for batch := range slices.Chunk(names, sweepBatch) {
			if !ok || sweeper.Sweep(ctx, batch) != nil {
				break
			}
		}
	}
}

// run is the state of a Run.
type run struct {
	Config
	subjects      []Subject
	results       []Result
	workload      string
	planned, done time.Duration
	used          map[string]map[string]bool // names, by subject
}

// step reports that a part of the plan is done.
func (r *run) step(s Subject, d time.Duration) {
	r.done += d
	r.Progress(Progress{r.workload, s.Name, min(1, float64(r.done)/float64(r.planned))})
}

// names returns n names of a subject for a part of the run. Different parts and different subjects
// have no name in common.
func (r *run) names(s Subject, part string, n int) []string {
	ordinal := slices.IndexFunc(r.subjects, func(other Subject) bool {
		return other.Name == s.Name
	})
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%d/%s/%d", r.Prefix, ordinal, part, i)
		r.used[s.Name][names[i]] = true
	}
	return names
}

// same returns the names of n contenders for one name.
func same(name string, n int) [][]string { return slices.Repeat([][]string{{name}}, n) }

// deal gives each of n contenders its share of the names.
func deal(names []string, n int) [][]string {
	shares := make([][]string, n)
	for i, name := range names {
		shares[i%n] = append(shares[i%n], name)
	}
	return shares
}

// fail adds a row that could not be measured, or not completely.
func (r *run) fail(row Result, err error) {
	row.Error = oneLine(err)
	r.results = append(r.results, row)
}

func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(c rune) bool { return c == '\n' || c == '\r' })
	return strings.Join(lines, "; ")
}

// aside opens the connection for measurements, if the subject has one.
func aside(ctx context.Context, s Subject) (io.Closer, error) {
	if s.Server == nil {
		return nothing{}, nil
	}
	return s.Server(ctx)
}

// nothing is the connection of a subject without Server.
type nothing struct{}

func (nothing) Close() error { return nil }

// meter reads a server's counters.
type meter struct {
	io.Closer
	counters measure.Counters // nil if they are unknown
	own      int64            // the commands of one reading
}

func newMeter(ctx context.Context, s Subject) (*meter, error) {
	conn, err := aside(ctx, s)
	if err != nil {
		return nil, err
	}
	m := &meter{Closer: conn}
	m.counters, _ = conn.(measure.Counters)
	first, second := m.read(ctx), m.read(ctx)
	m.own = second.Commands - first.Commands
	return m, nil
}

// read returns the counters of the server; -1 means unknown.
func (m *meter) read(ctx context.Context) measure.Counts {
	unknown := measure.Counts{Commands: -1, Connections: -1}
	if m.counters == nil {
		return unknown
	}
	ctx, cancel := context.WithTimeout(ctx, leave)
	defer cancel()
	counts, err := m.counters.Counters(ctx)
	if err != nil {
		return unknown
	}
	return counts
}

// A server is quiet if the number of its connections stays the same for quietTime. quietTimeout
// limits how long awaitQuiet waits for that.
const quietTime, quietTimeout = time.Second, time.Minute

// awaitQuiet waits until the server is quiet: a thousand connections take some seconds to begin and
// to end. It does not wait if their number is unknown.
func (m *meter) awaitQuiet(ctx context.Context) {
	if m.counters == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, quietTimeout)
	defer cancel()
	for before, changes := m.read(ctx).Connections, true; changes && ctx.Err() == nil; {
		pause(ctx, quietTime)
		now := m.read(ctx).Connections
		before, changes = now, now != before
	}
}

// commands returns the number of commands between two readings over n, or nil if it is unknown.
func (m *meter) commands(from, to measure.Counts, n float64) *float64 {
	if from.Commands < 0 || to.Commands < 0 {
		return nil
	}
	return new(float64(max(0, to.Commands-from.Commands-m.own)) / n)
}

// connections returns how many more connections the second reading has, or nil if that is unknown.
func (m *meter) connections(from, to measure.Counts) *float64 {
	if from.Connections < 0 || to.Connections < 0 {
		return nil
	}
	return new(float64(to.Connections - from.Connections))
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
