package conformance

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/announce"
	"github.com/dlock-go/dlock/internal/lag"
)

// observations is the maximum number of observations of a case.
const observations = 5

// observation is one run of a case, and the TB of its fixture. It keeps the failures until the end,
// because an observation is void and repeated with longer terms if it failed while the machine
// stood still.
type observation struct {
	test TB
	pulse
	requests requests
	scope    scope
	scale    float64 // factor for the terms

	mu         sync.Mutex
	failures   []string
	conclusive bool // a standstill does not excuse one of the failures
	skipped    bool
	reason     string // of the skip
	helpers    map[string]bool
	cleanups   []func()
}

// observe runs the case until an observation is valid.
func (c Case) observe(s scope, g gauges, t TB, mk HarnessMaker) *observation {
	t.Helper()
	scale := 1.0
	for n := 1; ; n++ {
		o := &observation{test: t, scope: s, scale: scale, helpers: map[string]bool{}}
		<-async(func() { o.run(c, mk, g) })
		if !o.void() {
			return o
		}
		if n == observations {
			o.Errorf("%s, in the last of %d observations", o.standstill(), n)
			return o
		}
		o.reportVoid(t)
		scale = o.longer()
		lag.Calm(t.Context())
	}
}

// run runs the case and its cleanups on the calling goroutine, which the case may end.
func (o *observation) run(c Case, mk HarnessMaker, g gauges) {
	if g.probe == nil {
		g.probe = startProbe(o.test, mk, g.meter)
		defer g.probe.stop()
	}
	o.begin(g)
	defer o.end()
	defer o.clean()
	defer o.recover()
	c.runOnce(o, mk)
	if o.scope == doesNotApply && !o.Failed() {
		o.violation("the case applies, and the list of Inapplicable names it")
	}
}

func (o *observation) recover() {
	if r := recover(); r != nil {
		o.violation("panic: %v\n%s", r, debug.Stack())
	}
}

// clean calls the functions given to Cleanup, last first, even if one of them ends the goroutine.
func (o *observation) clean() {
	o.mu.Lock()
	last := len(o.cleanups) - 1
	if last < 0 {
		o.mu.Unlock()
		return
	}
	fn := o.cleanups[last]
	o.cleanups = o.cleanups[:last]
	o.mu.Unlock()
	defer o.clean()
	defer o.recover()
	fn()
}

// void reports whether a standstill of the machine or the server can explain all failures.
func (o *observation) void() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.failures) > 0 && !o.conclusive && o.Context().Err() == nil
}

// reportVoid reports a void observation to t.Void if t has that method, and otherwise to the log.
func (o *observation) reportVoid(t TB) {
	reason := o.standstill()
	if v, ok := t.(interface{ Void(reason string) }); ok {
		v.Void(reason)
		return
	}
	t.Logf("%s", announce.Void(reason))
}

// longer returns the scale of the next observation.
func (o *observation) longer() float64 {
	stood, term := o.measured()
	if term == 0 {
		return o.scale
	}
	return o.scale * max(2, float64(stood*allowance)/float64(term))
}

// conclude reports the result of the observation to the test. Goroutines of a failed case may
// still run.
func (o *observation) conclude(c Case) {
	o.test.Helper()
	o.mu.Lock()
	failures := slices.Clone(o.failures)
	o.mu.Unlock()
	for _, text := range failures {
		o.test.Errorf("%s", text)
	}
	switch sent := o.requests.since(o.begun); {
	case len(failures) > 0 && sent != "":
		o.test.Errorf("the last requests:%s", sent)
		fallthrough
	case len(failures) > 0:
		o.test.Logf("the promise: %s", c.Promise)
	case o.skipped:
		o.test.Skipf("%s", o.reason)
	}
}

// Name, Logf, Context and TempDir forward to the test.
func (o *observation) Name() string             { return o.test.Name() }
func (o *observation) Context() context.Context { return o.test.Context() }
func (o *observation) TempDir() string          { return o.test.TempDir() }
func (o *observation) Logf(format string, args ...any) {
	o.test.Helper()
	o.test.Logf(format, args...)
}

// Helper marks the caller as a helper, so that a failure names the line of the case.
func (o *observation) Helper() {
	var pcs [1]uintptr
	runtime.Callers(2, pcs[:])
	frame, _ := runtime.CallersFrames(pcs[:]).Next()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.helpers[frame.Function] = true
}

// Errorf records a failure.
func (o *observation) Errorf(format string, args ...any) { o.fail(false, format, args) }

// violation records a failure that no lag excuses.
func (o *observation) violation(format string, args ...any) { o.fail(true, format, args) }

