package conformance

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/lag"
)

// TB is the part of a test that a case needs. *testing.T and *testing.B implement it. In any other
// implementation, Fatalf and Skipf end the goroutine of the case. When the case has returned or
// ended, the implementation calls the functions that were given to Cleanup, last first.
type TB interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Failed() bool
	Cleanup(func())
	Context() context.Context
	TempDir() string
}

// Harness connects one case to the server. It may have two optional methods:
//
//   - NoServer() string, if the backend has no server and no connection, and so nothing to cut or
//     to restart. It returns this reason, and the cases that need [Faults] do not apply.
//   - Prefix() string, if other programs use the same server. The names of all locks then begin
//     with the prefix, which has at most 100 bytes, and the cases change nothing else.
type Harness interface {
	// Driver opens a new connection to the same server, as a new process does. The case closes it.
	// ctx limits the opening.
	Driver(ctx context.Context) (backend.Driver, error)
	// Close is called when all drivers are closed. The server may keep running.
	Close()
}

// HarnessMaker makes a Harness. It is called for each observation of a case, and again for the
// probe of the observation. The probe sends about ten requests per second to the same server, to
// measure how long the server stands still. A HarnessMaker calls t.Fatalf if there is no server.
type HarnessMaker func(t TB) Harness

// Faults is implemented by a Harness that can break the network and stop the server. Cut and
// DropReply affect only the connections of this Harness, both open and future ones. Pause and
// Restart affect the server, so no other case runs at the same time.
type Faults interface {
	// Cut turns the network into a black hole: nothing arrives in either direction, and no
	// connection is closed. heal ends the cut.
	Cut(t TB) (heal func())
	// DropReply drops the nth answer of the server from now on; 1 is the next answer. The request
	// arrives, but its answer does not. The Harness decides whether it then closes the connection.
	DropReply(t TB, nth int)
	// Pause stops the server until resume is called. The server's clock continues.
	Pause(t TB) (resume func())
	// Restart kills the server without warning, starts it again with the data that it keeps, and
	// returns when it answers.
	Restart(t TB)
}

// Case checks one promise.
type Case struct {
	Name    string
	Promise string // the statement that the case checks
	Faults  bool   // the case needs a Harness that implements Faults
	// Mode is the kind of lock that the case needs, if not all backends have it. Run does not run
	// the case if Capabilities.Modes does not claim it.
	Mode backend.Mode
	// Move means the same for Capabilities.Move.
	Move bool
	// Combine means that the case needs a driver that is a backend.Combiner for any two keys.
	Combine bool
	// Alone means that no other case may run at the same time. With Faults, the case stops the
	// server. Without Faults, it counts the resources of the process.
	Alone bool

	run func(f *fixture)
}

// countsProcess reports whether the case counts the resources of the process, so that no other test
// of the process may run at the same time.
func (c Case) countsProcess() bool { return c.Alone && !c.Faults }

// Cases returns all cases: first the cases that count the resources of the process, then the cases
// that stop the server, then the rest.
func Cases() []Case {
	var counting, stopping, others []Case
	for _, cases := range [][]Case{
		acquireCases, exclusionCases, fenceCases, waitingCases, handoffCases, renewalCases,
		lossCases, releaseCases, cancelCases, faultCases, nameCases, inspectCases, capabilityCases,
		leaseCases, measureCases, orderCases, apartCases, foreignCases, queueCases, repeatCases,
		secretCases, sharedCases, permitCases, crowdCases, downgradeCases, moveCases, allCases,
		combineCases, electCases, observeCases,
	} {
		for _, c := range cases {
			switch {
			case c.countsProcess():
				counting = append(counting, c)
			case c.Alone:
				stopping = append(stopping, c)
			default:
				others = append(others, c)
			}
		}
	}
	return slices.Concat(counting, stopping, others)
}

// Run runs all cases as subtests. First it runs the cases that count the resources of the process,
// one by one. Then it calls t.Parallel, so the caller must not. After that it runs the cases that
// stop the server, one by one, and finally the rest in parallel. No other test may use the server
// at the same time.
//
// If the backend has no server, the cases that need one are not subtests; Run logs their number. It
// skips other cases that do not apply. With [Inapplicable] the test states which cases these are.
func Run(t *testing.T, mk HarnessMaker, opts ...Option) {
	t.Helper()
	s := settingsOf(t, opts)
	l := limitsOf(t, mk)
	meter := lag.Start()
	t.Cleanup(meter.Stop)
	shared := gauges{meter, startProbe(t, mk, meter)}
	t.Cleanup(shared.probe.stop)
	ran, inapplicable := 0, 0
	parallel := sync.OnceFunc(t.Parallel)
	for _, c := range Cases() {
		if !c.countsProcess() {
			parallel()
		}
		if l.exclude(c) {
			inapplicable++
			continue
		}
		ran++
		t.Run(c.Name, func(t *testing.T) {
			if !c.Alone {
				t.Parallel()
			}
			lag.Calm(t.Context())
			c.runAs(s.scope(c), shared, t, mk)
		})
	}
	t.Logf("conformance: %d cases", ran)
	if inapplicable > 0 {
		t.Logf("conformance: %d more cases do not apply: modes without support: %s; move: %v; "+
			"several locks in one step: %v; %s", inapplicable, cmp.Or(l.unclaimed.String(), "none"),
			l.moves, l.combines, cmp.Or(l.reason, "the backend has a server"))
	}
}

