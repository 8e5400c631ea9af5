package main

// batchMutants are the guards of backend/batch, and of the files in backend that do not concern the
// core.
var batchMutants = []mutant{
	{
		guard: "batches: a batch does not delay a caller", file: "backend/batch/batch.go",
		without: "a call returns when a batch is answered, not when its context ends",
		edits:   []edit{{old: "case <-q.ctx.Done():", new: "case <-context.Background().Done():"}},
		pkg:     "backend/batch", test: "TestContextsInABatch",
	},
	{
		guard: "batches: other requests keep connections", file: "backend/batch/batch.go",
		without: "hanging batches use all connections, so that renewals fail",
		edits: []edit{
			{old: "for b.underWay < b.opts.MaxUnderWay &&", new: "for b.opts.MaxUnderWay > 0 &&"},
		},
		pkg: "backend/batch", test: "TestQueueIsNotDelayed",
	},
	{
		guard: "batches: all of a long queue is sent", file: "backend/batch/batch.go",
		without: "while requests hang, thousands of other requests wait for milliseconds",
		edits: []edit{{
			old: "for b.underWay < b.opts.MaxUnderWay &&",
			new: "if b.underWay < b.opts.MaxUnderWay &&",
		}},
		pkg: "backend/batch", test: "TestAllOfTheQueueIsSent",
	},
	{
		guard: "batches: a panic ends no process", file: "backend/batch/batch.go",
		without: "a hook of a lent client that panics ends the process",
		edits:   []edit{{old: "\tdefer Rescue(&missing)\n", new: ""}},
		pkg:     "backend/batch", test: "TestSendThatPanics",
	},
	{
		guard: "batches: each request gets an answer", file: "backend/batch/batch.go",
		without: "the requests of a batch that fails wait until their contexts end",
		edits:   []edit{{old: "q.settle(Answer[Reply]{Err: missing})", new: "_ = q"}},
		pkg:     "backend/batch", test: "TestSendThatPanics",
	},
	{
		guard: "batches: no context is called in a batch", file: "backend/batch/batch.go",
		without: "a context whose methods block holds up the requests of 63 other callers",
		edits: []edit{{
			old: "if q.end.IsZero() || now.Before(q.end) {",
			new: "if q.ctx.Err() == nil || now.IsZero() {",
		}},
		pkg: "backend/batch", test: "TestStuckContextInABatch",
	},
	{
		guard: "batches: a late request is not sent", file: "backend/batch/batch.go",
		without: "after a stop, a process sends requests whose callers have gone",
		edits: []edit{{
			old: "if q.end.IsZero() || now.Before(q.end) {",
			new: "if q.end.IsZero() || !now.IsZero() {",
		}},
		pkg: "backend/batch", test: "TestLateRequestsAreNotSent",
	},
	{
		guard: "batches: a caller leaves the queue", file: "backend/batch/batch.go",
		without: "a request that was not sent is reported as unknown",
		edits:   []edit{{old: "if q.batcher.remove(q) {", new: "if false {"}},
		pkg:     "backend/batch", test: "TestContextsInABatch",
	},
	{
		guard: "a panic of a client library reaches its caller", file: "backend/call.go",
		without: "a hook of a lent client that panics ends the process",
		edits: []edit{{
			old: "\t\tdefer func() {\n\t\t\tr.panicked = recover()\n", new: "\t\tdefer func() {\n",
		}},
		pkg: "backend", test: "TestCallOfAFunctionThatDoesNotReturn",
	},
	{
		guard: "a client library that ends its goroutine is no success", file: "backend/call.go",
		without: "a request without an answer counts as granted",
		edits:   []edit{{old: "r := result{err: errExited}", new: "var r result"}},
		pkg:     "backend", test: "TestCallOfAFunctionThatDoesNotReturn",
	},
	{
		guard: "no error shows the rest of a password", file: "backend/url.go",
		without: "the error about a password with an unescaped & shows its end",
		edits: []edit{{
			old: "if slices.ContainsFunc(u.params, param.isSecret) {", new: "if false {",
		}},
		pkg: "backend", test: "TestParseURLRefuses",
	},
	{
		guard: "no unknown parameter is the rest of a password", file: "backend/url.go",
		without: "the error about a password with an unescaped & shows its end",
		edits: []edit{{
			old: "case slices.ContainsFunc(u.params[:i], param.isSecret):", new: "case i < 0:",
		}},
		pkg: "backend", test: "TestUntakenShowsNoPassword",
	},
}