// fail records a failure. A standstill that begins later does not excuse it.
func (o *observation) fail(conclusive bool, format string, args []any) {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	conclusive = conclusive || !o.stoodStill()
	if n, ok := o.test.(interface{ Noticed() }); ok && conclusive { // the test needs only one
		defer n.Noticed()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	frame, more := frames.Next()
	for more && o.helpers[frame.Function] {
		frame, more = frames.Next()
	}
	file := frame.File[strings.LastIndexByte(frame.File, '/')+1:]
	text := fmt.Sprintf(format, args...)
	o.failures = append(o.failures, fmt.Sprintf("%s:%d: %s", file, frame.Line, text))
	o.conclusive = o.conclusive || conclusive
}

// Fatalf records a failure and ends the goroutine.
func (o *observation) Fatalf(format string, args ...any) {
	o.fail(false, format, args)
	runtime.Goexit()
}

// Skipf ends the goroutine of a case that does not apply. It records a failure if the case
// must apply.
func (o *observation) Skipf(format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	if o.scope == applies && strings.HasPrefix(reason, inapplicablePrefix) {
		o.Fatalf("the case is not in the list of Inapplicable, and it %s", reason)
	}
	o.mu.Lock()
	o.skipped, o.reason = true, reason
	o.mu.Unlock()
	runtime.Goexit()
}

// Failed reports whether this observation has failed.
func (o *observation) Failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.failures) > 0
}

// Cleanup registers fn to be called at the end of this observation.
func (o *observation) Cleanup(fn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cleanups = append(o.cleanups, fn)
}

// allowance is the part of a term, one in ten, for which the machine or the server may stand still.
// A renewal has a third of the term for about three wake-ups and an answer.
const allowance = 10

// gauges measure the machine and the server.
type gauges struct {
	meter *lag.Meter
	probe *probe // nil: each observation has its own
}

// pulse measures how long the machine and the server stood still in an observation: the lag of the
// process's goroutines, and the longest time that the server took for an answer to the probe.
type pulse struct {
	gauges
	begun time.Time

	pulseMu sync.Mutex
	term    time.Duration // the shortest term in use; 0 if no term is short
	answers lag.Record    // answers to the probe
	sent    time.Time     // start of the probe's unanswered request; zero if there is none
	active  int           // number of faults that the case makes at present
	healed  time.Time     // when the last fault ended
	away    time.Duration // the longest restart of the server
	// unanswered is the longest time after which an opening or a request was given up.
	unanswered time.Duration
	made       time.Duration // the longest time that the beginning and the end of a pause took
	stood      time.Duration // the longest sum of standstills during an event
}

func (p *pulse) begin(g gauges) { p.gauges, p.begun = g, time.Now() }

// end ends the measurements of the server.
func (p *pulse) end() { p.probe.leave(p) }

// noteTerm records a term that can expire during the observation. Before the first one, the probe
// is not needed.
func (p *pulse) noteTerm(d time.Duration) {
	p.pulseMu.Lock()
	first := p.term == 0
	if first || d < p.term {
		p.term = d
	}
	p.pulseMu.Unlock()
	if first {
		p.probe.join(p)
	}
}

// asked records that the probe sends a request.
func (p *pulse) asked() {
	p.pulseMu.Lock()
	defer p.pulseMu.Unlock()
	p.sent = time.Now()
}

// answered records the answer to the probe. It does nothing if the observation has no request.
func (p *pulse) answered() {
	p.pulseMu.Lock()
	defer p.pulseMu.Unlock()
	if !p.sent.IsZero() && !p.disturbed(p.sent) {
		p.answers.Add(time.Now(), time.Since(p.sent))
	}
	p.sent = time.Time{}
}

// disturbed reports whether a fault of the case may have delayed a request that began at begun.
// p.pulseMu must be held.
func (p *pulse) disturbed(begun time.Time) bool { return p.active > 0 || begun.Before(p.healed) }

// longestAnswer returns the longest time that the server has taken for an answer to the probe since
// the given time. A request without an answer counts until now. p.pulseMu must be held.
func (p *pulse) longestAnswer(since time.Time) time.Duration {
	longest := p.answers.Worst(since)
	if !p.sent.IsZero() && !p.disturbed(p.sent) {
		longest = max(longest, min(time.Since(p.sent), time.Since(since)))
	}
	return longest
}

// fault records the start of a fault of the case; heal records its end.
func (p *pulse) fault() (heal func()) {
	p.pulseMu.Lock()
	defer p.pulseMu.Unlock()
	p.active++
	return sync.OnceFunc(func() {
		p.pulseMu.Lock()
		defer p.pulseMu.Unlock()
		p.active--
		p.healed = time.Now()
	})
}