// limits are the properties of a driver that exclude cases.
type limits struct {
	reason    string       // why the backend has no server; "": it has one
	unclaimed backend.Mode // the modes that the driver does not claim
	moves     bool         // it claims Capabilities.Move
	combines  bool         // it is a backend.Combiner for any two keys
}

// exclude reports whether c does not apply.
func (l *limits) exclude(c Case) bool {
	return c.Faults && l.reason != "" || c.Mode&l.unclaimed != 0 || c.Move && !l.moves ||
		c.Combine && !l.combines
}

// limitsOf opens a driver and returns its limits.
func limitsOf(t TB, mk HarnessMaker) *limits {
	t.Helper()
	h := mk(t)
	defer h.Close()
	d, err := h.Driver(t.Context())
	if err != nil {
		t.Fatalf("opening a driver: %v", err)
	}
	caps, combines := d.Capabilities(), combines(t.Context(), d, prefixOf(h))
	_ = d.Close()
	return &limits{
		reason:    serverless(h),
		unclaimed: (backend.Exclusive | backend.Shared | backend.Permit) &^ caps.Modes,
		moves:     caps.Move, combines: combines,
	}
}

// combines reports whether d can acquire several locks in one step. A driver for a cluster may be
// able to do so only for some keys.
func combines(ctx context.Context, d backend.Driver, prefix string) bool {
	c, ok := d.(backend.Combiner)
	if !ok {
		return false
	}
	ttl := max(time.Second, d.Capabilities().MinTTL)
	var reqs []*backend.Request
	for range 3 {
		reqs = append(reqs, &backend.Request{
			Key: prefix + "combines/" + newOwner(), Owner: newOwner(), TTL: ttl,
			Mode: backend.Exclusive,
		})
	}
	grants, _, err := c.AcquireAll(ctx, reqs)
	if err == nil {
		c.ReleaseAll(ctx, grants)
	}
	return !errors.Is(err, backend.ErrUnsupported)
}

// prefixOf returns the prefix of the names of all locks.
func prefixOf(h Harness) string {
	if p, ok := h.(interface{ Prefix() string }); ok {
		return p.Prefix()
	}
	return ""
}

func serverless(h Harness) string {
	if s, ok := h.(interface{ NoServer() string }); ok {
		return s.NoServer()
	}
	return ""
}

// Run runs the case alone. It fails t if the promise is broken. It also fails t if the case leaves
// a goroutine behind, or a lock on a server that can list locks. If the Context of t ends while the
// case runs, the case ends soon as well, whatever it has found.
//
// A failed observation is void if the machine or the server stood still for longer than its terms
// allow. It is also void if a connection or a request had no answer for more than a second, and no
// fault of the case was the reason. Run repeats a void observation with a new Harness and longer
// terms, up to five observations in total. It logs each void observation, or calls the method
// Void(reason string) of t if t has one. A second holder is never void.
func (c Case) Run(t TB, mk HarnessMaker) {
	t.Helper()
	if m, ok := t.(interface{ Meter() *lag.Meter }); ok && m.Meter() != nil {
		c.runAs(unknown, gauges{meter: m.Meter()}, t, mk)
		return
	}
	meter := lag.Start()
	defer meter.Stop()
	c.runAs(unknown, gauges{meter: meter}, t, mk)
}

// runAs runs the case, and checks that it applies or does not apply as s requires. A case that runs
// alone has its own probe, because it may stop the server.
func (c Case) runAs(s scope, g gauges, t TB, mk HarnessMaker) {
	t.Helper()
	if c.Alone {
		g.probe = nil
	}
	c.observe(s, g, t, mk).conclude(c)
}

// runOnce makes one observation of the case.
func (c Case) runOnce(o *observation, mk HarnessMaker) {
	h := mk(o)
	faults, ok := h.(Faults)
	if c.Faults && !ok {
		h.Close()
		if reason := serverless(h); reason != "" {
			o.Skipf("%s%s", inapplicablePrefix, reason)
		}
		o.Fatalf("the Harness has no Faults, so this case cannot run and its promise is unproven")
	}
	if ok {
		faults = watched{Faults: faults, pulse: &o.pulse}
	}
	f := newFixture(o, h, faults)
	// The Context of o ends the case only until c.run returns. The Context of a *testing.T ends
	// before its cleanup, which still needs f.ctx.
	defer context.AfterFunc(o.Context(), f.end)()
	if c.Mode&^f.caps.Modes != 0 {
		f.inapplicable("the backend has no mode %v", c.Mode)
	}
	if c.Move && !f.caps.Move {
		f.inapplicable("the backend cannot move a grant")
	}
	if c.Combine && !combines(f.ctx, f.driver(), f.prefix) {
		f.inapplicable("the backend cannot acquire several locks in one step")
	}
	c.run(f)
}
