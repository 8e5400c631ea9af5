package main

// The guards of memcachedbackend.
var memcachedMutants = []mutant{
	{
		guard: "memcached: two seconds more than trusted", file: "memcachedbackend/driver.go",
		without: "the server frees up to a second before the deadline, when its ticks have moved",
		edits:   []edit{{old: "tickError = 2 * time.Second", new: "tickError = time.Second"}},
		pkg:     "memcachedbackend", test: "TestTermOutlivesTheTicks",
	},
	{
		guard: "memcached: owner check", file: "memcachedbackend/driver.go",
		without: "an Unlock frees another owner's lock",
		edits:   []edit{{old: "if !ok || !owned(r) {", new: "if !ok {"}},
		pkg:     "memcachedbackend", test: "TestConformance/ReleaseIsOwnerChecked",
	},
	{
		guard: "memcached: the fence is drawn while holding", file: "memcachedbackend/driver.go",
		without: "fences against the order of the grants",
		edits:   []edit{{old: "if err == nil && (again || !sure) {", new: "if err == nil && (again || !sure && false) {"}},
		pkg:     "memcachedbackend", test: "TestFenceIsDrawnWhileHolding",
	},
	{
		guard: "memcached: another's seed is confirmed", file: "memcachedbackend/fence.go",
		without: "a fence against the order of the grants",
		edits:   []edit{{old: "\t\tsure = false\n", new: ""}},
		pkg:     "memcachedbackend", test: "TestFenceIsDrawnWhileHolding",
	},
	{
		guard: "memcached: old seeds are not used", file: "memcachedbackend/fence.go",
		without: "fences go back when the server loses the counter",
		edits:   []edit{{old: "foreseen.next || now > fence+maxSeedAge", new: "foreseen.next"}},
		pkg:     "memcachedbackend", test: "TestOldSeed",
	},
	{
		guard: "memcached: a counter that was lost is told", file: "memcachedbackend/fence.go",
		without: "the fence that others are shown is not the holder's",
		edits:   []edit{{old: "max(now, fence), false", new: "max(now, fence), true"}},
		pkg:     "memcachedbackend", test: "TestFenceIsStored",
	},
	{
		guard: "memcached: compare and swap", file: "memcachedbackend/driver.go",
		without: "a renewal overwrites its successor",
		edits:   []edit{{old: "err := c.CompareAndSwap(item)", new: "err := c.Set(item)"}},
		pkg:     "memcachedbackend", test: "TestNothingIsOverwritten",
	},
	{
		guard: "memcached: dead connections are not used", file: "memcachedbackend/pool.go",
		without: "a definite answer becomes an unknown one after a restart",
		edits:   []edit{{old: "if c.isDead() {", new: "if false {"}},
		pkg:     "memcachedbackend", test: "TestIdleConnectionsMayDie",
	},
	{
		guard: "memcached: a foreign value is a conflict", file: "memcachedbackend/driver.go",
		without: "a waiter polls for ever behind the value of another program",
		edits:   []edit{{old: "case !ok || r.name != req.Key:\n\t\treturn errForeign", new: "case !ok || r.name != req.Key:\n\t\treturn &backend.Busy{}"}},
		pkg:     "memcachedbackend", test: "TestConformance/ForeignValueIsAConflict",
	},
	{
		guard: "memcached: counters end", file: "memcachedbackend/fence.go",
		without: "each name takes memory of the server for ever",
		edits:   []edit{{old: ", Expiration: counterLife,", new: ","}},
		pkg:     "memcachedbackend", test: "TestConformance/FreeNamesAreForgotten",
	},
	{
		guard: "memcached: a dial ends with its call", file: "memcachedbackend/pool.go",
		without: "Unlock waits for ever for a server that accepts a connection and is silent",
		edits:   []edit{{old: "_, inPlace := backend.DeadlineOnly(ctx)", new: "ctx, inPlace := backend.DeadlineOnly(ctx)"}},
		pkg:     "memcachedbackend", test: "TestSilentDial",
	},
	{
		guard: "memcached: a value is bounded", file: "memcachedbackend/answers.go",
		without: "what answers in place of memcached makes the process allocate 4 GB",
		edits:   []edit{{old: "case size <= maxValue:", new: "default:"}},
		pkg:     "memcachedbackend", test: "TestHostileServer",
	},
	{
		guard: "memcached: an answer is bounded", file: "memcachedbackend/answers.go",
		without: "an answer without end fills the memory",
		edits:   []edit{{old: "a.left < 0 {", new: "false {"}},
		pkg:     "memcachedbackend", test: "TestHostileServer",
	},
	{
		guard: "memcached: a huge value is a foreign one", file: "memcachedbackend/answers.go",
		without: "a huge value under one key costs the other leases of its batch",
		edits:   []edit{{old: "\t_, err = a.r.Discard(int(size))\n\treturn err\n", new: "\treturn bufio.ErrTooLong\n"}},
		pkg:     "memcachedbackend", test: "TestHugeForeignValue",
	},
}
