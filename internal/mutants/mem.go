package main

// The guards of membackend.
var memMutants = []mutant{
	{
		guard: "mem: a late request shortens no term", file: "membackend/driver.go",
		without: "a repeated Acquire that is executed after a renewal ends the lock before the answered term",
		edits:   []edit{{old: "if until.After(h.expires) {", new: "if h != nil {"}},
		pkg:     "membackend", test: "TestLateRequestShortensNoTerm",
	},
	{
		guard: "mem: lapsed places are not counted", file: "membackend/inspect.go",
		without: "Inspect shows waiters that have gone",
		edits:   []edit{{old: "\th.expireEntries(now)\n", new: ""}},
		pkg:     "membackend", test: "TestExpiredEntriesAreNotCounted",
	},
	{
		guard: "mem: expired names are forgotten", file: "membackend/driver.go",
		without: "each name that expires without a release takes memory for ever",
		edits:   []edit{{old: "\t\ts.sweep(now)\n", new: ""}},
		pkg:     "membackend", test: "TestExpiredNamesAreForgotten",
	},
	{
		guard: "mem: a URL with a host is refused", file: "membackend/open.go",
		without: "mem://name is another space than mem:name",
		edits:   []edit{{old: "if len(u.Hosts) > 0 ||", new: "if"}},
		pkg:     "membackend", test: "TestOpen",
	},
	{
		guard: "mem: a closed driver does nothing", file: "membackend/driver.go",
		without: "a client that was closed takes locks",
		edits:   []edit{{old: "if d.closed.Load() {", new: "if d.closed.Load() && false {"}},
		pkg:     "membackend", test: "TestUseAfterClose",
	},
}
