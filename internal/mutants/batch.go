package main

// The guards of backend/batch.
var batchMutants = []mutant{
	{
		guard: "batches: a batch does not hold up a caller", file: "backend/batch/batch.go",
		without: "a call returns when a batch is answered, not when its context ends",
		edits:   []edit{{old: "case <-q.ctx.Done():", new: "case <-context.Background().Done():"}},
		pkg:     "backend/batch", test: "TestContextsInABatch",
	},
	{
		guard: "batches: connections are left for others", file: "backend/batch/batch.go",
		without: "batches that hang take all connections, and then renewals fail",
		edits:   []edit{{old: "if b.underWay < b.opts.Most {", new: "if b.opts.Most > 0 {"}},
		pkg:     "backend/batch", test: "TestQueueIsNotHeldUp",
	},
}
