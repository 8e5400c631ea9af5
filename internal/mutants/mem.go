package main

// memMutants are the guards of membackend.
var memMutants = []mutant{
	{
		guard: "mem: a late request shortens no term", file: "membackend/acquisition.go",
		without: "a repeated Acquire that is executed after a renewal shortens the renewed term",
		edits:   []edit{{old: "end.After(a.expires) {", new: "true {"}},
		pkg:     "membackend", test: "TestLateRequestShortensNoTerm",
	},
	{
		guard: "mem: expired queue entries are not counted", file: "membackend/lock.go",
		without: "a waiter that is gone blocks the queue",
		edits: []edit{{
			old: "l.queue = slices.DeleteFunc(l.queue, remove)", new: "",
		}},
		pkg: "membackend", test: "TestExpiredEntriesAreNotCounted",
	},
	{
		guard:   "mem: the end of a dead waiter's entry wakes the next one",
		file:    "membackend/lock.go",
		without: "a reader waits behind a dead writer until its own next attempt",
		edits:   []edit{{old: "end = l.endInFront(entry, end)", new: "_ = l.endInFront"}},
		pkg:     "membackend", test: "TestDeadWriterBetweenReaders",
	},
	{
		guard: "mem: a waiting writer is not overtaken", file: "membackend/space.go",
		without: "a stream of readers keeps writers waiting for ever",
		edits: []edit{{
			old: "len(l.queue) == 0 && l.admits(req.Mode)", new: "l.admits(req.Mode)",
		}},
		pkg: "membackend", test: "TestConformance/WaitingWriterIsNotOvertaken",
	},
	{
		guard: "mem: all locks or none", file: "membackend/combine.go",
		without: "an AcquireAll that is refused leaves locks taken",
		edits: []edit{{
			old: "if err := d.space.refusal(req, now); err != nil {",
			new: "if err := d.space.refusal(req, now); err != nil && i < 0 {",
		}},
		pkg: "membackend", test: "TestConformance/OneTakenLeavesNone",
	},
	{
		guard: "mem: a late Downgrade keeps the ticket", file: "membackend/move.go",
		without: "a handle is useless, and its lock stays taken for a TTL",
		edits: []edit{{
			old: "expires: a.expires, secret: a.secret,", new: "expires: a.expires,",
		}},
		pkg: "membackend", test: "TestConformance/LateRequestsKeepTheTicket",
	},
	{
		guard: "mem: expired names are forgotten", file: "membackend/space.go",
		without: "each name that expires without a release uses memory for ever",
		edits:   []edit{{old: "\t\ts.sweep(now)\n", new: ""}},
		pkg:     "membackend", test: "TestExpiredNamesAreForgotten",
	},
	{
		guard: "mem: a URL with a host is refused", file: "membackend/options.go",
		without: "mem://name is another space than mem:name",
		edits:   []edit{{old: "if len(u.Hosts) > 0 ||", new: "if"}},
		pkg:     "membackend", test: "TestBadURLs",
	},
	{
		guard: "mem: a closed driver does nothing", file: "membackend/driver.go",
		without: "a closed client acquires locks",
		edits:   []edit{{old: "if d.closed.Load() {", new: "if d.closed.Load() && false {"}},
		pkg:     "membackend", test: "TestUseAfterClose",
	},
	{
		guard: "mem: a Break ends no newer grant", file: "membackend/inspect.go",
		without: "a waiter that is broken and retries at once loses its new lease",
		edits:   []edit{{old: "	s.broken = append(s.broken, broken...)\n", new: ""}},
		pkg:     "membackend", test: "TestBrokenOwnerIsNotGranted",
	},
	{
		guard: "mem: a Break leaves all locks or none", file: "membackend/combine.go",
		without: "an AcquireAll that meets a Break leaves locks taken",
		edits:   []edit{{old: "if s.isBroken(req) {", new: "if s.isBroken(req) && false {"}},
		pkg:     "membackend", test: "TestBrokenOwnerIsNotGranted",
	},
}
