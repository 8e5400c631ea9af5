package conformance

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/lag"
)

// TB is what a case needs of a test. *testing.T and *testing.B are one; another
// implementation ends the goroutine of the case in Fatalf and Skipf, and calls
// what was given to Cleanup, last first, when the case has returned or ended.
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

// Harness is one case's way to the server. A backend that has no server and no
// connection, and so nothing that could be cut or restarted, says so with a method
// NoServer() string that returns the reason; the cases that need [Faults] do not
// apply to it. One whose server is others' too says with a method Prefix() string what
// the names of all locks shall begin with, in at most 100 bytes; nothing else is touched.
type Harness interface {
	// Driver opens a new connection to the same server: a new process. The case
	// closes it. ctx bounds the opening.
	Driver(ctx context.Context) (backend.Driver, error)
	// Close is called when all drivers are closed. The server may live on.
	Close()
}

// HarnessMaker makes a Harness, once per observation of a case, and once more for the probe of the
// observation. The probe sends the same server some ten requests a second, and so measures for how long the server
// stands still. It calls t.Fatalf where there is no server.
type HarnessMaker func(t TB) Harness

// Faults is implemented by a Harness that can do harm. Cut and DropReply concern
// the connections of this Harness alone, those that are open and those that are to come;
// Pause and Restart concern the server: no other case runs meanwhile.
type Faults interface {
	// Cut makes a black hole of the network: nothing arrives, in either direction,
	// and no connection is closed. heal makes it whole again.
	Cut(t TB) (heal func())
	// DropReply loses the nth answer of the server from now on, 1 being the next:
	// the request arrives, the answer does not. What becomes of the connection then is
	// up to the Harness.
	DropReply(t TB, nth int)
	// Pause stops the server until resume. Its clock goes on.
	Pause(t TB) (resume func())
	// Restart ends the server without warning, starts it again with the data that
	// it keeps, and returns when it answers.
	Restart(t TB)
}

// Case is one promise.
type Case struct {
	Name    string
	Promise string // the sentence that is checked
	Faults  bool   // needs a Harness that is a Faults
	Alone   bool   // no other case may run meanwhile: it stops the server, or counts what the process uses and has no Faults

	run func(f *fixture)
}

// countsProcess reports whether no other test of the process may run meanwhile.
func (c Case) countsProcess() bool { return c.Alone && !c.Faults }

// Cases returns all cases: first those that count what the process uses, then those that stop the server, then the others.
func Cases() []Case {
	var counting, stopping, others []Case
	for _, cases := range [][]Case{
		acquireCases, exclusionCases, fenceCases, waitingCases, handoffCases, renewalCases, lossCases, releaseCases,
		cancelCases, faultCases, nameCases, inspectCases, capabilityCases, leaseCases, measureCases,
		orderCases, apartCases, foreignCases, queueCases, repeatCases, secretCases,
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

// Run runs all cases as subtests: first those that count what the process uses, one by one. Then it
// calls t.Parallel, which the caller must not do. The cases that stop the server follow, one by one,
// and then the others in parallel. So no other test may use the server at the same time. Cases that
// do not apply, for want of a server, are counted in the log and are no subtests. Other cases that do
// not apply are skipped; with [Inapplicable] the test states which.
func Run(t *testing.T, mk HarnessMaker, opts ...Option) {
	t.Helper()
	s := settingsOf(t, opts)
	reason := noServer(t, mk)
	ran, inapplicable := 0, 0
	parallel := sync.OnceFunc(t.Parallel)
	for _, c := range Cases() {
		if !c.countsProcess() {
			parallel()
		}
		if c.Faults && reason != "" {
			inapplicable++
			continue
		}
		ran++
		t.Run(c.Name, func(t *testing.T) {
			if !c.Alone {
				t.Parallel()
			}
			lag.Calm(t.Context())
			c.runAs(s.scope(c), t, mk)
		})
	}
	t.Logf("conformance: %d cases", ran)
	if inapplicable > 0 {
		t.Logf("conformance: %d more cases do not apply: %s", inapplicable, reason)
	}
}

// noServer returns why there is nothing to cut, "" if there is.
func noServer(t TB, mk HarnessMaker) string {
	h := mk(t)
	defer h.Close()
	return serverless(h)
}

// prefixOf returns what the names of all locks begin with.
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

// Run runs the case alone. It fails t if the promise is broken, and also if something
// is left behind: a goroutine, or a lock on a server that can list them. If the Context
// of t ends while the case runs, the case soon ends too, whatever it has found.
//
// An observation that fails after the machine or the server stood still, for longer than its terms
// allow, is void; so is one to which the server let no client in. It is repeated, with a new Harness and longer terms, five times at most, and
// counted in the log, or by the method Void(reason string) of t if there is one. A second holder is
// never void.
func (c Case) Run(t TB, mk HarnessMaker) {
	t.Helper()
	c.runAs(unknown, t, mk)
}

// runAs runs the case. It must apply, or not, as the scope says.
func (c Case) runAs(s scope, t TB, mk HarnessMaker) {
	t.Helper()
	meter := lag.Start()
	defer meter.Stop()
	c.observe(s, t, mk, meter).conclude(c)
}

// runOnce runs one observation of the case.
func (c Case) runOnce(o *observation, mk HarnessMaker) {
	h := mk(o)
	faults, ok := h.(Faults)
	if c.Faults && !ok {
		h.Close()
		if reason := serverless(h); reason != "" {
			o.Skipf("%s%s", inapplicablePrefix, reason)
		}
		o.Fatalf("the Harness has no Faults, so this case cannot run, and nothing proves the promise")
	}
	if ok {
		faults = watched{Faults: faults, pulse: &o.pulse}
	}
	f := newFixture(o, h, faults)
	// No longer than that: the Context of a *testing.T ends before its cleanup begins.
	defer context.AfterFunc(o.Context(), f.end)()
	c.run(f)
}