// measured returns the longest standstill of the machine or the server, and the shortest term. A
// pause that lasts longer than the case wants is a standstill, too.
func (p *pulse) measured() (stood, term time.Duration) {
	p.pulseMu.Lock()
	defer p.pulseMu.Unlock()
	return max(p.meter.Worst(p.begun), p.longestAnswer(p.begun), p.made, p.stood), p.term
}

// notePause records a pause of the server that lasted longer than the case wants, because the
// commands that begin and end it took time.
func (p *pulse) notePause(commands time.Duration) {
	p.pulseMu.Lock()
	defer p.pulseMu.Unlock()
	p.made = max(p.made, commands)
}

// stoodSince returns the sum of the longest standstill of the machine since at, and of as many of
// the longest answers of the server.
func (p *pulse) stoodSince(at time.Time, answers int) time.Duration {
	p.pulseMu.Lock()
	defer p.pulseMu.Unlock()
	return p.meter.Worst(at) + time.Duration(answers)*p.longestAnswer(at)
}

// noteStood records for how long the machine and the server stood still during an event.
func (p *pulse) noteStood(sum time.Duration) {
	p.pulseMu.Lock()
	defer p.pulseMu.Unlock()
	p.stood = max(p.stood, sum)
}

// noteRestart records a restart of the server. A client gives up when the server has not answered
// for a term.
func (p *pulse) noteRestart(begun time.Time) {
	took := time.Since(begun)
	p.pulseMu.Lock()
	defer p.pulseMu.Unlock()
	p.away = max(p.away, took)
}

// silence is the longest failed opening or unanswered request that does not make the observation
// void.
const silence = time.Second

// noteUnanswered records a connection that could not be opened, or a request that the driver has
// given up without an answer. A closed port refuses at once. A longer time was spent on a slow
// server, unless a fault of the case delayed the answer.
func (p *pulse) noteUnanswered(begun time.Time) {
	took := time.Since(begun)
	p.pulseMu.Lock()
	defer p.pulseMu.Unlock()
	if !p.disturbed(begun) {
		p.unanswered = max(p.unanswered, took)
	}
}

// wasSilent returns the longest time for which the server answered nothing, and whether it was too
// long.
func (p *pulse) wasSilent() (unanswered time.Duration, tooLong bool) {
	p.pulseMu.Lock()
	defer p.pulseMu.Unlock()
	return p.unanswered, p.unanswered > silence
}

// restarted returns the longest restart of the server, and whether it was too long for the
// shortest term.
func (p *pulse) restarted() (away time.Duration, tooLong bool) {
	p.pulseMu.Lock()
	defer p.pulseMu.Unlock()
	return p.away, p.term > 0 && p.away > p.term/2
}

// stoodStill reports whether the machine or the server stood still for longer than the shortest
// term allows.
func (p *pulse) stoodStill() bool {
	stood, term := p.measured()
	_, away := p.restarted()
	_, silent := p.wasSilent()
	return away || silent || term > 0 && stood > term/allowance
}

// standstill describes the reason why the observation is void.
func (p *pulse) standstill() string {
	stood, term := p.measured()
	if away, tooLong := p.restarted(); tooLong {
		return fmt.Sprintf("the server's restart took %v in a term of %v",
			away.Round(time.Millisecond), term)
	}
	if unanswered, tooLong := p.wasSilent(); tooLong {
		return fmt.Sprintf("the server answered nothing for %v", unanswered.Round(time.Millisecond))
	}
	what := "this machine"
	if stood > p.meter.Worst(p.begun) { // also if its pause began late or ended late
		what = "the server"
	}
	return fmt.Sprintf("%s stood still for %v in a term of %v",
		what, stood.Round(time.Millisecond), term)
}

// watched is the Faults of a Harness. It records the faults in the pulse of the observation.
type watched struct {
	Faults
	pulse *pulse
}

// until records a fault that lasts until heal is called.
func (w watched) until(heal func()) func() {
	end := w.pulse.fault()
	return func() { heal(); end() }
}

func (w watched) Cut(t TB) (heal func()) {
	t.Helper()
	return w.until(w.Faults.Cut(t))
}

func (w watched) Pause(t TB) (resume func()) {
	t.Helper()
	begun := time.Now()
	goOn := w.Faults.Pause(t)
	took := time.Since(begun)
	return w.until(func() {
		begun := time.Now()
		goOn()
		w.pulse.notePause(took + time.Since(begun))
	})
}

func (w watched) Restart(t TB) {
	t.Helper()
	defer w.pulse.fault()()
	defer w.pulse.noteRestart(time.Now())
	w.Faults.Restart(t)
}
