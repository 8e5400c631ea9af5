package main

// memcachedMutants are the guards of memcachedbackend.
var memcachedMutants = []mutant{
	{
		guard:   "memcached: entries live two seconds longer than terms",
		file:    "memcachedbackend/expiry.go",
		without: "the server's coarse clock frees the lock up to a second before the deadline",
		edits:   []edit{{old: "tickError = 2 * time.Second", new: "tickError = time.Second"}},
		pkg:     "memcachedbackend", test: "TestTermOutlivesTheTicks",
	},
	{
		guard: "memcached: owner check", file: "memcachedbackend/edit.go",
		without: "an Unlock frees another owner's lock",
		edits:   []edit{{old: "if !ok || !owned(r) {", new: "if !ok {"}},
		pkg:     "memcachedbackend", test: "TestConformance/ReleaseIsOwnerChecked",
	},
	{
		guard: "memcached: the holder draws the fence", file: "memcachedbackend/driver.go",
		without: "fences do not follow the order of the grants",
		edits: []edit{{
			old: "if err == nil && (repeated || !asForeseen) {",
			new: "if err == nil && (repeated || !asForeseen && false) {",
		}},
		pkg: "memcachedbackend", test: "TestFenceIsDrawnWhileHolding",
	},
	{
		guard: "memcached: another client's seed is confirmed", file: "memcachedbackend/fence.go",
		without: "a fence does not follow the order of the grants",
		edits:   []edit{{old: "\t\tasForeseen = false\n", new: ""}},
		pkg:     "memcachedbackend", test: "TestFenceIsDrawnWhileHolding",
	},
	{
		guard: "memcached: old seeds are not used", file: "memcachedbackend/fence.go",
		without: "fences decrease when the server loses the counter",
		edits:   []edit{{old: "foreseen.next || now > fence+maxSeedAge", new: "foreseen.next"}},
		pkg:     "memcachedbackend", test: "TestOldSeed",
	},
	{
		guard: "memcached: a lost counter is reported", file: "memcachedbackend/fence.go",
		without: "other clients read a fence that is not the holder's",
		edits:   []edit{{old: "max(now, fence), false", new: "max(now, fence), true"}},
		pkg:     "memcachedbackend", test: "TestFenceIsStored",
	},
	{
		guard: "memcached: a renewal compares and swaps", file: "memcachedbackend/edit.go",
		without: "a renewal overwrites the next holder's lock",
		edits:   []edit{{old: "err := c.CompareAndSwap(item)", new: "err := c.Set(item)"}},
		pkg:     "memcachedbackend", test: "TestNothingIsOverwritten",
	},
	{
		guard: "memcached: dead connections are not used", file: "memcachedbackend/conn.go",
		without: "after a restart of the server, an answer is unknown instead of definite",
		edits:   []edit{{old: "if err != nil || c.isDead() {", new: "if err != nil {"}},
		pkg:     "memcachedbackend", test: "TestIdleConnectionsMayDie",
	},
	{
		guard: "memcached: a foreign value is a conflict", file: "memcachedbackend/driver.go",
		without: "a waiter polls for ever for a key that has another program's value",
		edits: []edit{{
			old: "case !ok || r.name != req.Key:\n\t\treturn errForeign",
			new: "case !ok || r.name != req.Key:\n\t\treturn &backend.Busy{}",
		}},
		pkg: "memcachedbackend", test: "TestConformance/ForeignValueIsAConflict",
	},
	{
		guard: "memcached: counters expire", file: "memcachedbackend/fence.go",
		without: "each name uses memory of the server for ever",
		edits:   []edit{{old: ", Expiration: counterLife,", new: ","}},
		pkg:     "memcachedbackend", test: "TestConformance/FreeNamesAreForgotten",
	},
	{
		guard: "memcached: a dial ends with its call", file: "memcachedbackend/pool.go",
		without: "Unlock waits for ever for a server that accepts a connection and is silent",
		edits: []edit{{
			old: "_, inPlace := backend.DeadlineOnly(ctx)",
			new: "ctx, inPlace := backend.DeadlineOnly(ctx)",
		}},
		pkg: "memcachedbackend", test: "TestSilentDial",
	},
	{
		guard: "memcached: a closed pool keeps nothing", file: "memcachedbackend/pool.go",
		without: "a call that ends after Close leaves its connection open",
		edits:   []edit{{old: "if p.closed {", new: "if false {"}},
		pkg:     "memcachedbackend", test: "TestCallThatOutlastsClose",
	},
	{
		guard: "memcached: a value is bounded", file: "memcachedbackend/answers.go",
		without: "a hostile server makes the process allocate 4 GB",
		edits:   []edit{{old: "case size <= maxValue:", new: "default:"}},
		pkg:     "memcachedbackend", test: "TestHostileServer",
	},
	{
		guard: "memcached: an answer is bounded", file: "memcachedbackend/answers.go",
		without: "an endless answer fills the memory",
		edits:   []edit{{old: "a.left < 0 {", new: "false {"}},
		pkg:     "memcachedbackend", test: "TestHostileServer",
	},
	{
		guard: "memcached: a huge value is a foreign value", file: "memcachedbackend/answers.go",
		without: "a huge value under one key ends the other leases of its batch",
		edits: []edit{{
			old: "\t_, err = a.r.Discard(int(size))\n\treturn err\n",
			new: "\treturn bufio.ErrTooLong\n",
		}},
		pkg: "memcachedbackend", test: "TestHugeForeignValue",
	},
	{
		guard: "memcached: a closed connection sends nothing", file: "memcachedbackend/open.go",
		without: "the kernel sends a request that was given up long after its release",
		edits:   []edit{{old: "\tabort.OnClose(socket) //", new: "\t_ = abort.OnClose //"}},
		pkg:     "memcachedbackend", test: "TestClosedConnectionSendsNothing",
	},
	{
		guard: "memcached: a line ends with CRLF", file: "memcachedbackend/answers.go",
		without: "a hostile server ends the process",
		edits: []edit{{
			old: "if !bytes.HasSuffix(line, crlf) {", new: "if false {",
		}},
		pkg: "memcachedbackend", test: "TestLinesWithoutCRLF",
	},
}
