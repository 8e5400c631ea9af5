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
			{old: "if b.underWay < b.opts.MaxUnderWay {", new: "if b.opts.MaxUnderWay > 0 {"},
		},
		pkg: "backend/batch", test: "TestQueueIsNotDelayed",
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
