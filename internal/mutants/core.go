package main

// coreMutants are the guards of the core.
var coreMutants = []mutant{
	{
		guard: "the deadline counts from the sending", file: "internal/engine/acquisition.go",
		without: "after a slow answer a lease outlives the server's term: two holders",
		edits: []edit{{
			old: "a.grant, a.term, a.repeat = grant, grant.Term, a.attempted",
			new: "a.grant, a.term, a.repeat = grant, " +
				"backend.Term{Sent: now, TTL: grant.Term.TTL}, a.attempted",
		}},
		pkg: "redisbackend", test: "TestConformance/DeadlineCountsFromSending",
	},
	{
		guard: "an Opener gets the TTL", file: "client.go",
		without: "the sessions of a driver do not follow the TTL",
		edits:   []edit{{old: "	u.TTL = cfg.TTL\n", new: ""}},
		pkg:     ".", test: "TestOpenerGetsTheTTL",
	},
	{
		guard: "a session that outlasts the TTL is logged", file: "client.go",
		without: "the lock of a dead process is taken for longer than its TTL, without a hint",
		edits: []edit{{
			old: "if caps.Session && caps.MaxTTL > cfg.TTL {",
			new: "if caps.Session && caps.MaxTTL < cfg.MinHold {",
		}},
		pkg: ".", test: "TestLongSessionIsLogged",
	},
	{
		guard: "a cancelled Acquire is cleaned up", file: "internal/engine/contend.go",
		without: "the lock stays taken for a whole TTL, without a holder",
		edits: []edit{{
			old: "\tif !a.hasTraces() {",
			new: "\tif a.grant == nil {",
		}},
		pkg: "redisbackend", test: "TestConformance/CancelledAcquireIsUndone",
	},
	{
		guard: "once lost, always lost", file: "internal/engine/scheduler.go",
		without: "a renewal that is answered after the deadline revives a lost lease",
		edits: []edit{{
			old: "relevant := a.expire(now) == nil && a.live()",
			new: "relevant := a.live()",
		}},
		pkg: "internal/engine", test: "TestRenewalAnsweredAfterTheDeadline",
	},
	{
		guard: "TryRLock overtakes no writer of its client", file: "internal/engine/queue.go",
		without: "TryRLock gets a lock for which a writer of the same client waits",
		edits:   []edit{{old: " &&\n\t\tln.writers == 0", new: ""}},
		pkg:     ".", test: "TestTryRLockOvertakesNoWriter",
	},
	{
		guard:   "Export waits by the monotonic clock",
		file:    "internal/engine/move.go",
		without: "after the wall clock was set forward, a ghost keeps an adopted lock for a TTL",
		edits: []edit{{
			old: "a.engine.now().Sub(a.first.start)", new: "elapsed(a.first.start, a.engine.now())",
		}},
		pkg: "internal/engine", test: "TestExportWaitsByTheMonotonicClock",
	},
	{
		guard: "a context that panics frees its place", file: "internal/engine/contend.go",
		without: "after a panic of its context a name is blocked in this client for ever",
		edits: []edit{{
			old: "	err = errAborted // unless the context returns\n" +
				"	defer func() { ln, err = a.replaceOwner(t, err) }()\n" +
				"	silent := a.pauseAfterLoss(ctx, l, losses)\n",
			new: "	silent := a.pauseAfterLoss(ctx, l, losses)\n	_ = ended(ctx)\n" +
				"	defer func() { ln, err = a.replaceOwner(t, err) }()\n",
		}},
		pkg: ".", test: "TestPanicAfterALossFreesThePlace",
	},
	{
		guard: "a context that panics ends a move", file: "internal/engine/move.go",
		without: "after a panic of its context a lease can never be downgraded or exported",
		edits: []edit{{
			old: "	if ended := l.applyDowngrade(shared, err); ended != nil {",
			new: "	_ = l.tenure.acq.engine.RequestError(ctx, err)\n" +
				"	if ended := l.applyDowngrade(shared, err); ended != nil {",
		}},
		pkg: ".", test: "TestMoveWithAContextThatPanics",
	},
	{
		guard: "a refused name is definite", file: "internal/engine/errors.go",
		without: "Lock of a name that the driver refuses retries for a TTL",
		edits:   []edit{{old: " || errors.Is(err, backend.ErrInvalidName)", new: ""}},
		pkg:     ".", test: "TestDefiniteErrors",
	},
	{
		guard: "no renewal of a late grant begins late", file: "internal/engine/contend.go",
		without: "Lock sends a request after its context has ended, and the server may execute it",
		edits: []edit{{
			old: "\t\t\t!a.mayProlong(ctx, grant) {\n", new: "\t\t\tfalse {\n",
		}},
		pkg: ".", test: "TestNoProlongationAfterTheEnd",
	},
	{
		guard: "a refused renewal has a known outcome", file: "internal/engine/contend.go",
		without: "a Lock that ends after refusals says that it may have the lock",
		edits:   []edit{{old: "(r.isUnknown || a", new: "(true || a"}},
		pkg:     ".", test: "TestContextEndsDuringAProlongation",
	},
	{
		guard: "a nil Busy is no answer", file: "internal/engine/errors.go",
		without: "a driver that returns a nil Busy makes Lock panic",
		edits:   []edit{{old: "ok && busy == nil {", new: "ok && busy == nil && err == nil {"}},
		pkg:     ".", test: "TestNilBusy",
	},
	{
		guard: "late executions are undone soon", file: "internal/engine/release.go",
		without: "a Lock that is cancelled in flight leaves its name taken for seconds",
		edits: []edit{{
			old: "pause := max(late-a.until.Sub(now), firstRepetition)",
			new: "pause := late",
		}},
		pkg: "membackend", test: "TestConformance/LateExecutionIsUndoneSoon",
	},
	{
		guard:   "late executions are undone until Capabilities.Late",
		file:    "internal/engine/release.go",
		without: "a request that is executed after the last repetition locks the name for a TTL",
		edits:   []edit{{old: "a.until = now.Add(late)", new: "a.until = now.Add(late / 2)"}},
		pkg:     ".", test: "TestUnknownAttemptIsUndoneUntilLate",
	},
	{
		guard: "a second holder is never void", file: "conformance/observation.go",
		without: "on a slow machine the suite repeats a failed observation until it passes",
		edits:   []edit{{old: "o.conclusive = o.conclusive || conclusive", new: ""}},
		pkg:     "conformance", test: "TestVoid",
	},
	{
		guard: "a grant within another term is never void", file: "conformance/fixture.go",
		without: "on a slow machine the suite repeats a failed observation until it passes",
		edits: []edit{{
			old: "f.violation(\"Acquire of a held lock: a second holder",
			new: "f.Errorf(\"Acquire of a held lock: a second holder",
		}},
		pkg: "conformance", test: "TestVoid",
	},
	{
		guard: "a second lease is never void", file: "conformance/fixture.go",
		without: "on a slow machine the suite repeats a failed observation until it passes",
		edits: []edit{{
			old: "f.violation(\"TryLock of a held lock",
			new: "f.Errorf(\"TryLock of a held lock",
		}},
		pkg: "conformance", test: "TestVoid",
	},
	{
		guard: "a decreasing fence is never void", file: "conformance/fixture.go",
		without: "on a slow machine the suite repeats a failed observation until it passes",
		edits:   []edit{{old: "f.violation(\"fence %d after", new: "f.Errorf(\"fence %d after"}},
		pkg:     "conformance", test: "TestVoid",
	},
	{
		guard: "a late try is void only after a standstill", file: "internal/testenv/intime.go",
		without: "a test of a promised time repeats a failure until it passes",
		edits: []edit{{
			old: "max(late, silent) <= limit/allowance || n == tries", new: "n == tries",
		}},
		pkg: "internal/testenv", test: "TestInTime",
	},
	{
		guard: "no case is skipped silently", file: "conformance/observation.go",
		without: "the suite skips a case that a defect of the driver makes inapplicable",
		edits:   []edit{{old: "if o.scope == applies && ", new: "if false && "}},
		pkg:     "conformance", test: "TestInapplicable",
	},
	{
		guard: "the list of inapplicable cases is exact", file: "conformance/observation.go",
		without: "the list keeps a case that now applies, and a later skip is not detected",
		edits:   []edit{{old: "if o.scope == doesNotApply && ", new: "if false && "}},
		pkg:     "conformance", test: "TestInapplicable",
	},
	{
		guard: "a slow first round is not the only one", file: "conformance/fixture.go",
		without: "the first Wait of a driver, which opens its connection, hides a lost wake-up",
		edits:   []edit{{old: "isSlow && i >= minRounds", new: "isSlow"}},
		pkg:     "conformance", test: "TestRounds",
	},
	{
		guard: "slow rounds on a fast server are all executed", file: "conformance/fixture.go",
		without: "a case with repetitions ends early if the machine pauses or a wake-up is lost",
		edits:   []edit{{old: " && fastest*time.Duration(n) > roundsTime", new: ""}},
		pkg:     "conformance", test: "TestRounds",
	},
	{
		guard: "a failure on a punctual machine counts", file: "conformance/observation.go",
		without: "the suite repeats each failure, so that a rare failure passes",
		edits:   []edit{{old: "term > 0 && stood > term/allowance", new: "term > 0 && stood >= 0"}},
		pkg:     "conformance", test: "TestVoid",
	},
	{
		guard: "a pause that is too long is void", file: "conformance/observation.go",
		without: "the suite fails a driver whose server was paused for longer than a case wants",
		edits: []edit{{
			old: "w.pulse.notePause(took + time.Since(begun))", new: "_, _ = took, begun",
		}},
		pkg: "conformance", test: "TestSlowPauseIsVoid",
	},
	{
		guard: "suite: many slow answers make an observation void", file: "conformance/fixture.go",
		without: "a server that is slow for each of them fails a promise in time",
		edits:   []edit{{old: "\t\tf.noteStood(stood)\n", new: ""}},
		pkg:     "conformance", test: "TestSlowAnswersAreVoid",
	},
	{
		guard: "suite: an unanswered request makes an observation void",
		file:  "conformance/requests.go", without: "a slow server's silence fails a case",
		edits: []edit{{old: "\t\t\to.noteUnanswered(r.at)\n", new: ""}},
		pkg:   "conformance", test: "TestUnansweredRequestIsVoid",
	},
	{
		guard: "suite: cases share a probe",
		file:  "conformance/observation.go", without: "each case opens two connections more",
		edits: []edit{{old: "if g.probe == nil {", new: "if true {"}},
		pkg:   "conformance", test: "TestProbeIsShared",
	},
	{
		guard: "suite: a request under way counts for a new case", file: "conformance/probe.go",
		without: "a server that stands still as a case begins fails it",
		edits:   []edit{{old: "\tif p.asking {\n\t\to.asked()\n\t}\n", new: ""}},
		pkg:     "conformance", test: "TestProbeMeasuresForEach",
	},
	{
		guard:   "suite: a case alone has its own probe",
		file:    "conformance/conformance.go",
		without: "a case that stops the server leaves connections that are slow in the next case",
		edits:   []edit{{old: "\tif c.Alone {\n\t\tg.probe = nil\n\t}\n", new: ""}},
		pkg:     "conformance", test: "TestProbeIsShared",
	},
	{
		guard: "suite: a case that ends early closes all", file: "conformance/fixture.go",
		without: "after a void observation goroutines are left, and the tests fail",
		edits:   []edit{{old: "\tf.onClose(closeOnce)\n", new: ""}},
		pkg:     "conformance", test: "TestConnectionsEndWithTheCase",
	},
	{
		guard: "goroutines of the Harness are not the driver's", file: "conformance/fixture.go",
		without: "the suite fails a driver if its Harness runs a proxy or a server in the process",
		edits: []edit{{
			old: "pprof.SetGoroutineLabels(context.Background())\n\tdefer",
			new: "defer",
		}},
		pkg: "conformance", test: "TestHarnessMayHaveGoroutines",
	},
	{
		guard: "a context is read before Unlock begins", file: "internal/engine/lease.go",
		without: "a context that panics keeps its name locked in the client for ever",
		edits: []edit{
			{
				old: "\tdone := ctx.Done() // code of a user, which may not return\n" +
					"\tonce := isClosed(done)\n",
				new: "",
			},
			{
				old: "l.releaseFor(ctx, done, once, now)",
				new: "l.releaseFor(ctx, ctx.Done(), false, now)",
			},
		},
		pkg: ".", test: "TestContextThatPanics",
	},
	{
		guard: "Unlock on a context that has ended waits", file: "internal/engine/release.go",
		without: "Unlock on a context of its lease returns ErrUncertain at once",
		edits:   []edit{{old: "case once:\n", new: "case false:\n"}},
		pkg:     ".", test: "TestUnlockOnADeadContext",
	},
	{
		guard: "Unlock on an ended context is one attempt", file: "internal/engine/release.go",
		without: "Unlock repeats a refused release for 5 s although its context has ended",
		edits:   []edit{{old: "!once && !answered &&", new: "!answered &&"}},
		pkg:     ".", test: "TestUnlockOnADeadContextIsOneAttempt",
	},
	{
		guard: "the end of its own lease ends no Unlock", file: "internal/engine/release.go",
		without: "Unlock on a context of its lease returns ErrUncertain if the context ends slowly",
		edits:   []edit{{old: "if !e.endedWith(ctx, leases) {", new: "if true {"}},
		pkg:     ".", test: "TestUnlockWhoseContextFollowsALease",
	},
	{
		guard: "a deadline limits an Unlock on a context of its lease",
		file:  "internal/engine/release.go",
		without: "Unlock on a context of its lease blocks for 5 s, although the context has a " +
			"deadline of 1 s",
		edits: []edit{{
			old: "\tdeadline, ok := ctx.Deadline()\n\tif !ok {",
			new: "\tdeadline := time.Time{}\n\tif true {",
		}},
		pkg: ".", test: "TestDeadlineLimitsAnUnlockOnTheContextOfItsLease",
	},
	{
		guard: "the end of another lease ends an Unlock", file: "internal/engine/release.go",
		without: "Unlock waits for an answer although another lease has ended its context",
		edits: []edit{{
			old: "if slices.Contains(leases, held.lease) {",
			new: "if true || slices.Contains(leases, held.lease) {",
		}},
		pkg: ".", test: "TestUnlockWhoseContextFollowsALease",
	},
	{
		guard:   "the end of another reentrant lease ends an Unlock",
		file:    "internal/engine/release.go",
		without: "LockAll waits for an answer although another lease has ended its context",
		edits: []edit{{
			old: "if slices.Contains(leases, held.lease) {",
			new: "if slices.ContainsFunc(leases, func(l *Lease) bool {\n" +
				"\t\t\treturn l.tenure == held.lease.tenure\n\t\t}) {",
		}},
		pkg: ".", test: "TestEndOfAnotherReentrantLeaseEndsAWait",
	},
	{
		guard: "the loss of an own lease ends no Unlocks", file: "internal/engine/release.go",
		without: "MultiLease.Unlock returns ErrUncertain if one of its leases is lost as it begins",
		edits: []edit{{
			old: "backend.ErrNotHeld) && !isLost(cause) {", new: "backend.ErrNotHeld) {",
		}},
		pkg: ".", test: "TestUnlockOfSeveralAfterALoss",
	},
	{
		guard: "Unlocks on a context that has ended wait", file: "internal/engine/all.go",
		without: "MultiLease.Unlock on a context that has ended returns ErrUncertain at once",
		edits:   []edit{{old: "\tif once {\n\t\tdone = nil\n\t}\n", new: ""}},
		pkg:     ".", test: "TestUnlockOfSeveralOnADeadContext",
	},
	{
		guard: "the end of their own leases ends no Unlocks", file: "internal/engine/all.go",
		without: "MultiLease.Unlock on a context of one of its leases returns ErrUncertain at once",
		edits: []edit{{
			old: "append(errs, u.await(ctx, done, leases))",
			new: "append(errs, u.await(ctx, done, []*Lease{u.Lease}))",
		}},
		pkg: ".", test: "TestUnlockOfSeveralOnADeadContext",
	},
	{
		guard: "Unlocks on an ended context are one attempt", file: "internal/engine/all.go",
		without: "MultiLease.Unlock on an ended context repeats refused releases for 5 s",
		edits: []edit{{
			old: "e.startUnlocks(ctx, leases, once)", new: "e.startUnlocks(ctx, leases, false)",
		}},
		pkg: ".", test: "TestUnlockOfSeveralIsOneAttempt",
	},
	{
		guard: "Shutdown ends a release", file: "internal/engine/release.go",
		without: "Unlock sends requests to a closed driver",
		edits:   []edit{{old: ".EndWith(a.engine.working)", new: ""}},
		pkg:     ".", test: "TestShutdownEndsAnUnlock",
	},
	{
		guard: "a release formats no error before it fails", file: "internal/engine/release.go",
		without: "each Unlock with a context that can end formats an error that it does not return",
		edits:   []edit{{old: "err := errReleaseAborted", new: "err := Uncertain(errAborted)"}},
		pkg:     "internal/engine", test: "TestUnlockFormatsNoErrorBeforeItFails",
	},
	{
		guard: "the end is noted before the next turn", file: "internal/engine/release.go",
		without: "an Observer receives the start of a lease before the end of the previous lease",
		edits: []edit{{
			old: "\ta.noteReleased(err)\n\ta.leave(a.turnAfterRelease())\n" +
				"\treturn true, err\n",
			new: "\ta.leave(a.turnAfterRelease())\n\treturn true, err\n",
		}},
		pkg: "internal/engine", test: "TestEndIsNotedBeforeTheNextTurn",
	},
	{
		guard: "the end is noted before a hand-off", file: "internal/engine/lease.go",
		without: "an Observer receives the new lease of a hand-off before the end of the old one",
		edits: []edit{{
			old: "\t\te.noteEnded(t, nil)\n\t}\n\treturn nothing, nil\n",
			new: "\t}\n\treturn nothing, nil\n",
		}, {
			old: "\tif next == nothing {\n\t\treturn err\n",
			new: "\tif next == nothing {\n\t\te.noteEnded(l.tenure, err)\n\t\treturn err\n",
		}},
		pkg: "internal/engine", test: "TestEndIsNotedBeforeTheNextTurn",
	},
	{
		guard: "a context is read before Shutdown begins", file: "client.go",
		without: "a context that panics leaves a client that cannot be closed",
		edits: []edit{
			{old: "\tdone := ctx.Done() // code of a user, which may not return\n", new: ""},
			{old: "c.awaitClose(ctx, done)", new: "c.awaitClose(ctx, ctx.Done())"},
		},
		pkg: ".", test: "TestContextThatPanics",
	},
	{
		guard: "a poller's pause is no silence of the server", file: "internal/engine/contend.go",
		without: "one failed request ends a Lock with a poll interval longer than the TTL",
		edits: []edit{{
			old: "\t\ta.answered = time.Time{} // the pause may be longer than the TTL\n",
			new: "",
		}},
		pkg: ".", test: "TestPauseOfAPollerIsNoSilenceOfTheServer",
	},
	{
		guard: "a background release frees its slot", file: "internal/engine/release.go",
		without: "after 64 background releases no more are sent",
		edits:   []edit{{old: "\t\t\te.sending--\n", new: ""}},
		pkg:     ".", test: "TestBackgroundReleasesGoOn",
	},
	{
		guard: "a release changes the state at once", file: "internal/engine/release.go",
		without: "a renewal in flight turns a successful Unlock into ErrLost",
		edits: []edit{{
			old: "\ta.on(releaseEvent) // a renewal",
			new: "\ta.unschedule() // a renewal",
		}},
		pkg: ".", test: "TestUnlockDuringARenewal",
	},
	{
		guard: "a hand-off waits for no renewal", file: "internal/engine/contend.go",
		without: "each hand-off of a queue takes twice as long",
		edits:   []edit{{old: "-age < l.renewalLimit()", new: "-age < l.TTL/renewalPart"}},
		pkg:     ".", test: "TestHandOffWaitsForNoRenewal",
	},
	{
		guard: "a term shorter than the lock-delay is renewed", file: "internal/engine/contend.go",
		without: "waiters in a queue refuse each grant, and no client has the lock",
		edits:   []edit{{old: "age < term.TTL-margin(term.TTL)", new: "age < lifeOf(term, l)"}},
		pkg:     ".", test: "TestGrantShorterThanItsLockDelay",
	},
	{
		guard: "an Extend delays no renewal", file: "internal/engine/scheduler.go",
		without: "an Extend in a loop, with short contexts, costs the lease",
		edits:   []edit{{old: "case r.how == extension:", new: "case false:"}},
		pkg:     ".", test: "TestFailingExtendsDelayNoRenewal",
	},
	{
		guard: "silent locks cost no other renewal", file: "internal/engine/scheduler.go",
		without: "16 locks on a silent server cost all other locks of their TTL",
		edits: []edit{{
			old: "bound := bound.New(ctx, a.lock.renewalLimit())",
			new: "bound := bound.From(ctx, a.term.Sent, a.lock.renewalLimit())",
		}},
		pkg: "internal/engine", test: "TestSilentLocksCostNoOtherLease",
	},
	{
		guard: "a lost holder keeps the rest of its term", file: "internal/engine/lease.go",
		without: "after a maximum hold the lock is free before the last holder has stopped",
		edits:   []edit{{old: "t.acq.ended--; t.acq.ended == 0 {", new: "t.acq.ended--; true {"}},
		pkg:     ".", test: "TestLostLeaseIsReleasedByItsLastUnlock",
	},
	{
		guard: "a stop during a request is no silence", file: "internal/engine/contend.go",
		without: "after a stop of the process all waiters for a lock get ErrUnavailable",
		edits: []edit{{
			old: "a.attempted = a.attempted || a.uncertain\n\ta.discountStop(now, limit)",
			new: "a.attempted = a.attempted || a.uncertain",
		}},
		pkg: ".", test: "TestWaitersOutliveAStopDuringARequest",
	},
	{
		guard: "an attempt ends with the silence", file: "internal/engine/contend.go",
		without: "a waiter whose answers are late keeps the lock for another TTL",
		edits: []edit{{
			old: "min(a.lock.requestLimit(), a.lock.TTL-now.Sub(a.answered))",
			new: "a.lock.requestLimit()",
		}},
		pkg: ".", test: "TestAttemptEndsWithTheSilence",
	},
	{
		guard: "no attempt follows the silence", file: "internal/engine/contend.go",
		without: "a waiter whose answers are late keeps the lock for another TTL",
		edits: []edit{{
			old: "a.discountStop(began, d)\n\t}\n\treturn a.isSilent()",
			new: "a.discountStop(began, d)\n\t\treturn false\n\t}\n\treturn true",
		}},
		pkg: ".", test: "TestNoAttemptAfterTheSilence",
	},
	{
		guard: "an entry without an answer has one waiter", file: "internal/engine/queue.go",
		without: "waiters that come and go prolong a grant that none of them knows",
		edits: []edit{{
			old: "a.reason != nil || a.uncertain ||",
			new: "a.reason != nil ||",
		}},
		pkg: ".", test: "TestUnansweredEntryIsNotTransferred",
	},
	{
		guard: "a refusal undoes no earlier attempt", file: "internal/engine/contend.go",
		without: "waiters that come and go prolong a grant that none of them knows",
		edits: []edit{{
			old: "isUnknown(err) || a.uncertain && !IsDefinite(err)",
			new: "isUnknown(err)",
		}},
		pkg: ".", test: "TestUnansweredEntryIsNotTransferred",
	},
	{
		guard: "an attempt that panicked is not repeated", file: "internal/engine/contend.go",
		without: "a waiter inherits a silence that was none, and gives up",
		edits: []edit{{
			old: "a.attempted, a.uncertain = true, true\n\ta.giveUp(false)",
			new: "a.attempted = true\n\ta.giveUp(false)",
		}},
		pkg: ".", test: "TestPanickedAttemptIsNotRepeated",
	},
	{
		guard: "a pause leaves time for an attempt", file: "internal/engine/contend.go",
		without: "with the shortest TTL, news without a reason end a Lock",
		edits: []edit{{
			old: "min(pace.idle(time.Since(began)), l.TTL/waitPart)",
			new: "pace.idle(time.Since(began))",
		}},
		pkg: ".", test: "TestSpuriousNewsLeaveTimeForAnAttempt",
	},
	{
		guard: "a late grant is not kept", file: "internal/engine/contend.go",
		without: "a waiter whose renewal has no answer keeps the lock for almost two TTLs",
		edits: []edit{{
			old: "min(a.attemptLimit(now), left+a.lock.renewalLimit())",
			new: "a.attemptLimit(now) + 0*left",
		}},
		pkg: ".", test: "TestLateGrantIsNotKept",
	},
	{
		guard: "a silence outlasts a lost grant", file: "internal/engine/contend.go",
		without: "a waiter whose answers are late keeps the lock for another TTL",
		edits: []edit{{
			old: "a.silenceOfLoss()), nil, nil",
			new: "silence{}), nil, nil",
		}},
		pkg: ".", test: "TestLateGrantIsNotKept",
	},
	{
		guard: "a stop during a renewal is no silence", file: "internal/engine/contend.go",
		without: "a waiter that was stopped while it renewed a late grant gives up",
		edits: []edit{{
			old: "if a.answered.Equal(answered) {",
			new: "if false {",
		}},
		pkg: ".", test: "TestWaiterThatWasStoppedDuringARenewal",
	},
	{
		guard: "one late return counts as a stop", file: "internal/engine/contend.go",
		without: "a driver that returns late each time keeps a Lock without renewals busy for long",
		edits: []edit{{
			old: "if a.answered.Equal(answered) {",
			new: "if true {",
		}},
		pkg: ".", test: "TestLateDriverEndsTheSilenceOnce",
	},
	{
		guard: "a late grant is renewed until the silence", file: "internal/engine/contend.go",
		without: "without renewals and with a lock-delay, a Lock keeps trying long after its end",
		edits: []edit{{
			old: "a.pauseWhileOpen(ctx, a.prolongPause(grant, failures))",
			new: "func() bool { a.engine.Pause(ctx, failures, a.lock.MaxPause()); return false }()",
		}},
		pkg: ".", test: "TestProlongationEndsWithTheSilence",
	},
	{
		guard: "a late grant is renewed often", file: "internal/engine/contend.go",
		without: "with a TTL of 10 minutes, a Lock pauses for a minute after a failed renewal",
		edits: []edit{{
			old: "backoff(failures, min(a.lock.MaxPause(), maxRetryPause))",
			new: "backoff(failures, a.lock.MaxPause())",
		}},
		pkg: ".", test: "TestPauseOfAProlongation",
	},
	{
		guard: "a pause ends with the term", file: "internal/engine/contend.go",
		without: "a Lock that could try again pauses although its grant is over",
		edits: []edit{{
			old: "return min(rest, maxRetryPause)",
			new: "return d",
		}},
		pkg: ".", test: "TestPauseEndsWithTheTerm",
	},
	{
		guard: "a refused renewal is the cause", file: "internal/engine/contend.go",
		without: "the error of Lock says that a server did not answer that has refused renewals",
		edits: []edit{{
			old: "return nil, &exhaustedError{Unavailable(a.failure)}",
			new: "return nil, &exhaustedError{Unavailable(errNoAnswer)}",
		}},
		pkg: ".", test: "TestRefusedRenewalIsTheCause",
	},
	{
		guard: "another owner keeps the cause", file: "internal/engine/contend.go",
		without: "the error of Lock says that a server did not answer that has refused renewals",
		edits: []edit{{
			old: "a.silenceOfLoss()), nil, nil",
			new: "silence{answered: a.silenceOfLoss().answered}), nil, nil",
		}},
		pkg: ".", test: "TestRefusalIsTheCauseAfterALoss",
	},
	{
		guard: "the next waiter has the cause", file: "internal/engine/contend.go",
		without: "a waiter says that a server did not answer that has refused renewals",
		edits: []edit{{
			old: "s.answered = later(s.answered, w.joined)\n",
			new: "s.answered, s.failure = later(s.answered, w.joined), errNoAnswer\n",
		}},
		pkg: ".", test: "TestNextWaiterHasTheCauseOfTheSilence",
	},
	{
		guard: "the next waiter of an entry has the cause", file: "internal/engine/contend.go",
		without: "a waiter says that a server did not answer that has refused requests",
		edits: []edit{{
			old: "	if !a.answered.IsZero() {",
			new: "	a.failure = nil\n	if !a.answered.IsZero() {",
		}},
		pkg: ".", test: "TestNextWaiterOfAnEntryHasTheCause",
	},
	{
		guard:   "an error is formatted before the mutex is locked",
		file:    "internal/engine/contend.go",
		without: "a driver's error that uses the client ends all of its locks",
		edits: []edit{{
			old: "			err := silentError(s.failure) // it formats a driver's error, " +
				"so e.mu is not locked\n			e.mu.Lock()\n			defer e.unlock()\n",
			new: "			e.mu.Lock()\n			defer e.unlock()\n" +
				"			err := silentError(s.failure)\n",
		}},
		pkg: ".", test: "TestErrorOfADriverMayUseTheClient",
	},
	{
		guard: "no owner follows the silence", file: "internal/engine/contend.go",
		without: "a Lock whose grants keep being lost gives up late, and sends a useless request",
		edits: []edit{{
			old: "	case silent:\n		return nil, &exhaustedError",
			new: "	case silent && false:\n		return nil, &exhaustedError",
		}},
		pkg: ".", test: "TestNoOwnerAfterTheSilence",
	},
	{
		guard: "a pause after a loss ends with the silence", file: "internal/engine/contend.go",
		without: "a Lock whose grants keep being lost gives up late",
		edits: []edit{{
			old: "		return a.pauseWhileOpen(ctx, d)\n	case d > 0:",
			new: "		a.engine.pauseFor(ctx, d)\n		return a.isSilent()\n	case d > 0:",
		}},
		pkg: ".", test: "TestNoOwnerAfterTheSilence",
	},
	{
		guard: "an end during a renewal has its cause", file: "internal/engine/contend.go",
		without: "the error of Lock does not say that the outcome is unknown",
		edits: []edit{{
			old: "case ended(ctx) != nil && t == nil:",
			new: "case false && t == nil:",
		}},
		pkg: ".", test: "TestContextEndsDuringAProlongation",
	},
	{
		guard: "Close during a late renewal is uncertain", file: "internal/engine/contend.go",
		without: "the error of Lock does not say that the outcome is unknown",
		edits: []edit{{
			old: "if t == nil && a.uncertain {",
			new: "if false {",
		}},
		pkg: ".", test: "TestEndOfALateRenewal",
	},
	{
		guard: "a loss has the refusal of a late renewal", file: "internal/engine/contend.go",
		without: "the reason of a loss does not say that the server refused to renew the grant",
		edits: []edit{{
			old: "		a.noteOverdue(r.late)\n",
			new: "",
		}},
		pkg: ".", test: "TestLossAfterARefusedLateRenewal",
	},
	{
		guard: "a success ends an earlier refusal", file: "internal/engine/contend.go",
		without: "the reason of a loss is a refusal, although a later renewal succeeded",
		edits: []edit{{
			old: "grant.Term, a.attempted, nil\n",
			new: "grant.Term, a.attempted, a.overdue\n",
		}},
		pkg: ".", test: "TestLossAfterARefusedLateRenewal",
	},
	{
		guard: "an error that panics costs one renewal", file: "internal/engine/contend.go",
		without: "an error of the driver ends the goroutine of the user",
		edits: []edit{{
			old: "r := newAnswer(term, err, alone)\n\ta.not",
			new: "_ = isLost(err)\n\tr := newAnswer(term, err, alone)\n\ta.not",
		}},
		pkg: ".", test: "TestPanickingErrorOfALateRenewal",
	},
	{
		guard: "a renewal without a result is an error", file: "internal/engine/contend.go",
		without: "the error of Lock says that the driver returned an old term",
		edits: []edit{{
			old: "r := newAnswer(term, err, alone)",
			new: "r := &answer{reading: read(err, errGoneAtRenewal)}",
		}},
		pkg: ".", test: "TestProlongationWithoutAResult",
	},
	{
		guard: "a hint leaves time for an attempt", file: "internal/engine/pace.go",
		without: "with the shortest TTL, a hint ends a Lock although the server answers in time",
		edits:   []edit{{old: "min(maxJitter, ttl/jitterPart)", new: "maxJitter"}},
		pkg:     ".", test: "TestHintLeavesTimeForAnAttempt",
	},
	{
		guard: "a short attempt does not hide the cause", file: "internal/engine/contend.go",
		without: "Lock on a full server says that it did not answer",
		edits: []edit{{
			old: "case a.failure == nil || !errors.Is(err, context.DeadlineExceeded):",
			new: "case true || a.failure == nil:",
		}},
		pkg: ".", test: "TestShortAttemptDoesNotHideTheCause",
	},
	{
		guard: "a silence is ErrUnavailable", file: "internal/engine/contend.go",
		without: "the error of a Lock does not say that the server was silent",
		edits: []edit{{
			old: "a.failure = fmt.Errorf(\"%w: %w, after: %w\",\n" +
				"\t\t\tbackend.ErrUnavailable, errNoAnswer, a.failure)",
			new: "_ = fmt.Sprint()",
		}},
		pkg: ".", test: "TestContextEndsDuringASilence",
	},
	{
		guard: "an idle goroutine keeps no context", file: "internal/engine/engine.go",
		without: "the context of an Unlock is kept until the next one",
		edits: []edit{{
			old: "f = nil // it has",
			new: "_ = f // it has",
		}},
		pkg: ".", test: "TestUnlockKeepsNoContext",
	},
	{
		guard: "a transferred entry inherits the silence", file: "internal/engine/contend.go",
		without: "waiters that come and go prolong a grant that none of them knows",
		edits: []edit{{
			old: "t.acq.inheritSilence(w.joined)",
			new: "t.acq.answered = time.Time{}",
		}},
		pkg: ".", test: "TestSilenceOfATransferredEntry",
	},
	{
		guard: "a new waiter has a TTL of silence", file: "internal/engine/contend.go",
		without: "a waiter gives up earlier than a TTL after its arrival",
		edits: []edit{{
			old: "a.answered = later(a.answered, joined)",
			new: "_ = joined",
		}},
		pkg: ".", test: "TestSilenceOfATransferredEntry",
	},
	{
		guard: "releases share a goroutine", file: "internal/engine/engine.go",
		without: "an Unlock whose context can end waits for the growth of a new stack",
		edits: []edit{{
			old: "case e.spare <- f:", new: "case (chan func())(nil) <- f:",
		}},
		pkg: "internal/engine", test: "TestReleasesShareAGoroutine",
	},
	{
		guard: "one goroutine waits for releases", file: "internal/engine/engine.go",
		without: "each Unlock whose context can end leaves a goroutine until Close",
		edits: []edit{{
			old: "if !e.isSpare.CompareAndSwap(false, true) {",
			new: "if e.isSpare.Store(true); false {",
		}},
		pkg: "internal/engine", test: "TestReleasesShareAGoroutine",
	},
	{
		guard: "repeated releases delay no other", file: "internal/engine/release.go",
		without: "after 6,000 attempts on a silent server, each other release waits for seconds",
		edits: []edit{{
			old: "	if a.silences == 0 {\n		o.fresh", new: "	if true {\n		o.fresh",
		}},
		pkg: ".", test: "TestRepeatedReleasesDelayNoOther",
	},
	{
		guard: "Close releases many locks at once", file: "internal/engine/release.go",
		without: "Close leaves thousands of locks on a distant server to their TTL",
		edits:   []edit{{old: "limit = closingSenders\n", new: "_ = closingSenders\n"}},
		pkg:     ".", test: "TestCloseReleasesManyLocks",
	},
	{
		guard: "dropped events are reported", file: "internal/engine/notify.go",
		without: "an Observer that is always too slow is never reported",
		edits:   []edit{{old: "if n.dropped > 0 && time.Since", new: "if false && time.Since"}},
		pkg:     "internal/engine", test: "TestDroppedNotesAreReported",
	},
	{
		guard: "a renewal is noted after the beginning", file: "internal/engine/notify.go",
		without: "an Observer receives Renewed before Acquired",
		edits:   []edit{{old: "	if t.isAnnounced() {\n", new: "	if true {\n"}},
		pkg:     "internal/engine", test: "TestRenewalBeforeTheBeginningIsNotNoted",
	},
	{
		guard: "the cause of a context is no answer", file: "internal/engine/errors.go",
		without: "an error of another call passes for an answer of the server",
		edits: []edit{{
			old: "slices.ContainsFunc(sentinels, func",
			new: "slices.ContainsFunc(sentinels[:6], func",
		}},
		pkg: ".", test: "TestLockAllEndsWithItsContext",
	},
	{
		guard: "a reentrant Lock drops no hold", file: "internal/engine/lease.go",
		without: "the minimum hold of a Lock inside another one has no effect",
		edits: []edit{{
			old: "err := t.covers(l)", new: "err := error(nil)",
		}},
		pkg: ".", test: "TestReentrancy",
	},
	{
		guard: "a reentrant LockAll drops no hold", file: "internal/engine/all.go",
		without: "the minimum hold of a LockAll inside of a Lock has no effect",
		edits: []edit{{
			old: "if err := t.covers(r.locks[i]); err != nil {",
			new: "if err := error(nil); err != nil {",
		}},
		pkg: ".", test: "TestReentrantLockAllKeepsItsHold",
	},
	{
		guard: "LockAll keeps its holds", file: "internal/engine/all.go",
		without: "a LockAll with a minimum hold always fails",
		edits:   []edit{{old: "!t.lock.isTrial { // it", new: "t.lock != nil { // it"}},
		pkg:     ".", test: "TestLockAllKeepsItsHolds",
	},
	{
		guard: "an Unlock during a move is no loss", file: "internal/engine/move.go",
		without: "Unlock returns ErrLost because a Downgrade came after the release",
		edits: []edit{
			{
				old: "e := a.engine\n\te.mu.Lock()\n\tdefer e.unlock()\n\ta.pin = pinned\n" +
					"\tif r.loss != nil && a.live() { // else the release may have been first\n" +
					"\t\ta.markLost(r.loss)\n\t}\n\tswitch ended = l.check(); {\n" +
					"\tcase ended != nil:\n\tcase",
				new: "e := a.engine\n\te.mu.Lock()\n\tdefer e.unlock()\n\ta.pin = pinned\n" +
					"\tif r.loss != nil {\n" +
					"\t\ta.markLost(r.loss)\n\t}\n\tswitch ended = l.check(); {\n" +
					"\tcase ended != nil:\n\tcase",
			},
			{
				old: "if r.loss != nil && a.live() { // else the release may have been first\n" +
					"\t\ta.markLost(r.loss)\n\t}\n\tswitch ended = l.check(); {\n" +
					"\tcase ended != nil:\n\t\ta.repeat",
				new: "if r.loss != nil {\n" +
					"\t\ta.markLost(r.loss)\n\t}\n\tswitch ended = l.check(); {\n" +
					"\tcase ended != nil:\n\t\ta.repeat",
			},
		},
		pkg: ".", test: "TestUnlockDuringAMove",
	},
	{
		guard: "a batch of renewals is given up", file: "internal/engine/scheduler.go",
		without: "one lock for which the driver does not return costs all locks of its TTL",
		edits: []edit{{
			old: "case <-time.After(limit / gracePart):", new: "case <-(chan int)(nil):",
		}},
		pkg: ".", test: "TestCallbacksCostNoOtherLease/RenewAll_blocks",
	},
	{
		guard: "a batch has one unlock", file: "internal/engine/scheduler.go",
		without: "lost members of a batch cost the others their lease",
		edits: []edit{
			{
				old: "defer e.unlock()\n\tfor i, a := range members {",
				new: "e.unlock()\n\tfor i, a := range members {",
			},
			{
				old: "\t\ta.apply(each[i])",
				new: "\t\te.mu.Lock()\n\t\ta.apply(each[i])\n\t\te.unlock()",
			},
		},
		pkg: "internal/engine", test: "TestLostMembersOfABatch",
	},
	{
		guard: "a lock of a failed batch is renewed alone", file: "internal/engine/scheduler.go",
		without: "one lock for which the driver panics costs all locks of its TTL",
		edits: []edit{{
			old: "return a.silent > 1 || a.silent > 0 && a.failures > 0", new: "return false",
		}},
		pkg: ".", test: "TestCallbacksCostNoOtherLease/RenewAll_panics",
	},
	{
		guard: "a driver that hangs gets few batches", file: "internal/engine/scheduler.go",
		without: "the goroutines of a driver that does not return fill the memory",
		edits:   []edit{{old: "return a.silent > 1 || ", new: "return "}},
		pkg:     ".", test: "TestBatchThatDoesNotReturn",
	},
	{
		guard: "an Extend does not end a renewal", file: "internal/engine/scheduler.go",
		without: "after each Extend a second renewal of the same lock may be under way",
		edits: []edit{{
			old: "a.renewing = a.renewing && how == extension", new: "a.renewing = false",
		}},
		pkg: ".", test: "TestExtendDuringARenewal",
	},
	{
		guard: "a renewal can be planned in a tiny term", file: "internal/engine/clock.go",
		without: "a server that grants a term of nanoseconds ends the process",
		edits: []edit{{
			old: "rand.N(2*d/jitterPart+1)", new: "rand.N(2*d/jitterPart-1)",
		}},
		pkg: "internal/engine", test: "TestRenewalOfATinyTerm",
	},
	{
		guard: "a lease with a channel or a context is in use", file: "internal/engine/lease.go",
		without: "the garbage collector ends a lease if only its channel or context is in use",
		edits: []edit{{
			old: "if l.ref == nil || l.views.inUse() {",
			new: "if l.ref == nil {",
		}},
		pkg: ".", test: "TestAwaitedLeaseIsNotDropped",
	},
	{
		guard: "a lease with a channel is in use", file: "internal/engine/lease.go",
		without: "the garbage collector ends a lease of which only the channel is left",
		edits:   []edit{{old: "v.lost != nil || v.any != nil ||", new: "v.any != nil ||"}},
		pkg:     ".", test: "TestAwaitedLeaseIsNotDropped",
	},
	{
		guard: "a lease with a context is in use", file: "internal/engine/lease.go",
		without: "the garbage collector ends a lease of which only the context is left",
		edits:   []edit{{old: "|| len(v.contexts) > 0)", new: ")"}},
		pkg:     ".", test: "TestAwaitedLeaseIsNotDropped",
	},
	{
		guard: "a watched lease can come into use", file: "internal/engine/lease.go",
		without: "the garbage collector ends a lease if its channel is requested after a renewal",
		edits:   []edit{{old: "\t\tl.ref = r\n", new: "\t\t_ = r\n"}},
		pkg:     ".", test: "TestAwaitedLeaseIsNotDropped",
	},
	{
		guard: "cancelled contexts are forgotten", file: "internal/engine/lease.go",
		without: "a lease that is held for a long time keeps each context that was derived from it",
		edits:   []edit{{old: "delete(l.views.contexts, c)", new: "_ = c"}},
		pkg:     "internal/engine", test: "TestCancelledContextIsForgotten",
	},
	{
		guard: "Close returns the driver's error", file: "internal/engine/close.go",
		without: "Close returns nil if the driver could not close",
		edits:   []edit{{old: "err = <-result", new: "err = nil"}},
		pkg:     ".", test: "TestCloseReturnsTheDriversError",
	},
	{
		guard: "Close waits for requests", file: "internal/engine/close.go",
		without: "the driver is closed during a request that returns late",
		edits:   []edit{{old: "\twaitFor(joined, joinTimeout)\n", new: ""}},
		pkg:     ".", test: "TestCloseWaitsForRequests",
	},
	{
		guard: "Close waits for a call that begins", file: "internal/engine/engine.go",
		without: "the driver is closed during a call that began as Close did",
		edits: []edit{
			{old: "e.calls.Add(1)\n\tif e.closing", new: "if e.closing"},
			{
				old: "e.Leave()\n\t\treturn backend.ErrClosed\n\t}\n\treturn nil",
				new: "return backend.ErrClosed\n\t}\n\ttime.Sleep(time.Millisecond)\n" +
					"\te.calls.Add(1)\n\treturn nil",
			},
		},
		pkg: "internal/engine", test: "TestCloseWaitsForACallThatBegins",
	},
	{
		guard: "Close waits for batches", file: "backend/batch/batch.go",
		without: "a driver is closed during a batch that returns late",
		edits:   []edit{{old: "\tb.end()\n\tb.running.Wait()", new: "\tb.end()"}},
		pkg:     "backend/batch", test: "TestCloseWaitsForBatches",
	},
	{
		guard: "Unlock during Close returns ErrClosed", file: "internal/engine/lease.go",
		without: "Unlock reports a release that Close has not made yet",
		edits:   []edit{{old: "\treturn backend.ErrClosed\n", new: "\treturn nil\n"}},
		pkg:     "internal/engine", test: "TestUnlockAsCloseBegins",
	},
	{
		guard: "a loss is ErrLost", file: "internal/engine/errors.go",
		without: "an Observer does not recognize a loss for which the driver gives its own cause",
		edits: []edit{{
			old: "return fmt.Errorf(\"%w: %w\", backend.ErrLost, r.err)", new: "return r.err",
		}},
		pkg: ".", test: "TestLossByTheServerIsErrLost",
	},
	{
		guard: "a loss has a reason", file: "internal/engine/errors.go",
		without: "after a Break the log has no other text than \"lock lost\"",
		edits:   []edit{{old: "r.loss = explained(err, bare)", new: "r.loss = err"}},
		pkg:     "membackend", test: "TestConformance/VanishedGrantIsLost",
	},
	{
		guard: "an error that panics costs one request", file: "internal/engine/errors.go",
		without: "a nil pointer that a driver returns as an error ends the process",
		edits: []edit{{
			old: "if value := recover(); value != nil {\n\t\t\terr := fmt.Errorf(\"the methods",
			new: "if value := any(nil); value != nil {\n\t\t\terr := fmt.Errorf(\"the methods",
		}},
		pkg: ".", test: "TestErrorThatPanics",
	},
	{
		guard: "the As of an error may panic, too", file: "internal/engine/errors.go",
		without: "an error whose As panics ends the process",
		edits: []edit{{
			old: "errors.AsType[*backend.Busy](err); ok && busy == nil {",
			new: "err.(*backend.Busy); ok && busy == nil {",
		}},
		pkg: ".", test: "TestErrorThatPanics",
	},
	{
		guard: "a release of several locks is given up", file: "internal/engine/together.go",
		without: "one lock for which the driver does not return costs the others their release",
		edits: []edit{{
			old: "range awaitDriver(bound, limit, result, missing) {",
			new: "range append(<-result, missing[:0]...) {",
		}},
		pkg: ".", test: "TestReleaseAllThatDoesNotReturn",
	},
	{
		guard:   "an Export without an answer is released after an Unlock",
		file:    "internal/engine/move.go",
		without: "a grant that was exported, and whose handle nothing has, stays for its TTL",
		edits: []edit{{
			old: " || r.err == nil || r.isUnknown // no caller gets the ticket",
			new: " || r.err == nil // no caller gets the ticket",
		}},
		pkg: ".", test: "TestUnlockForAMinimumHoldDuringAnExport",
	},
	{
		guard: "Close cancels no context of a waiter", file: "internal/engine/contend.go",
		without: "a Lock in the context of a lease returns Canceled when the client is closed",
		edits: []edit{{
			old: "e.abandon(w)\n\t\t\treturn turn{}, e.endOf(ctx)",
			new: "e.abandon(w)\n\t\t\treturn turn{}, ContextError(ctx)",
		}},
		pkg: ".", test: "TestCloseEndsAWaiterWithAContextOfALease",
	},
	{
		guard: "Close logs what it leaves", file: "internal/engine/close.go",
		without: "locks of a silent server stay for their TTL, and the log has no word of it",
		edits: []edit{{
			old: "err != nil {\n\t\te.Log(slog.LevelWarn",
			new: "err == nil {\n\t\te.Log(slog.LevelWarn",
		}},
		pkg: ".", test: "TestCloseLogsWhatIsLeft",
	},
	{
		guard: "a missed deadline has a reason", file: "internal/engine/clock.go",
		without: "after an outage the reason of a loss does not say why no renewal succeeded",
		edits: []edit{{
			old: "cmp.Or(a.overdue, errTermOver)", new: "cmp.Or(errTermOver, a.overdue)",
		}},
		pkg: ".", test: "TestReasonOfALoss",
	},
	{
		guard: "Close waits for no lock-delay", file: "internal/engine/close.go",
		without: "Close takes up to 5 s after a loss with a lock-delay",
		edits: []edit{{
			old: "\t\ta.leaveToTerm()\n",
			new: "",
		}},
		pkg: ".", test: "TestCloseDoesNotWaitForLockDelays",
	},
	{
		guard: "Close waits for repeated releases", file: "internal/engine/state.go",
		without: "a request that is executed after Close locks its name for a TTL",
		edits: []edit{{
			old: "if s != requesting && s != gone {",
			new: "if s != requesting && s != gone && s != settled {",
		}},
		pkg: ".", test: "TestCloseWaitsForARepetitionUnderWay",
	},
	{
		guard: "a tenure that is over is never taken", file: "internal/engine/state.go",
		without: "a waiter gets a lease on a lock that is lost",
		edits: []edit{{
			old: "over:    {none, none},", new: "over:    {held, none},",
		}},
		pkg: "internal/engine", test: "TestEveryCellOfTheTable/tenure",
	},
	{
		guard: "a lease is unlocked once", file: "internal/engine/state.go",
		without: "a second Unlock of a lease releases the lock of the next holder",
		edits: []edit{{
			old: "leaseUnlocked: {none, none, none},",
			new: "leaseUnlocked: {none, none, leaseHeld},",
		}},
		pkg: "internal/engine", test: "TestEveryCellOfTheTable/lease",
	},
	{
		guard: "the clocks are compared repeatedly", file: "internal/engine/scheduler.go",
		without: "a lease that was held for a while outlives a suspend of the machine",
		edits:   []edit{{old: "(e.live > 0 || e.stirs) && (", new: "e.live < 0 && ("}},
		pkg:     "internal/engine", test: "TestClocksAreComparedAgainAndAgain",
	},
	{
		guard: "encodings of names are fixed", file: "backend/key/key.go",
		without: "two versions of a program encode a name differently: two holders",
		edits:   []edit{{old: "'a' <= c && c <= 'z'", new: "'a' <= c && c < 'z'"}},
		pkg:     "backend/key", test: "TestEncodingsAreGolden",
	},
	{
		guard: "a silent node delays no other node", file: "internal/engine/release.go",
		without: "a lock on another node stays taken for minutes",
		edits: []edit{{
			old: "senderTimeout = 100 * time.Millisecond",
			new: "senderTimeout = time.Hour",
		}},
		pkg: ".", test: "TestReleasesOfASilentNodeDelayNoOther",
	},
	{
		guard: "a silent node costs few goroutines", file: "internal/engine/release.go",
		without: "while a server is silent, each lock that it holds costs a goroutine",
		edits: []edit{{
			old: "senderTimeout = 100 * time.Millisecond",
			new: "senderTimeout = 10 * time.Millisecond",
		}},
		pkg: ".", test: "TestReleasesOfASilentNodeDelayNoOther",
	},
	{
		guard: "the queue of events is bounded", file: "internal/engine/notify.go",
		without: "a blocked Observer fills the memory",
		edits:   []edit{{old: "if len(n.queue) >= maxNotes {", new: "if false {"}},
		pkg:     ".", test: "TestEventsOfASlowObserverAreBounded",
	},
	{
		guard: "a suspend is detected", file: "internal/engine/scheduler.go",
		without: "a lease outlives a suspend of the machine by minutes",
		edits:   []edit{{old: "\tif asleep {", new: "\tif false && asleep {"}},
		pkg:     "internal/engine", test: "TestSuspend",
	},
	{
		guard: "a suspend is detected within 60 ms", file: "internal/engine/clock.go",
		without: "a lease outlives a suspend of the machine by half a second",
		edits: []edit{{
			old: "wallTick = 50 * time.Millisecond", new: "wallTick = 500 * time.Millisecond",
		}},
		pkg: "internal/engine", test: "TestClocksAreComparedEveryTick",
	},
	{
		guard: "Deadline compares the clocks", file: "internal/engine/lease.go",
		without: "after a stop of the process Deadline does not detect the loss",
		edits: []edit{{
			old: "	_ = l.check()\n	return l.tenure.deadline(e.now())\n",
			new: "	return l.tenure.deadline(e.now())\n",
		}},
		pkg: "internal/engine", test: "TestViewsOfALeaseCompareTheClocks",
	},
	{
		guard: "Lost compares the clocks", file: "internal/engine/lease.go",
		without: "after a stop of the process Lost returns an open channel for a lost lease",
		edits: []edit{{
			old: "	_ = l.check()\n	return v.lost\n", new: "	return v.lost\n",
		}},
		pkg: "internal/engine", test: "TestViewsOfALeaseCompareTheClocks",
	},
	{
		guard: "deadlines include a suspend", file: "internal/engine/clock.go",
		without: "a lease that outlives a suspend ends too late",
		edits:   []edit{{old: "d > minSuspend", new: "false && d > 0"}},
		pkg:     "internal/engine", test: "TestSuspend",
	},
	{
		guard: "Close repeats an unanswered release", file: "internal/engine/release.go",
		without: "a lock stays taken for a TTL after Close",
		edits:   []edit{{old: "\ta.on(silenceEvent)", new: "\ta.on(finishEvent)"}},
		pkg:     ".", test: "TestCloseRepeatsReleasesOfUnlock",
	},
	{
		guard:   "after ErrUnavailable a release was not executed",
		file:    "internal/engine/release.go",
		without: "Unlock of a lost lock returns nil",
		edits: []edit{{
			old: "\t\tif !r.isUnavailable { // else", new: "\t\tif true { // else",
		}},
		pkg: ".", test: "TestNotHeldAtUnlock",
	},
	{
		guard: "waiters do not retry together", file: "internal/engine/contend.go",
		without: "all waiters send their requests at the same time",
		edits:   []edit{{old: "jittered(l.TTL / waitPart)", new: "l.TTL / waitPart"}},
		pkg:     ".", test: "TestWaitersDoNotRetryTogether",
	},
	{
		guard: "a reliable Wait is not cut short", file: "internal/engine/contend.go",
		without: "a thousand processes that wait on one file wake up all the time",
		edits: []edit{{
			old: "if busy.Reliable {\n\t\treturn", new: "if false {\n\t\treturn",
		}},
		pkg: ".", test: "TestReliableWaits",
	},
	{
		guard: "a dropped lease splits no batch", file: "internal/engine/lease.go",
		without: "a dropped lease costs the renewals that are due soon another request",
		edits:   []edit{{old: "\t\tt.acq.schedule() // without", new: "\t\t_ = 0 // without"}},
		pkg:     "internal/engine", test: "TestDroppedLeaseSplitsNoBatch",
	},
	{
		guard: "a long Wait is no silence", file: "internal/engine/contend.go",
		without: "after a Wait as long as the TTL, the next failed request ends Lock",
		edits: []edit{{
			old: "if busy.Reliable { // it waited; no silence",
			new: "if false { // it waited; no silence",
		}},
		pkg: ".", test: "TestReliableWaitIsNoSilence",
	},
	{
		guard: "a Wait that fails late is repeated", file: "internal/engine/contend.go",
		without: "a Wait of a TTL that fails once ends Lock",
		edits: []edit{{
			old: "it waited; no silence\n\t\ta.answered = time.Now()",
			new: "it waited; no silence\n\t\ta.answered = time.Time{}",
		}},
		pkg: ".", test: "TestReliableWaitIsNoSilence",
	},
	{
		guard: "a Wait that may miss a message is repeated", file: "internal/engine/contend.go",
		without: "one lost message of a server stops a waiter for ever",
		edits:   []edit{{old: "if busy.Reliable {\n\t\treturn", new: "if true {\n\t\treturn"}},
		pkg:     ".", test: "TestReliableWaits",
	},
	{
		guard: "a URL without a host shows no password", file: "backend/url.go",
		without: "an error text shows the password",
		edits:   []edit{{old: "name, _, _ := strings.Cut(host, \":\")", new: "name := host"}},
		pkg:     "backend", test: "TestParseURLRefuses",
	},
	{
		guard: "Close works in the body of a List loop", file: "internal/engine/close.go",
		without: "Close waits for its own caller, and closes the driver during the call",
		edits:   []edit{{old: "\tlater := e.closeByLoop\n", new: "\tlater := false\n"}},
		pkg:     ".", test: "TestCloseInTheBodyOfAList",
	},
	{
		guard: "only one loop closes the driver", file: "internal/engine/close.go",
		without: "after Close in the body of a List loop, the driver is closed twice",
		edits: []edit{{
			old: "\t\te.closeByLoop = false // a loop that",
			new: "\t\t// a loop that",
		}},
		pkg: "internal/engine", test: "TestOneLoopClosesTheDriver",
	},
	{
		guard: "a panic of the driver frees the name", file: "internal/engine/contend.go",
		without: "the name stays locked in the client",
		edits:   []edit{{old: "\t\tif !returned {", new: "\t\tif false && !returned {"}},
		pkg:     ".", test: "TestNameIsFreeAfterAPanic",
	},
	{
		guard: "a hand-off does not count the lock-delay", file: "internal/engine/queue.go",
		without: "a lease is handed off with little time left",
		edits:   []edit{{old: "(a.term.TTL-l.LockDelay)/2", new: "a.term.TTL/2"}},
		pkg:     ".", test: "TestHandOffLeavesTheLockDelayOut",
	},
	{
		guard: "Unlock sets the reason of a loss", file: "internal/engine/lease.go",
		without: "Err is ErrNotHeld after an Unlock that returned ErrLost",
		edits:   []edit{{old: "\tl.setReason(err)\n", new: ""}},
		pkg:     ".", test: "TestReasonOfALoss",
	},
	{
		guard: "a second Unlock after a loss is ErrNotHeld", file: "internal/engine/state.go",
		without: "a repeated Unlock counts as the Unlock of another lease: released too early",
		edits: []edit{{
			old: "leaseEnded:    {none, none, leaseUnlocked},",
			new: "leaseEnded:    {none, none, leaseEnded},",
		}},
		pkg: ".", test: "TestLossAtTheDeadlineAndNotBefore",
	},
	{
		guard: "Unlock after a maximum hold releases at once", file: "internal/engine/lease.go",
		without: "the lock stays taken for the rest of its term",
		edits:   []edit{{old: "\t\t\tt.acq.releaseEarly()\n", new: ""}},
		pkg:     ".", test: "TestUnlockAfterAMaximumHold",
	},
	{
		guard: "Shutdown is limited by its context alone", file: "internal/engine/close.go",
		without: "Shutdown gives up too early and leaves locks until the end of their TTL",
		edits: []edit{{
			old: "err = e.awaitQuiet(ctx)",
			new: "limit, cancel := context.WithTimeout(ctx, closeTimeout)\n" +
				"\tdefer cancel()\n" +
				"\terr = e.awaitQuiet(limit)",
		}},
		pkg: ".", test: "TestShutdownIsLimitedByItsContextAlone",
	},
	{
		guard: "the end of its own lease ends no Shutdown", file: "internal/engine/close.go",
		without: "Shutdown on a context of a lease leaves locks until the end of their TTL",
		edits:   []edit{{old: "if err != nil && e.EndedByClose(ctx) {", new: "if false {"}},
		pkg:     ".", test: "TestShutdownOnTheContextOfALease",
	},
	{
		guard: "the end of its own lease ends no second Shutdown", file: "client.go",
		without: "of two Shutdowns on a context of a lease, one returns before the locks are free",
		edits:   []edit{{old: "if !c.engine.EndedByClose(ctx) {", new: "if true {"}},
		pkg:     ".", test: "TestSecondShutdownOnTheContextOfALease",
	},
	{
		guard: "Close compares the clocks", file: "internal/engine/close.go",
		without: "Close of a process that was stopped frees a lost lock before its lock-delay",
		edits:   []edit{{old: "\t_ = a.expire(a.engine.now())\n", new: ""}},
		pkg:     "internal/engine", test: "TestCloseAfterTheDeadline/Close",
	},
	{
		guard: "Unlock compares the clocks as Close begins", file: "internal/engine/lease.go",
		without: "Unlock of a lost lease returns ErrClosed",
		edits: []edit{{
			old: "\t_ = t.acq.expire(now)\n\tif e.closing.Err() != nil {",
			new: "\tif e.closing.Err() == nil {\n\t\t_ = t.acq.expire(now)\n\t} else {",
		}},
		pkg: "internal/engine", test: "TestCloseAfterTheDeadline/Unlock_as_Close_begins",
	},
	{
		guard: "a context that panics ends no Shutdown", file: "internal/engine/close.go",
		without: "after a panic of the context of Shutdown, the driver is never closed",
		edits: []edit{
			{
				old: "\tdefer func() { err = errors.Join(err, e.finish()) }() " +
					"// also if ctx panics\n",
				new: "",
			},
			{
				old: "\t\terr = e.awaitQuietUntil(deadline)\n\t}\n\treturn err\n",
				new: "\t\terr = e.awaitQuietUntil(deadline)\n\t}\n" +
					"\treturn errors.Join(err, e.finish())\n",
			},
		},
		pkg: ".", test: "TestShutdownWithAContextThatPanics",
	},
	{
		guard: "a maximum hold begins with the lease", file: "internal/engine/clock.go",
		without: "a grant that was never held is over, and stays on the server for its term",
		edits:   []edit{{old: " && t.state != pending }", new: " }"}},
		pkg:     "internal/engine", test: "TestMaxHoldBeginsWithTheReturnOfLock",
	},
	{
		guard: "a hold is counted from the return of Lock", file: "internal/engine/contend.go",
		without: "a lease is over as soon as Lock returns it",
		edits: []edit{{
			old: "\tt.start = e.now()\n\tt.hold(ref)\n\ta.open(t.start)\n",
			new: "\tt.hold(ref)\n\ta.open(e.now())\n",
		}},
		pkg: "internal/engine", test: "TestMaxHoldBeginsWithTheReturnOfLock",
	},
	{
		guard: "Shutdown counts no released lock", file: "internal/engine/close.go",
		without: "the error of Shutdown counts released locks as left to their TTL",
		edits:   []edit{{old: "add(e.open-e.freed, ", new: "add(e.open, "}},
		pkg:     ".", test: "TestShutdownNamesWhatIsLeft",
	},
	{
		guard: "a waiter that was stopped keeps its place", file: "internal/engine/contend.go",
		without: "after a stop of its process Lock returns ErrUnavailable",
		edits: []edit{{
			old: "if errors.Is(err, errLate) && a.busy != nil {", new: "if false {",
		}},
		pkg: ".", test: "TestWaiterThatWasStopped",
	},
	{
		guard: "a waiter keeps its place after a loss", file: "internal/engine/contend.go",
		without: "a waiter with a grant that is lost at once goes to the end of its line",
		edits: []edit{{
			old: "	case ln == nil:\n		return a.engine.reachFront(ctx, l, wait)\n",
			new: "	default:\n		a.engine.mu.Lock()\n" +
				"		a.engine.serve(ln, turn{kind: requestTurn})\n		a.engine.unlock()\n" +
				"		return a.engine.reachFront(ctx, l, wait)\n",
		}},
		pkg: ".", test: "TestWaiterWhoseEntryIsLostKeepsItsPlace",
	},
	{
		guard: "a poller that was stopped keeps its place", file: "internal/engine/contend.go",
		without: "after a stop of its process during a request, Lock returns ErrUnavailable",
		edits: []edit{{
			old: "if errors.Is(err, errLate) && a.busy != nil {",
			new: "if errors.Is(err, errLate) && waited {",
		}},
		pkg: ".", test: "TestWaiterThatWasStoppedDuringARequest",
	},
	{
		guard: "a silence contains few stops of the process", file: "internal/engine/contend.go",
		without: "Lock never returns if the server is silent and the driver returns late each time",
		edits:   []edit{{old: " && a.stops < maxStops {", new: " {"}},
		pkg:     ".", test: "TestLateDriverIsSilent",
	},
	{
		guard: "a stop of the process is no silence", file: "internal/engine/contend.go",
		without: "after a stop during a Wait there is no time for the next attempt",
		edits: []edit{{
			old: "a.discountStop(began, limit) // the next",
			new: "_ = began // the next",
		}},
		pkg: ".", test: "TestWaiterThatWasStoppedHasTimeForAnAttempt",
	},
	{
		guard: "a silence begins with the last answer", file: "internal/engine/contend.go",
		without: "a waiter with a long TTL gives up after the short TTL of the waiter before it",
		edits: []edit{{
			old: "s.answered = later(s.answered, w.joined)",
			new: "s.answered = w.joined",
		}},
		pkg: ".", test: "TestSilenceBeginsWithTheLastAnswer",
	},
	{
		guard: "an unknown outcome is no ErrUnavailable", file: "internal/engine/errors.go",
		without: "a caller repeats a Break or an Export that was executed",
		edits: []edit{{
			old: "	case errors.Is(failure, backend.ErrUnavailable):\n" +
				"		failure = cmp.Or(ended(ctx), errNoAnswer)\n",
			new: "	case false:\n		failure = cmp.Or(ended(ctx), errNoAnswer)\n",
		}},
		pkg: ".", test: "TestUncertainIsNotUnavailable",
	},
	{
		guard: "a release serves one waiter", file: "internal/engine/queue.go",
		without: "a driver that reports a release as sent twice lets two waiters send requests",
		edits: []edit{{
			old: "\tln := a.line\n\ta.line = nil\n", new: "\tln := a.line\n",
		}},
		pkg: ".", test: "TestDriverThatReportsASendingTwice",
	},
	{
		guard: "a move that returns nothing is an error", file: "internal/engine/move.go",
		without: "a Downgrade of a driver that returns nothing ends the process",
		edits: []edit{{
			old: "\tif err == nil && shared == nil {\n", new: "\tif false {\n",
		}},
		pkg: ".", test: "TestMoveThatReturnsNothing",
	},
	{
		guard: "a lock that comes after Close is logged", file: "internal/engine/release.go",
		without: "a lock that is granted after Close stays taken, and no log line has its name",
		edits:   []edit{{old: "\tcase e.phase == phaseStopped:\n", new: "\tcase false:\n"}},
		pkg:     ".", test: "TestDriverThatAnswersAfterClose",
	},
	{
		guard: "a lock-delay that is too long is refused as such", file: "options.go",
		without: "the error of a long lock-delay is about a TTL that the user has not set",
		edits: []edit{{
			old: "caps.MaxTTL > 0 && room >= shortestTTL(caps)", new: "caps.MaxTTL > 0",
		}},
		pkg: ".", test: "TestLockDelayThatLeavesNoTTL",
	},
	{
		guard: "Elect returns the end of its context once", file: "elect.go",
		without: "the error of an Elect that was cancelled repeats its line",
		edits:   []edit{{old: "isTemporary(err), isEnd(ctx, err):", new: "isTemporary(err):"}},
		pkg:     ".", test: "TestElectReturnsTheEndOfItsContextOnce",
	},
	{
		guard: "the error of a leader ends Elect", file: "elect.go",
		without: "a leader that fails stands again, and Elect never returns its error",
		edits:   []edit{{old: "\t\treturn err\n\t})\n", new: "\t\treturn nil\n\t})\n"}},
		pkg:     ".", test: "TestElectEnds",
	},
	{
		guard: "the error of a deposed leader does not end Elect", file: "elect.go",
		without: "a candidate whose lease is lost never leads again",
		edits: []edit{{
			old: "if deposed || failure == nil && errors.Is(err, ErrLost) {",
			new: "if deposed && failure != nil {",
		}},
		pkg: ".", test: "TestOneLeaderAtATime",
	},
	{
		guard: "an election is not handed off", file: "elect.go",
		without: "two candidates of one client keep the candidates of other clients waiting",
		edits: []edit{{
			old: "append(slices.Clone(opts), WithLocalHandoff(0))", new: "slices.Clone(opts)",
		}},
		pkg: ".", test: "TestElectionIsNotHandedOff",
	},
	{
		guard: "a leader that resigned pauses", file: "elect.go",
		without: "a leader that resigns leads again before any other candidate",
		edits: []edit{{
			old: "\t\tc.engine.Pause(ctx, failures, min(m.lock.MaxPause(), maxElectPause))\n",
			new: "",
		}},
		pkg: ".", test: "TestResignedLeaderPauses",
	},
	{
		guard: "a permit is handed off", file: "internal/engine/queue.go",
		without: "each permit that passes between two waiters of a client costs two requests",
		edits: []edit{{
			old: "\tif a.lock.mode() == backend.Permit {\n\t\treturn a.engine.lines[",
			new: "\tif false {\n\t\treturn a.engine.lines[",
		}},
		pkg: ".", test: "TestPermitIsHandedOff",
	},
	{
		guard: "the limit of a semaphore is limited", file: "semaphore.go",
		without: "a driver gets a limit that its server cannot store",
		edits:   []edit{{old: "limit < 1 || limit > maxLimit", new: "limit < 1"}},
		pkg:     ".", test: "TestBadKinds",
	},
	{
		guard: "the names of LockAll are limited", file: "multi.go",
		without: "one call makes a request that is too large for its server",
		edits: []edit{{
			old: "len(names) < 1 || len(names) > maxNames", new: "len(names) < 1",
		}},
		pkg: ".", test: "TestBadLockAll",
	},
	{
		guard: "Adopt refuses the handle of another backend", file: "move.go",
		without: "a ticket of one server is tried on another one",
		edits: []edit{{
			old: "x.Backend != own || x.Prefix != c.prefix", new: "x.Prefix != c.prefix",
		}},
		pkg: ".", test: "TestHandleOfAnotherBackend",
	},
	{
		guard: "Adopt refuses the handle of another prefix", file: "move.go",
		without: "a program adopts the lock of a program with another prefix",
		edits: []edit{{
			old: "x.Backend != own || x.Prefix != c.prefix", new: "x.Backend != own",
		}},
		pkg: "membackend", test: "TestConformance/ForgedHandleIsRefused",
	},
	{
		guard: "an event has the present mode", file: "internal/engine/notify.go",
		without: "after a Downgrade the events of a reader are about a writer",
		edits: []edit{{
			old: "Mode: t.acq.presentMode(),", new: "Mode: t.lock.mode(),",
		}},
		pkg: ".", test: "TestEventsAfterADowngrade",
	},
	{
		guard: "Observe on a context that has ended yields no error", file: "watch.go",
		without: "a loop over Observe gets an error if its context ends before the first request",
		edits: []edit{{
			old: "case err != nil && ctx != nil && engine.ContextError(ctx) != nil:",
			new: "case false:",
		}},
		pkg: ".", test: "TestObserveOnADeadContext",
	},
	{
		guard: "spurious wake-ups are slowed down", file: "internal/engine/pace.go",
		without: "a driver with spurious wake-ups floods its server",
		edits:   []edit{{old: "\tif p.hints <= freeHints {", new: "\tif true {"}},
		pkg:     ".", test: "TestDriverThatWakesForNoReason",
	},
	{
		guard: "readers of a client share a young grant only", file: "internal/engine/queue.go",
		without: "a stream of readers in one process keeps a writer of another one waiting",
		edits: []edit{{
			old: "a.lock.MaxHold == 0 && l.MaxHold == 0 &&\n\t\ta.isYoung(a.engine.now())",
			new: "a.lock.MaxHold == 0 && l.MaxHold == 0",
		}},
		pkg: ".", test: "TestReadersShareAGrant",
	},
	{
		guard: "waiting readers of a client share a grant", file: "internal/engine/queue.go",
		without: "each reader of a crowd in one process costs two requests",
		edits: []edit{{
			old: "w != nil && a.canAdmit(w.lock); w = ln.first", new: "false; w = ln.first",
		}},
		pkg: "membackend", test: "TestConformance/ReadersOfAClientMakeNoTrip",
	},
	{
		guard: "a reader does not wait for itself", file: "internal/engine/lease.go",
		without: "a writer in the context of a reader waits for ever",
		edits:   []edit{{old: "return false, errUpgrade", new: "return false, nil"}},
		pkg:     ".", test: "TestUpgradeIsRefused",
	},
	{
		guard: "the Unlock of one reader keeps the grant", file: "internal/engine/release.go",
		without: "the first reader that unlocks frees the lock of all",
		edits: []edit{{
			old: "case !t.isAlone():\n\t\tt.on(", new: "case false:\n\t\tt.on(",
		}},
		pkg: ".", test: "TestReadersShareAGrant",
	},
	{
		guard: "LockAll frees what it has before it waits", file: "internal/engine/all.go",
		without: "a call that waits for one lock keeps its other locks taken",
		edits:   []edit{{old: "\t\te.freeAll(ctx, refs)\n", new: ""}},
		pkg:     ".", test: "TestLockAllKeepsNothingClosed",
	},
	{
		guard: "LockAll keeps no minimum hold of a trial", file: "internal/engine/all.go",
		without: "locks that LockAll had for a moment stay closed",
		edits: []edit{{
			old: "s.MinHold, s.MaxHold, s.Handoff, s.isTrial = 0, 0, 0, true",
			new: "s.isTrial = true",
		}},
		pkg: ".", test: "TestLockAllKeepsNothingClosed",
	},
	{
		guard: "LockAll notes no end of a trial", file: "internal/engine/lease.go",
		without: "an Observer counts an end of the outer lease at each round of LockAll",
		edits:   []edit{{old: "\tif !l.trial {\n", new: "\t{\n"}},
		pkg:     ".", test: "TestRoundsOfLockAllCauseNoEvents",
	},
	{
		guard: "LockAll notes the end of its leases", file: "internal/engine/all.go",
		without: "an Observer sees leases that never end",
		edits:   []edit{{old: "\t\tref.lease.trial = false\n", new: ""}},
		pkg:     ".", test: "TestRoundsOfLockAllCauseNoEvents",
	},
	{
		guard: "LockAll finds the lock that is refused", file: "internal/engine/all.go",
		without: "LockAll tries for ever if the server refuses each request about one lock",
		edits: []edit{{
			old: "r.together = err == nil || isTaken(err)", new: "r.together = true",
		}},
		pkg: ".", test: "TestLockAllEndsAfterOneRefusedLock",
	},
	{
		guard: "LockAll outlives a loss before its end", file: "internal/engine/all.go",
		without: "a Break during a LockAll ends it",
		edits:   []edit{{old: " || isLost(err)) &&", new: ") &&"}},
		pkg:     ".", test: "TestLockAllOutlivesALoss",
	},
	{
		guard:   "LockAll frees its locks before it checks its context",
		file:    "internal/engine/all.go",
		without: "after a panic of the context, the locks of a round stay taken",
		edits: []edit{{
			old: "	all := e.startUnlocks(ctx, leases, false)\n" +
				"	if ended(ctx) != nil {\n		return\n	}\n",
			new: "	if ended(ctx) != nil {\n		return\n	}\n" +
				"	all := e.startUnlocks(ctx, leases, false)\n",
		}},
		pkg: ".", test: "TestLockAllFreesAfterABrokenContext",
	},
	{
		guard: "LockAll frees what it has after a panic", file: "internal/engine/all.go",
		without: "a driver that panics once leaves names locked in the client for ever",
		edits:   []edit{{old: "\t\tif !returned {", new: "\t\tif false && !returned {"}},
		pkg:     ".", test: "TestLockAllFreesAfterAPanic",
	},
	{
		guard: "LockAll waits for a lock without an answer", file: "internal/engine/all.go",
		without: "one lost reply ends a LockAll, but not a Lock",
		edits: []edit{{
			old: "return isTaken(err) || unanswered &&",
			new: "return isTaken(err) || false && unanswered &&",
		}},
		pkg: ".", test: "TestLockAllOutlivesALostReply",
	},
	{
		guard: "LockAll ends when a server is away", file: "internal/engine/all.go",
		without: "LockAll never returns while the server of one lock is away",
		edits: []edit{{
			old: "unanswered && !hasWaited &&", new: "unanswered && (hasWaited || true) &&",
		}},
		pkg: ".", test: "TestLockAllOutlivesALostReply",
	},
	{
		guard: "LockAll frees its locks at the same time", file: "internal/engine/all.go",
		without: "with n releases without an answer the last lock stays taken for n times 5 s",
		edits: []edit{{
			old: "for _, u := range releases {\n" +
				"\t\te.start(func() { u.release(ctx, now, nil) })\n\t}",
			new: "e.start(func() {\n\t\tfor _, u := range releases {\n" +
				"\t\t\tu.release(ctx, time.Now(), nil)\n\t\t}\n\t})",
		}},
		pkg: ".", test: "TestLockAllFreesInParallel",
	},
	{
		guard: "a panic in the release of several is an error", file: "internal/engine/all.go",
		without: "a driver that panics in the Unlock of a MultiLease ends the process",
		edits:   []edit{{old: "value := recover(); value", new: "value := any(nil); value"}},
		pkg:     ".", test: "TestUnlockAllOutlivesPanics",
	},
	{
		guard: "a context is read before several Unlocks begin", file: "internal/engine/all.go",
		without: "MultiLease.Unlock with a context that panics does not panic for its caller",
		edits: []edit{{
			old: "\tdone := ctx.Done() // code of a user, which may not return\n" +
				"\tonce := isClosed(done)\n" +
				"\tall := e.startUnlocks(ctx, leases, once)\n",
			new: "\tall := e.startUnlocks(ctx, leases, false)\n" +
				"\tdone := ctx.Done()\n" +
				"\tonce := isClosed(done)\n",
		}},
		pkg: ".", test: "TestUnlockAllOutlivesPanics",
	},
	{
		guard: "LockAll waits for its lowest lock", file: "internal/engine/all.go",
		without: "callers of the same names keep each other from all of them for ever",
		edits: []edit{{
			old: "case !taken || !waited || missing == first:",
			new: "case true || missing == first:",
		}},
		pkg: ".", test: "TestLockAllMakesProgress",
	},
	{
		guard: "LockAll waits for another lock with patience", file: "internal/engine/all.go",
		without: "callers leave the lowest lock for a lock that is held for a moment",
		edits:   []edit{{old: "patience = 3", new: "patience = 1"}},
		pkg:     ".", test: "TestLockAllMakesProgress",
	},
	{
		guard: "LockAll waits for a lock that is held for long", file: "internal/engine/all.go",
		without: "LockAll sends requests all the time while one of its locks is held",
		edits:   []edit{{old: "patience = 3", new: "patience = 1e9"}},
		pkg:     ".", test: "TestLockAllWaitsForALongHold",
	},
	{
		guard: "LockAll in one step gives its places up", file: "internal/engine/together.go",
		without: "an attempt that is refused leaves its names locked in the client for ever",
		edits: []edit{{
			old: "\tdefer func() { e.giveUpAll(members) }()", new: "\t",
		}},
		pkg: ".", test: "TestLockAllWaitsForTheTakenLock",
	},
	{
		guard: "a request for several locks may be executed", file: "internal/engine/together.go",
		without: "locks that were granted before a panic stay taken for a term",
		edits:   []edit{{old: "&a.request, true", new: "&a.request, false"}},
		pkg:     ".", test: "TestLockAllInOneStepFreesAfterAPanic",
	},
	{
		guard: "all grants belong to their acquisitions", file: "internal/engine/together.go",
		without: "if one of several grants is unusable, the usable ones stay taken for a term",
		edits: []edit{{
			old: "\t\tif a.state == requesting {\n",
			new: "\t\tif a.state == requesting {\n\t\t\ta.grant = nil\n",
		}},
		pkg: ".", test: "TestLossDuringAnAttemptForAll",
	},
	{
		guard: "a part of several grants is no answer", file: "internal/engine/together.go",
		without: "a driver that returns too few grants ends the process",
		edits:   []edit{{old: "(len(grants) != len(reqs) ||", new: "(false ||"}},
		pkg:     ".", test: "TestPartOfAllIsUnknown",
	},
	{
		guard: "the index of a refusal is checked", file: "internal/engine/together.go",
		without: "a driver that returns a wrong index ends the process",
		edits: []edit{{
			old: "if failed < 0 || failed >= len(members) {", new: "if false {",
		}},
		pkg: ".", test: "TestPartOfAllIsUnknown",
	},
	{
		guard: "a panic in one release of several", file: "internal/engine/together.go",
		without: "a driver that panics in the Unlock of a MultiLease ends the process",
		edits:   []edit{{old: "e.recovered(recover()); len", new: "e.recovered(nil); len"}},
		pkg:     ".", test: "TestUnlockInOneStepOutlivesPanics",
	},
	{
		guard: "a release of several goes on alone", file: "internal/engine/together.go",
		without: "a lock whose release had no answer stays taken for longer",
		edits: []edit{{
			old: "a.engine.start(func() { u.release(ctx, now, err) })",
			new: "u.result <- answer",
		}},
		pkg: ".", test: "TestReleaseWithoutAnAnswerGoesOnAlone",
	},
	{
		guard: "several leases have one channel", file: "internal/engine/lease.go",
		without: "a channel of an earlier MultiLease.Lost is never closed",
		edits:   []edit{{old: "if n.lost == nil {", new: "if true {"}},
		pkg:     ".", test: "TestLostOfSeveralIsOneChannel",
	},
	{
		guard: "Lost of several leases compares the clocks", file: "internal/engine/lease.go",
		without: "after a stop the channel of a MultiLease is open for some ms",
		edits: []edit{{
			old: "if l.check() != nil {\n\t\t\tn.end()", new: "if l.reason != nil {\n\t\t\tn.end()",
		}},
		pkg: ".", test: "TestLostOfSeveralComparesTheClocks",
	},
	{
		guard: "a panic in a Watch ends no process", file: "internal/engine/watch.go",
		without: "a driver that panics in Watch ends the process",
		edits:   []edit{{old: "value := recover(); value", new: "value := any(nil); value"}},
		pkg:     ".", test: "TestObserveOutlivesItsWatch",
	},
	{
		guard: "a Watch that ends its goroutine is repeated", file: "internal/engine/watch.go",
		without: "after a Goexit in Watch a loop over Observe gets changes only every 10 s",
		edits:   []edit{{old: "\t\t\tw.start(ctx)\n", new: "\t\t\tclose(w.done)\n"}},
		pkg:     ".", test: "TestObserveOutlivesItsWatch",
	},
	{
		guard: "a loop leaves a Watch that does not return", file: "internal/engine/watch.go",
		without: "a loop over Observe never ends if the driver's Watch ignores its context",
		edits: []edit{{
			old: "if !waitFor(w.done, joinTimeout) {", new: "if <-w.done; false {",
		}},
		pkg: ".", test: "TestObserveLeavesAWatchThatDoesNotReturn",
	},
	{
		guard: "a Watch that has worked is repeated at once", file: "internal/engine/watch.go",
		without: "days after some ends of its Watch, a loop over Observe gets a change late",
		edits:   []edit{{old: "took > maxWatchPause", new: "took > maxWatchPause && false"}},
		pkg:     ".", test: "TestPausesOfAWatch",
	},
	{
		guard: "a Watch that does not work is slowed down", file: "internal/engine/watch.go",
		without: "a driver whose Watch fails at once floods its server",
		edits:   []edit{{old: "took > maxWatchPause", new: "true"}},
		pkg:     ".", test: "TestPausesOfAWatch",
	},
	{
		guard: "another limit is a conflict behind a waiter", file: "internal/engine/queue.go",
		without: "a semaphore with another limit waits behind a waiter of its client",
		edits: []edit{{
			old: "if l.Limit != ln.lock.Limit {",
			new: "if (l.Limit == 0) != (ln.lock.Limit == 0) {",
		}},
		pkg: ".", test: "TestOtherLimitBehindAWaiter",
	},
	{
		guard: "a handle has the present mode", file: "internal/engine/move.go",
		without: "a lease that is exported after a Downgrade cannot be adopted",
		edits:   []edit{{old: "x.Handoff = a.mode,", new: "x.Handoff = a.lock.mode(),"}},
		pkg:     "membackend", test: "TestConformance/DowngradedLeaseMoves",
	},
	{
		guard: "an Export needs a known mode", file: "internal/engine/move.go",
		without: "a lease that is exported after a Downgrade without an answer cannot be adopted",
		edits:   []edit{{old: "case a.mode == eitherMode:", new: "case false:"}},
		pkg:     ".", test: "TestExportNeedsAKnownMode",
	},
	{
		guard: "an Export waits for late requests", file: "internal/engine/move.go",
		without: "a request that is executed late locks the name after the adopter's Unlock",
		edits:   []edit{{old: "case a.repeat && a.engine", new: "case false && a.engine"}},
		pkg:     ".", test: "TestExportLeavesNoGhost",
	},
	{
		guard: "no lease joins a grant that moves", file: "internal/engine/lease.go",
		without: "a lease that joins during an Export is held by two processes",
		edits:   []edit{{old: "case t.acq.pin.isMoving():", new: "case false:"}},
		pkg:     ".", test: "TestNoLeaseJoinsAMove",
	},
	{
		guard: "one move at a time", file: "internal/engine/move.go",
		without: "a second Export makes the handle of the first one useless",
		edits:   []edit{{old: "case a.pin.isMoving():", new: "case false:"}},
		pkg:     ".", test: "TestNoLeaseJoinsAMove",
	},
	{
		guard: "an adoption that came too late is a loss", file: "internal/engine/move.go",
		without: "the caller tries again with a handle that is consumed",
		edits: []edit{{
			old: "case errors.Is(err, errLate):\n", new: "case false:\n",
		}},
		pkg: ".", test: "TestAdoptedTooLate",
	},
	{
		guard: "a context runs without the mutex", file: "internal/engine/move.go",
		without: "a context that calls the client stops the client",
		edits: []edit{{
			old: "err, a.attempted = e.RequestError(ctx, err), isUnknown(err)\n" +
				"\te.mu.Lock()\n",
			new: "e.mu.Lock()\n" +
				"\terr, a.attempted = e.RequestError(ctx, err), isUnknown(err)\n",
		}},
		pkg: ".", test: "TestContextsRunWithoutTheMutex",
	},
	{
		guard: "a grant that may be shared is not handed off", file: "internal/engine/queue.go",
		without: "after a Downgrade without an answer a writer gets the lock of readers",
		edits:   []edit{{old: "return a.pin == loose && int(", new: "return int("}},
		pkg:     ".", test: "TestUncertainDowngradeIsNotHandedOff",
	},
	{
		guard: "a loss during an Export waits for its answer", file: "internal/engine/scheduler.go",
		without: "a renewal that crosses an Export makes its handle useless",
		edits: []edit{{
			old: "case r.loss != nil && a.pin != inExport:", new: "case r.loss != nil:",
		}},
		pkg: ".", test: "TestLossDuringAnExport",
	},
	{
		guard: "no renewal begins during an Export", file: "internal/engine/tenure.go",
		without: "a renewal keeps a lock closed beyond the end of its handle",
		edits:   []edit{{old: " || a.pin == inExport {", new: " {"}},
		pkg:     ".", test: "TestLossDuringAnExport",
	},
	{
		guard: "renewals go on after an Export", file: "internal/engine/move.go",
		without: "a lease whose Export was refused is lost at its deadline",
		edits: []edit{{
			old: "	default:\n		a.schedule() // the renewals go on\n", new: "",
		}},
		pkg: ".", test: "TestRenewalsGoOnAfterAnExport",
	},
	{
		guard:   "a grant that is lost during its Export is released",
		file:    "internal/engine/acquisition.go",
		without: "a lock whose ticket has no owner stays taken until the end of its term",
		edits:   []edit{{old: "if a.repeat || a.pin == inExport {", new: "if a.repeat {"}},
		pkg:     ".", test: "TestReportedLossDuringAnExport",
	},
	{
		guard: "an adoption that Close undoes is uncertain", file: "internal/engine/move.go",
		without: "the caller tries again with a handle that is consumed",
		edits: []edit{{
			old: "		case errors.Is(err, backend.ErrClosed):\n", new: "		case false:\n",
		}},
		pkg: ".", test: "TestAdoptionThatCloseUndoes",
	},
	{
		guard: "a trial lease notes no end", file: "internal/engine/lease.go",
		without: "a count of the held locks becomes negative",
		edits:   []edit{{old: "t.silent = !l.trial", new: "t.silent = true"}},
		pkg:     ".", test: "TestEndsOfAnOuterLeaseDuringLockAll",
	},
	{
		guard: "a slow renewal gives its place away", file: "internal/engine/scheduler.go",
		without: "the locks of a silent server cost the others their leases",
		edits:   []edit{{old: "if len(r.queue) > 0 && r.slow", new: "if false && r.slow"}},
		pkg:     "./internal/engine", test: "TestSilentLocksCostNoOtherLease",
	},
	{
		guard: "a lease without renewals gets its whole TTL", file: "internal/engine/contend.go",
		without: "one failed request leaves a lease of a third of its TTL",
		edits:   []edit{{old: "return a.lock.NoRenewal && !a", new: "return false && !a"}},
		pkg:     ".", test: "TestGrantThroughWaitWithoutRenewal",
	},
	{
		guard: "a Wait without an answer is cleaned up", file: "internal/engine/contend.go",
		without: "a grant through a Wait whose answer was lost stays taken for its TTL",
		edits: []edit{{
			old: "isUnknown(err):\n\t\ta.attempted, a.uncertain = true, true",
			new: "isUnknown(err):",
		}},
		pkg: ".", test: "TestWaitWithAnUnknownOutcome",
	},
	{
		guard: "a dropped lease keeps its minimum hold", file: "internal/engine/tenure.go",
		without: "a nightly job whose lease is forgotten runs twice",
		edits: []edit{{
			old: "return t.state == pending || t.mustStay(t.acq.engine.now())",
			new: "return t.state == pending",
		}},
		pkg: ".", test: "TestDroppedLeaseStaysForItsMinimumHold",
	},
	{
		guard: "a request ends before its driver is closed", file: "internal/engine/scheduler.go",
		without: "Shutdown closes a driver in the middle of a call",
		edits:   []edit{{old: ".EndWith(a.engine.working)", new: ""}},
		pkg:     ".", test: "TestShutdownEndsRequests",
	},
	{
		guard: "the end of an own lease by Close is ErrClosed", file: "internal/engine/errors.go",
		without: "a caller that has cancelled nothing is told that it has",
		edits: []edit{{
			old: "if e.closing.Err() != nil && e.EndedByClose(ctx) {", new: "if false {",
		}},
		pkg: ".", test: "TestCallsOnAnOwnLeaseAfterClose",
	},
	{
		guard: "Observe yields again after an error", file: "watch.go",
		without: "a user that takes an error for unknown does not hear of the same leader again",
		edits: []edit{{
			old: "known = err == nil", new: "known = known || err == nil",
		}},
		pkg: ".", test: "TestObserveYieldsTheStateAgainAfterAnError",
	},
	{
		guard: "the end of Do names its lock", file: "do.go",
		without: "the log of nested Do's does not say which lock was lost",
		edits: []edit{{
			old: "l.client.wrap(\"do\", l.Name(), ended)", new: "ended",
		}},
		pkg: ".", test: "TestDo",
	},
	{
		guard: "a loss is a loss whatever its reason wraps", file: "do.go",
		without: "Do returns nil for work whose lock was lost",
		edits: []edit{{
			old: "case errors.Is(ended, ErrLost), ended != nil", new: "case ended != nil",
		}},
		pkg: ".", test: "TestDo",
	},
	{
		guard: "Do unlocks if its context panics", file: "do.go",
		without: "a lock is renewed by a process that has nothing to unlock it with",
		edits: []edit{{
			old: "\tdefer func() { err = l.finish(ctx, err) }()\n" +
				"\tleaseCtx, end := l.Context(ctx)\n",
			new: "\tleaseCtx, end := l.Context(ctx)\n" +
				"\tdefer func() { err = l.finish(ctx, err) }()\n",
		}},
		pkg: ".", test: "TestContextThatPanicsLater",
	},
	{
		guard: "Do unlocks if its context panics again", file: "do.go",
		without: "a lock is renewed by a process that has nothing to unlock it with",
		edits:   []edit{{old: "if !returned {", new: "if !returned && false {"}},
		pkg:     ".", test: "TestContextThatPanicsLater",
	},
	{
		guard: "releases spare a server that is down", file: "internal/engine/release.go",
		without: "a server that is down gets thousands of releases a second from each client",
		edits:   []edit{{old: "if a.silences > slotAfter &&", new: "if false &&"}},
		pkg:     "internal/engine", test: "TestReleasesSpareAServerThatIsDown",
	},
	{
		guard: "LockAll does not wait for itself", file: "internal/engine/all.go",
		without: "a call that can never succeed waits for ever, and holds a lock meanwhile",
		edits: []edit{{
			old: "if failed, err := e.checkHeld(ctx, r); err != nil {",
			new: "if failed, err := e.checkHeld(ctx, r); err != nil && false {",
		}},
		pkg: ".", test: "TestLockAllOnAContextThatHolds",
	},
	{
		guard: "a grant is of its request", file: "internal/engine/acquisition.go",
		without: "Unlock releases another owner's lock after a mix-up in the driver",
		edits: []edit{{
			old: "return grant.Key != req.Key || grant.Owner != req.Owner",
			new: "return false",
		}},
		pkg: ".", test: "TestGrantOfAnotherLock",
	},
	{
		guard: "a waiter renews no grant of another owner", file: "internal/engine/contend.go",
		without: "a mix-up in the driver prolongs another owner's lock",
		edits:   []edit{{old: "		err = a.checkOwner(grant)\n", new: ""}},
		pkg:     ".", test: "TestGrantOfAnotherLock",
	},
	{
		guard: "a Downgrade brings no grant of another owner", file: "internal/engine/move.go",
		without: "a mix-up in the driver makes an Unlock release another owner's lock",
		edits: []edit{{
			old: "if err == nil && isOther(shared, &grant.Request) {", new: "if false {",
		}},
		pkg: ".", test: "TestDowngradeToAnotherGrant",
	},
	{
		guard: "errors of Extend and Inspect wrap a sentinel", file: "internal/engine/errors.go",
		without: "a caller cannot tell a server that is away from another failure",
		edits: []edit{{
			old: "if ended(ctx) != nil || slices.ContainsFunc(sentinels, isSentinel) {",
			new: "if ended(ctx) != nil || isSentinel != nil {",
		}},
		pkg: ".", test: "TestErrorWithoutASentinel",
	},
	{
		guard: "core: a waiter tries for a TTL", file: "internal/engine/contend.go",
		without: "Lock returns ErrUnavailable after a third of the TTL, although the server " +
			"comes back in time",
		edits: []edit{
			{
				old: "return time.Since(a.answered) >= a.lock.TTL }",
				new: "return time.Since(a.answered) >= a.lock.TTL/3 }",
			},
		},
		pkg: "membackend", test: "TestConformance/UnavailableIsReportedAfterATerm",
	},
	{
		guard: "core: an Unlock lasts for a TTL at most", file: "internal/engine/release.go",
		without: "Unlock waits for a silent server for longer than the TTL",
		edits: []edit{
			{
				old: "bound.From(ctx, now, a.lock.requestLimit())",
				new: "bound.From(ctx, now, 2*MaxRequest)",
			},
		},
		pkg: "membackend", test: "TestConformance/HangingServerBoundsRequests",
	},
	{
		guard: "core: a TryLock lasts for a TTL at most", file: "internal/engine/contend.go",
		without: "TryLock waits for a silent server for longer than the TTL",
		edits: []edit{
			{
				old: "limit := a.attemptLimit(now)",
				new: "limit := 2 * MaxRequest",
			},
		},
		pkg: "membackend", test: "TestConformance/HangingServerBoundsRequests",
	},
	{
		guard: "core: only a claimed Move is used", file: "internal/engine/engine.go",
		without: "Export sends requests that the server cannot execute",
		edits: []edit{
			{
				old: "if e.caps.Move {",
				new: "if true {",
			},
		},
		pkg: "conformance", test: "TestUnclaimed/UnclaimedMovesAreRefused",
	},
	{
		guard: "core: only claimed readers are used", file: "internal/engine/engine.go",
		without: "Downgrade sends a request that the server cannot execute",
		edits: []edit{
			{
				old: "if e.caps.Modes&backend.Shared != 0 {",
				new: "if true {",
			},
		},
		pkg: "conformance", test: "TestUnclaimed/UnclaimedMovesAreRefused",
	},
	{
		guard: "core: WithFair needs a queue", file: "options.go",
		without: "on a backend without a queue WithFair has no effect, without an error",
		edits: []edit{
			{
				old: "case s.Fair && caps.Fair == backend.FairNo:",
				new: "case false:",
			},
		},
		pkg: "conformance", test: "TestUnclaimed/UnclaimedFairnessIsRefused",
	},
	{
		guard: "core: WithRequire is checked", file: "client.go",
		without: "a program starts on a backend that lacks what it needs",
		edits: []edit{
			{
				old: "len(unmet) > 0 {",
				new: "len(unmet) > 99 {",
			},
		},
		pkg: "membackend", test: "TestConformance/RequireIsAMinimum",
	},
	{
		guard: "core: a TTL is not below the minimum", file: "options.go",
		without: "a lock has a TTL that its server cannot keep",
		edits: []edit{
			{
				old: "case s.TTL < shortestTTL(caps):",
				new: "case s.TTL < 0:",
			},
		},
		pkg: "membackend", test: "TestConformance/TTLsOutOfBoundsAreRefused",
	},
	{
		guard: "core: an option of a client is refused for a lock", file: "mutex.go",
		without: "WithLogger of a single lock has no effect, without an error",
		edits: []edit{
			{
				old: "if cfg.ofClient {",
				new: "if false {",
			},
		},
		pkg: "membackend", test: "TestConformance/BadOptionsAreRefused",
	},
	{
		guard: "core: Unlock hands the grant off", file: "internal/engine/release.go",
		without: "each holder costs two requests, although its next one waits in the same " +
			"process",
		edits: []edit{
			{
				old: "\tcase a.handOff(now):\n\t\treturn nothing\n\t}\n\tt.on(endEvent, now)",
				new: "\t}\n\tt.on(endEvent, now)",
			},
		},
		pkg: "membackend", test: "TestConformance/HandoffNeedsNoTrip",
	},
	{
		guard: "core: hand-offs are counted", file: "internal/engine/queue.go",
		without: "WithLocalHandoff limits nothing, and the number of a hand-off runs into the " +
			"fence",
		edits: []edit{
			{
				old: "int(a.tenure.local) < a.tenure.lock.Handoff",
				new: "a.tenure.lock.Handoff > 0",
			},
		},
		pkg: "membackend", test: "TestConformance/HandoffIsBounded",
	},
	{
		guard: "core: WithLocalHandoff(0) is none", file: "internal/engine/queue.go",
		without: "a lock without hand-offs is handed off once",
		edits: []edit{
			{
				old: "return s.Handoff > 0 && !s.Fair",
				new: "return !s.Fair",
			},
			{
				old: "int(a.tenure.local) < a.tenure.lock.Handoff",
				new: "int(a.tenure.local) <= a.tenure.lock.Handoff",
			},
		},
		pkg: "membackend", test: "TestConformance/HandoffCanBeTurnedOff",
	},
	{
		guard: "core: an old grant is not handed off", file: "internal/engine/queue.go",
		without: "a busy client keeps the lock from all other clients for seconds",
		edits: []edit{
			{
				old: " &&\n\t\telapsed(a.first.start, now) < min(l.TTL/handoffPart, maxHandoff)",
				new: "",
			},
		},
		pkg: "membackend", test: "TestConformance/HandoffStarvesNoClient",
	},
	{
		guard:   "core: a grant of a queue entry is renewed soon",
		file:    "internal/engine/acquisition.go",
		without: "a lease counts on the short term of a queue entry for seconds",
		edits:   []edit{{old: "if waited {\n\t\ta.planned", new: "if false {\n\t\ta.planned"}},
		pkg:     "internal/engine", test: "TestGrantThroughWaitIsRenewedSoon",
	},
	{
		guard:   "core: a grant of a queue entry is not renewed at once",
		file:    "internal/engine/acquisition.go",
		without: "each hand-off between processes costs a renewal",
		edits:   []edit{{old: "earlier(a.planned, now.Add(firstRenewal))", new: "now"}},
		pkg:     "internal/engine", test: "TestGrantThroughWaitIsRenewedSoon",
	},
	{
		guard:   "core: a lock stays free for a moment where the server has no order of waiters",
		file:    "internal/engine/queue.go",
		without: "a busy client keeps the lock from all other clients for minutes",
		edits:   []edit{{old: "maxHandoff) / part; gap >=", new: "maxHandoff) / part; 0*gap >"}},
		pkg:     "internal/engine", test: "TestGapAfterARelease",
	},
	{
		guard: "core: no request follows a cancelled gap", file: "internal/engine/contend.go",
		without: "a waiter that is cancelled requests the lock",
		edits: []edit{{
			old: "served, gap = nil, time.After(w.turn.gap)",
			new: "time.Sleep(w.turn.gap)\n\t\t\treturn w.turn, nil",
		}},
		pkg: "internal/engine", test: "TestEndInTheGap",
	},
	{
		guard: "core: a grant of another TTL is not handed off", file: "internal/engine/queue.go",
		without: "a lease counts on a TTL that the server does not know",
		edits: []edit{
			{
				old: "a.TTL == b.TTL && a.LockDelay == b.LockDelay && a.Meta == b.Meta",
				new: "a.LockDelay == b.LockDelay && a.Meta == b.Meta",
			},
		},
		pkg: "membackend", test: "TestConformance/HandoffNeedsEqualLocks",
	},
	{
		guard: "core: a lease is unlocked once", file: "internal/engine/lease.go",
		without: "a second Unlock releases the lock of the next holder in the same process",
		edits: []edit{
			{
				old: "\tt, before := l.tenure, l.state\n\tswitch {\n\tcase " +
					"!l.on(leaseUnlockEvent):\n",
				new: "\tt, before := l.tenure, l.state\n\tswitch l.on(leaseUnlockEvent); {\n" +
					"\tcase false:\n",
			},
		},
		pkg: "membackend", test: "TestConformance/LateUnlockAfterHandoffFreesNoLease",
	},
	{
		guard: "core: a context ends for the reason of its lease", file: "internal/engine/lease.go",
		without: "work under a lock cannot learn why its context has ended",
		edits: []edit{
			{
				old: "end.cancel(end.reason)",
				new: "end.cancel(nil)",
			},
		},
		pkg: "membackend", test: "TestConformance/LeaseContextEndsWithTheLease",
	},
	{
		guard: "core: reentrancy is an option", file: "internal/engine/lease.go",
		without: "a function that locks a name again shares the grant, and its Unlock protects " +
			"nothing",
		edits: []edit{
			{
				old: "case !l.Reentrant || !t.lock.Reentrant:",
				new: "case false:",
			},
		},
		pkg: "membackend", test: "TestConformance/RelockingIsRefused",
	},
	{
		guard: "core: reentrancy is not by client", file: "internal/engine/lease.go",
		without: "two goroutines of one client have a reentrant lock at the same time",
		edits: []edit{
			{
				old: "\theld, _ := ctx.Value(heldKey{e}).(*chain)\n\tfor ; held != nil; held = " +
					"held.parent {\n\t\tif t := held.lease.tenure; t.lock",
				new: "\theld, _ := ctx.Value(heldKey{e}).(*chain)\n\tfor _, a := range e.due " +
					"{\n\t\tif a.tenure != nil && a.tenure.leases != nil {\n\t\t\theld = " +
					"&chain{a.tenure.leases, held}\n\t\t}\n\t}\n\tfor ; held != nil; held = " +
					"held.parent {\n\t\tif t := held.lease.tenure; t.lock",
			},
		},
		pkg: "membackend", test: "TestConformance/ReentrancyIsByContext",
	},
	{
		guard: "core: no lease joins one that has ended", file: "internal/engine/lease.go",
		without: "Lock on the context of an old lease returns a lease without a grant",
		edits: []edit{
			{
				old: "t.state != held || t.leases == nil {",
				new: "false {",
			},
		},
		pkg: "membackend", test: "TestConformance/ReentrancyIsByContext",
	},
	{
		guard: "core: all bits of an owner are random", file: "internal/engine/acquisition.go",
		without: "owners can collide, and one process then releases the lock of another one",
		edits: []edit{
			{
				old: "rand.Read(bits[:])",
				new: "rand.Read(bits[1:])",
			},
		},
		pkg: "membackend", test: "TestConformance/OwnersAreRandom",
	},
	{
		guard: "core: an error has the name of its lock", file: "mutex.go",
		without: "a log does not show which lock failed",
		edits: []edit{
			{
				old: "m.client.wrap(op, m.lock.Name, e.Acquire(",
				new: "m.client.wrap(op, \"\", e.Acquire(",
			},
		},
		pkg: "membackend", test: "TestConformance/ErrorsNameTheirLock",
	},
	{
		guard: "core: a nil context is an error", file: "mutex.go",
		without: "Lock with a nil context waits without an end",
		edits: []edit{
			{
				old: "\te, lease := m.client.engine, &Lease{client: m.client}\n",
				new: "\te, lease := m.client.engine, &Lease{client: m.client}\n\tif ctx == nil " +
					"{\n\t\tctx = context.Background()\n\t}\n",
			},
		},
		pkg: "membackend", test: "TestConformance/NilContextIsAnError",
	},
	{
		guard: "core: Err compares the clocks", file: "internal/engine/lease.go",
		without: "after a stop of the process Err returns nil, although another client has the " +
			"lock",
		edits: []edit{
			{
				old: "\tif l.reason == nil {\n\t\ta := l.tenure.acq\n\t\t_ = " +
					"a.expire(a.engine.now())\n\t}\n\treturn l.reason\n",
				new: "\treturn l.reason\n",
			},
		},
		pkg: "membackend", test: "TestConformance/ErrComparesClocks",
	},
	{
		guard: "core: a late answer restores no lease", file: "internal/engine/scheduler.go",
		without: "a lease that was lost is held again, and another client may have the lock",
		edits: []edit{
			{
				old: "\tcase !relevant: // the planned",
				new: "\tcase !relevant && r.err == nil:\n\t\ta.first.first.reason = nil\n" +
					"\tcase !relevant: // the planned",
			},
		},
		pkg: "membackend", test: "TestConformance/OnceLostAlwaysLost",
	},
	{
		guard:   "core: a renewed deadline counts from the sending",
		file:    "internal/engine/scheduler.go",
		without: "after a slow renewal a lease outlives the server's term: two holders",
		edits: []edit{
			{
				old: "\t\ta.term = term\n\t\ta.planRenewal()",
				new: "\t\ta.term = backend.Term{Sent: now, TTL: term.TTL}\n\t\ta.planRenewal()",
			},
		},
		pkg: "membackend", test: "TestConformance/DeadlineCountsFromSending",
	},
	{
		guard:   "core: a grant whose term is over is no lease",
		file:    "internal/engine/acquisition.go",
		without: "Lock returns a lease that has ended",
		edits: []edit{
			{
				old: "\tcase a.expiry(now) != nil:\n\t\treturn errLate\n",
				new: "",
			},
		},
		pkg: "membackend", test: "TestConformance/LateAcquireIsNoLease",
	},
	{
		guard: "core: a dropped lease is not renewed", file: "internal/engine/tenure.go",
		without: "a lock whose holder forgot to unlock it stays taken for the life of the " +
			"process",
		edits: []edit{
			{
				old: "\t\tif l.state == leaseHeld {\n\t\t\treturn true",
				new: "\t\tif l.state <= leaseDropped {\n\t\t\treturn true",
			},
		},
		pkg: "membackend", test: "TestConformance/DroppedLeaseIsFreed",
	},
	{
		guard: "core: a lease lasts until its maximum hold", file: "internal/engine/clock.go",
		without: "WithMaxHold ends a lease after half of its time",
		edits: []edit{
			{
				old: "elapsed(t.start, now) >= t.lock.MaxHold {",
				new: "elapsed(t.start, now) >= t.lock.MaxHold/2 {",
			},
		},
		pkg: "membackend", test: "TestConformance/MaxHoldEndsTheLease",
	},
	{
		guard: "core: a loss is noted once", file: "internal/engine/lease.go",
		without: "an Observer counts a lost lease twice, and a count of the held locks becomes " +
			"negative",
		edits: []edit{
			{
				old: "\tif err := l.detach(); err != nil {\n\t\treturn nothing, err\n",
				new: "\tif err := l.detach(); err != nil {\n\t\te.noteEnded(t, err)\n" +
					"\t\treturn nothing, err\n",
			},
		},
		pkg: "membackend", test: "TestConformance/LossIsObservedOnce",
	},
	{
		guard: "core: a name is checked", file: "errors.go",
		without: "a name with a line feed reaches the server, and a long one is cut to another " +
			"name",
		edits: []edit{
			{
				old: "if err := key.Validate(name); err != nil {",
				new: "if err := key.Validate(name); err != nil && name == \"\" {",
			},
		},
		pkg: "membackend", test: "TestConformance/InvalidNamesAreRefused",
	},
	{
		guard: "core: an unlocked lease is not renewed", file: "internal/engine/tenure.go",
		without: "Unlock frees nothing, and the lock stays taken for the life of the process",
		edits: []edit{
			{
				old: "\tif *place == l {\n",
				new: "\tif false {\n",
			},
			{
				old: "\t\tif l.state == leaseHeld {\n\t\t\treturn true",
				new: "\t\tif l != nil {\n\t\t\treturn true",
			},
		},
		pkg: "membackend", test: "TestConformance/UnlockStopsRenewal",
	},
	{
		guard:   "core: WithoutRenewal is without the first renewal",
		file:    "internal/engine/tenure.go",
		without: "a lease that should end after one TTL lasts for longer",
		edits: []edit{
			{
				old: "a.tenure.lock.NoRenewal || a",
				new: "a.tenure.lock.NoRenewal && a.term.Sent.After(a.first.start) || a",
			},
		},
		pkg: "membackend", test: "TestConformance/WithoutRenewalTheLeaseEnds",
	},
	{
		guard: "core: no error shows a password with an escape", file: "backend/url.go",
		without: "the password of a URL is in the log",
		edits: []edit{
			{
				old: "return errors.New(\"user info: a bad",
				new: "return fmt.Errorf(\"user info %q: a bad",
			},
			{
				old: "percent-encoding, or a control character\")\n",
				new: "percent-encoding, or a control character\", s)\n",
			},
		},
		pkg: "conformance", test: "TestOpeners/SecretsStayOutOfErrors",
	},
	{
		guard: "core: no request follows the end of its context", file: "internal/engine/engine.go",
		without: "Lock on a context that has ended sends a request, which may lock the name",
		edits: []edit{
			{
				old: "\tif ctx.Err() != nil {\n\t\treturn e.endOf(ctx)\n\t}\n\te.calls.Add(1)",
				new: "\te.calls.Add(1)",
			},
		},
		pkg: "membackend", test: "TestConformance/LockOnADeadContextAcquiresNothing",
	},
	{
		guard: "core: TryLock is refused in its client", file: "internal/engine/queue.go",
		without: "each TryLock of a name that its own process holds costs a request",
		edits: []edit{
			{
				old: "\tcase !wait:\n\t\treturn place{}, errHeldHere\n",
				new: "\tcase !wait:\n\t\treturn place{}, nil\n",
			},
		},
		pkg: "membackend", test: "TestConformance/TryLockOfAHeldNameMakesNoTrip",
	},
	{
		guard: "core: a waiter has one goroutine", file: "internal/engine/contend.go",
		without: "each waiter costs a second goroutine",
		edits: []edit{
			{
				old: "served, gap := w.served, (<-chan time.Time)(nil)\n\tfor {",
				new: "served, gap := w.served, (<-chan time.Time)(nil)\n" +
					"\tended, user := make(chan struct{}), done\n" +
					"\tgo func() { <-user; close(ended) }()\n\tdone = ended\n\tfor {",
			},
		},
		pkg: "membackend", test: "TestConformance/WaitersAreNotGoroutines",
	},
	{
		guard: "core: only a writer is downgraded", file: "internal/engine/move.go",
		without: "Downgrade of a reader's lease succeeds, as if it had been a writer's",
		edits: []edit{
			{
				old: "if a.mode&backend.Exclusive == 0 {",
				new: "if false {",
			},
		},
		pkg: "membackend", test: "TestConformance/OnlyAWriterIsDowngraded",
	},
	{
		guard: "core: an exported lease is as unlocked", file: "internal/engine/move.go",
		without: "Unlock after an Export returns ErrLost, although nothing was lost",
		edits: []edit{
			{
				old: "a.mode, int(t.local)\n\t\tt.end(backend.ErrNotHeld)",
				new: "a.mode, int(t.local)\n\t\tt.end(backend.ErrLost)",
			},
		},
		pkg: "membackend", test: "TestConformance/ExportedLeaseHasEnded",
	},
	{
		guard: "core: a handle has the number of the hand-off", file: "internal/engine/move.go",
		without: "the fence of an adopted lease is lower than the fence of the exported one",
		edits: []edit{
			{
				old: "a.mode, int(t.local)\n",
				new: "a.mode, 0\n",
			},
		},
		pkg: "membackend", test: "TestConformance/HandedOffLeaseKeepsItsFence",
	},
	{
		guard: "core: a name of LockAll may be there twice", file: "multi.go",
		without: "LockAll fails if two of its names are equal",
		edits: []edit{
			{
				old: "\t\t\tcontinue\n\t\t}\n\t\tm, err := c.kind(op, backend.Exclusive",
				new: "\t\t\treturn nil, c.wrap(op, name, errors.New(\"it is there twice\"))\n" +
					"\t\t}\n\t\tm, err := c.kind(op, backend.Exclusive",
			},
		},
		pkg: "membackend", test: "TestConformance/NamesOfLockAllAreChecked",
	},
	{
		guard: "core: a lease that Close ends has ErrClosed", file: "internal/engine/close.go",
		without: "a leader does not learn that its own client was closed",
		edits: []edit{
			{
				old: "a.endTenures(backend.ErrClosed)",
				new: "a.endTenures(backend.ErrNotHeld)",
			},
		},
		pkg: "membackend", test: "TestConformance/CloseEndsAnElection",
	},
	{
		guard: "core: Elect needs a function", file: "elect.go",
		without: "an election without a function ends without an error",
		edits: []edit{
			{
				old: "\tif ctx == nil || lead == nil {\n",
				new: "\tif lead == nil {\n\t\treturn nil\n\t}\n\tif ctx == nil {\n",
			},
		},
		pkg: "membackend", test: "TestConformance/ElectionNeedsAFunction",
	},
	{
		guard: "core: the end of a context is no error of Observe", file: "watch.go",
		without: "each loop over Observe that its caller ends has an error",
		edits: []edit{
			{
				old: "interval)\n\t\t}\n\t}\n\treturn nil\n",
				new: "interval)\n\t\t}\n\t}\n\treturn engine.ContextError(ctx)\n",
			},
		},
		pkg: "membackend", test: "TestConformance/ObserveEndsWithItsContext",
	},
	{
		guard: "core: Observe compares the holders", file: "watch.go",
		without: "a loop over Observe gets the same leader again and again",
		edits: []edit{
			{
				old: "!known || !last.equals(now)",
				new: "!known || !last.equals(now) || true",
			},
		},
		pkg: "membackend", test: "TestConformance/ObserveIgnoresRenewals",
	},
	{
		guard: "core: Observe ends with ErrClosed", file: "watch.go",
		without: "a loop over Observe ends as if its context had, although the client was " +
			"closed",
		edits: []edit{
			{
				old: "\t\tcase errors.Is(err, ErrClosed), errors.Is(err, ErrUnsupported):\n",
				new: "\t\tcase errors.Is(err, ErrClosed):\n\t\t\treturn nil\n\t\tcase " +
					"errors.Is(err, ErrUnsupported):\n",
			},
		},
		pkg: "membackend", test: "TestConformance/CloseEndsObserve",
	},
}
