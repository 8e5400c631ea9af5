package main

// The guards of the core.
var coreMutants = []mutant{
	{
		guard: "deadline from sending", file: "acquire.go",
		without: "a slow answer makes a lease that outlives the server's term: two holders",
		edits: []edit{{
			old: "h.grant, h.term, h.start, h.granted = grant, grant.Term, now, now",
			new: "h.grant, h.term, h.start, h.granted = grant, backend.Term{Sent: now, TTL: grant.Term.TTL}, now, now",
		}},
		pkg: "redisbackend", test: "TestConformance/DeadlineCountsFromSending",
	},
	{
		guard: "an Opener gets the TTL", file: "dlock.go",
		without: "sessions on servers do not follow the TTL",
		edits:   []edit{{old: "	u.TTL = cfg.ttl\n", new: ""}},
		pkg:     ".", test: "TestOpenerGetsTheTTL",
	},
	{
		guard: "clean-up after a cancelled acquire", file: "release.go",
		without: "the lock stays with nobody for a whole TTL",
		edits: []edit{{
			old: "if h.grant == nil && !queued && !h.attempted {",
			new: "if h.grant == nil || queued {",
		}},
		pkg: "redisbackend", test: "TestConformance/CancelledAcquireIsUndone",
	},
	{
		guard: "once lost, always lost", file: "renew.go",
		without: "a lease that was told to be lost comes back to life",
		edits: []edit{{
			old: "\tlost := h.expire(time.Now())\n\ttold := lost == nil && (h.phase == live || h.phase == kept)",
			new: "\tvar lost error\n\tif err == nil && h.phase == orphaned {\n\t\th.phase = live\n\t}\n\ttold := h.phase == live || h.phase == kept",
		}},
		pkg: "redisbackend", test: "TestConformance/OnceLostAlwaysLost",
	},
	{
		guard: "renewal stopped by Unlock", file: "release.go",
		without: "a released lock is renewed on, and its answer taken for a loss",
		edits: []edit{{
			old: "\th.phase = releasing\n\th.unschedule()\n",
			new: "",
		}, {
			old: "\th.finish(ErrLost)\n\treturn true, err",
			new: "\treturn true, err",
		}},
		pkg: "redisbackend", test: "TestConformance/UnlockStopsRenewal",
	},
	{
		guard: "late executions are undone soon", file: "hold.go",
		without: "a lock that was cancelled in flight stays taken for seconds",
		edits:   []edit{{old: "pause := max(late-h.until.Sub(now), firstRepetition)", new: "pause := late"}},
		pkg:     "membackend", test: "TestConformance/LateExecutionIsUndoneSoon",
	},
	{
		guard: "late executions are undone until Late", file: "hold.go",
		without: "a request that is executed after the last repetition locks the name for a TTL",
		edits:   []edit{{old: "h.until = now.Add(late)", new: "h.until = now.Add(late / 2)"}},
		pkg:     ".", test: "TestUnknownAttemptIsUndoneUntilLate",
	},
	{
		guard: "a second holder is never void", file: "conformance/observation.go",
		without: "the suite repeats the observation of a second holder on a slow machine until it passes",
		edits:   []edit{{old: "o.conclusive = o.conclusive || conclusive", new: ""}},
		pkg:     "conformance", test: "TestVoid",
	},
	{
		guard: "a failure on a punctual machine stands", file: "conformance/observation.go",
		without: "the suite repeats each failure, so one that is rare passes",
		edits:   []edit{{old: "term > 0 && stood > term/allowance", new: "term > 0 && stood >= 0"}},
		pkg:     "conformance", test: "TestVoid",
	},
	{
		guard: "goroutines of the Harness are not the driver's", file: "conformance/fixture.go",
		without: "the suite fails a driver whose Harness starts a proxy or a server in the process of the test",
		edits:   []edit{{old: "pprof.SetGoroutineLabels(context.Background())\n\tdefer", new: "defer"}},
		pkg:     "conformance", test: "TestHarnessMayHaveGoroutines",
	},
	{
		guard: "slots of background releases", file: "lifecycle.go",
		without: "after 64 releases in the background none runs any more",
		edits:   []edit{{old: "defer func() { <-lc.slots }()", new: ""}},
		pkg:     ".", test: "TestBackgroundReleasesGoOn",
	},
	{
		guard: "the phase of a release", file: "release.go",
		without: "a renewal in flight turns a good Unlock into ErrLost",
		edits:   []edit{{old: "\th.phase = releasing\n\th.unschedule()", new: "\th.unschedule()"}},
		pkg:     ".", test: "TestUnlockDuringARenewal",
	},
	{
		guard: "the time of a renewal in a tiny term", file: "renew.go",
		without: "a server that answers with a term of nanoseconds ends the process",
		edits:   []edit{{old: "rand.N(third/5+1)", new: "rand.N(third/5-1)"}},
		pkg:     ".", test: "TestRenewalOfATinyTerm",
	},
	{
		guard: "cancelled contexts are forgotten", file: "lease.go",
		without: "a lease that is held for long keeps each context that was derived from it",
		edits:   []edit{{old: "\tdelete(t.contexts, c)\n", new: ""}},
		pkg:     ".", test: "TestCancelledContextIsForgotten",
	},
	{
		guard: "the error of the driver at Close", file: "lifecycle.go",
		without: "Close returns nil where the driver could not close",
		edits:   []edit{{old: "err = c.close() })", new: "_ = c.close() })"}},
		pkg:     ".", test: "TestCloseReturnsTheDriversError",
	},
	{
		guard: "Close waits for requests", file: "lifecycle.go",
		without: "the driver is closed under a request that returns late",
		edits:   []edit{{old: "\tlc.abandon()\n\twaitUntil(time.Now().Add(time.Second), joined)", new: "\tlc.abandon()"}},
		pkg:     ".", test: "TestCloseWaitsForRequests",
	},
	{
		guard: "Close waits for batches", file: "backend/batch/batch.go",
		without: "a driver is closed under a batch that returns late",
		edits:   []edit{{old: "\tb.end()\n\tb.running.Wait()", new: "\tb.end()"}},
		pkg:     "backend/batch", test: "TestCloseWaitsForBatches",
	},
	{
		guard: "Unlock as Close begins", file: "lease.go",
		without: "Unlock reports a release that Close has still to make",
		edits:   []edit{{old: "\t\tl.cleanup.Stop()\n\t\treturn ErrClosed", new: "\t\tl.cleanup.Stop()\n\t\treturn nil"}},
		pkg:     ".", test: "TestUnlockAsCloseBegins",
	},
	{
		guard: "a loss is ErrLost", file: "hold.go",
		without: "an observer takes a loss with the driver's own cause for another error",
		edits:   []edit{{old: "reason = fmt.Errorf(\"%w: %w\", ErrLost, cause)", new: "reason = cause"}},
		pkg:     ".", test: "TestLossByTheServerIsErrLost",
	},
	{
		guard: "Close waits for no lock-delay", file: "hold.go",
		without: "Close takes up to 5 s after a loss with a lock-delay",
		edits: []edit{{
			old: "h.phase, h.due = orphaned, releaseAt\n",
			new: "h.phase, h.due = orphaned, releaseAt\n\th.mutex.client.scheduler.repeatUntil(releaseAt)\n",
		}},
		pkg: ".", test: "TestCloseDoesNotWaitForLockDelays",
	},
	{
		guard: "Close waits for repetitions under way", file: "lifecycle.go",
		without: "a request that is executed after Close locks its name for a TTL",
		edits: []edit{{
			old: "\tc.releaseAll(deadline) // the last repetitions, none of which is under way any more\n",
			new: "",
		}},
		pkg: ".", test: "TestCloseWaitsForARepetitionUnderWay",
	},
	{
		guard: "encodings of names are fixed", file: "backend/key/key.go",
		without: "two versions of a program encode a name differently and do not exclude each other",
		edits:   []edit{{old: "'a' <= c && c <= 'z'", new: "'a' <= c && c < 'z'"}},
		pkg:     "backend/key", test: "TestEncodingsAreGolden",
	},
}
