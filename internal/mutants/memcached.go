package main

// memcachedMutants are the guards of memcachedbackend.
var memcachedMutants = []mutant{
	{
		guard: "memcached: a late add revives no lease", file: "memcachedbackend/edit.go",
		without: "a lease that was broken lives on, with a lower fence than a holder in between",
		edits: []edit{{
			old: "(!ok || r.since.UnixMicro() == since)",
			new: "(!ok || r.since.UnixMicro() == since || true)",
		}},
		pkg: "memcachedbackend", test: "TestLateAddRevivesNoLease",
	},
	{
		guard:   "memcached: a repetition has the record that it found",
		file:    "memcachedbackend/driver.go",
		without: "a lock whose first answer was lost is lost at its first renewal",
		edits: []edit{{
			old: "		r, err = d.checkHolder(c, k.lock, req)\n",
			new: "		_, err = d.checkHolder(c, k.lock, req)\n",
		}},
		pkg: "memcachedbackend", test: "TestLateAddRevivesNoLease",
	},
	{
		guard:   "memcached: a call without time ends no connections",
		file:    "memcachedbackend/peek_unix.go",
		without: "a call whose deadline passes in its first instant makes renewals dial",
		edits: []edit{{
			old: "	case errors.Is(err, os.ErrDeadlineExceeded):\n		return false, false\n",
			new: "	case errors.Is(err, os.ErrDeadlineExceeded):\n		return true, false\n",
		}},
		pkg: "memcachedbackend", test: "TestCallWithoutTimeEndsNoConnections",
	},
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
		edits:   []edit{{old: "if !isOpen || c.isDead() {", new: "if !isOpen {"}},
		pkg:     "memcachedbackend", test: "TestIdleConnectionsMayDie",
	},
	{
		guard: "memcached: a foreign value is a conflict", file: "memcachedbackend/driver.go",
		without: "a waiter polls for ever for a key that has another program's value",
		edits: []edit{{
			old: "case !ok || r.name != req.Key:\n\t\treturn nil, errForeign",
			new: "case !ok || r.name != req.Key:\n\t\treturn nil, &backend.Busy{}",
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
	{
		guard: "memcached: a password is sent on demand", file: "memcachedbackend/open.go",
		without: "a server without an auth file stores the password where each client can read it",
		edits: []edit{
			{old: `strings.HasPrefix(answer, "VERSION ")`, new: `strings.HasPrefix(answer, "-")`},
			{old: `if answer == unauthenticated+"\r\n" {`, new: "if true {"},
		},
		pkg: "memcachedbackend", test: "TestPasswordIsSentOnDemand",
	},
	{
		guard: "memcached: a live connection is used first", file: "memcachedbackend/pool.go",
		without: "a lease ends although its connection works, if the server refuses new ones",
		edits:   []edit{{old: "isOpen := c.begin(ctx); isOpen {", new: "_ = c.begin(ctx); true {"}},
		pkg:     "memcachedbackend", test: "TestRenewalNeedsNoNewConnection",
	},
	{
		guard: "memcached: a dead connection ends the idle ones", file: "memcachedbackend/conn.go",
		without: "a renewal tries one connection after the other that a firewall has forgotten",
		edits:   []edit{{old: "if err != nil && !c.conn.isGivenUp(err) {", new: "if false {"}},
		pkg:     "memcachedbackend", test: "TestDeadConnectionsFailOneRenewal",
	},
	{
		guard: "memcached: a cancelled call ends no connections", file: "memcachedbackend/conn.go",
		without: "a cancelled Lock makes renewals dial, and the server may refuse new connections",
		edits: []edit{{
			old: "errors.Is(c.ctx.Err(), context.Canceled) ||", new: "false ||",
		}},
		pkg: "memcachedbackend", test: "TestShortCallsKillNoConnections",
	},
	{
		guard: "memcached: a short call ends no connections", file: "memcachedbackend/conn.go",
		without: "a TryLock with a short deadline makes renewals dial",
		edits:   []edit{{old: "min(c.pool.opts.Timeout, minSilence)", new: "-2*time.Hour"}},
		pkg:     "memcachedbackend", test: "TestShortCallsKillNoConnections",
	},
	{
		guard: "memcached: a connection of TLS has ended", file: "memcachedbackend/conn.go",
		without: "after the server has closed an idle connection of TLS, an answer is unknown",
		edits: []edit{{
			old: "closed || readable", new: "closed || readable && c.pool.opts.TLS == nil",
		}},
		pkg: "memcachedbackend", test: "TestConnectionsWithTLSMayEnd",
	},
	{
		guard: "memcached: releases delay no renewal", file: "memcachedbackend/servers.go",
		without: "many releases take all connections of renewals: leases are lost",
		edits:   []edit{{old: "\ts.renewals.extra = make(slots, reservedConns)\n", new: ""}},
		pkg:     "memcachedbackend", test: "TestReleasesDelayNoRenewal",
	},
	{
		guard: "memcached: batches use all connections", file: "memcachedbackend/renew.go",
		without: "the renewal of a hundred locks on a slow network takes longer than a short TTL",
		edits: []edit{{
			old: "return min((n+conns-1)/conns, maxBatch)", new: "return maxBatch",
		}},
		pkg: "memcachedbackend", test: "TestBatchesUseAllConnections",
	},
	{
		guard: "memcached: a server that hangs up is dead", file: "memcachedbackend/open.go",
		without: "one server in a list of several whose proxy has lost it makes every Open fail",
		edits:   []edit{{old: "return errors.Is(err, io.EOF) ||", new: "return"}},
		pkg:     "memcachedbackend", test: "TestClosingServerOfSeveral",
	},
	{
		guard: "memcached: a foreign number is not remembered", file: "memcachedbackend/fence.go",
		without: "a name stays in conflict after its foreign counter is deleted",
		edits:   []edit{{old: "if err == nil && !isFence(fence) {", new: "if false {"}},
		pkg:     "memcachedbackend", test: "TestForeignCounterIsForgotten",
	},
	{
		guard: "memcached: the last fence is not remembered", file: "memcachedbackend/fence.go",
		without: "a client writes a counter back that an operator has deleted",
		edits:   []edit{{old: "last > 0 && isFence(last+1)", new: "last > 0"}},
		pkg:     "memcachedbackend", test: "TestForeignCounterIsForgotten",
	},
	{
		guard: "memcached: a wrong clock seeds no counter", file: "memcachedbackend/driver.go",
		without: "a client whose clock is wrong makes a name useless for all clients",
		edits:   []edit{{old: "if !isFence(seedNow()) {", new: "if false {"}},
		pkg:     "memcachedbackend", test: "TestWrongClockSeedsNoCounter",
	},
	{
		guard: "memcached: a ticket needs an Export", file: "memcachedbackend/move.go",
		without: "a client that can inspect a lock can take it from its holder",
		edits:   []edit{{old: " && a.secret != noTicket", new: ""}},
		pkg:     "memcachedbackend", test: "TestForgedTicketsAreRefused",
	},
	{
		guard: "memcached: a ticket has a secret", file: "memcachedbackend/move.go",
		without: "a client that can inspect an exported lock can adopt it",
		edits: []edit{{
			old: "r.owner == a.former && r.ticket == a.secret",
			new: "r.owner == a.former",
		}},
		pkg: "memcachedbackend", test: "TestForgedTicketsAreRefused",
	},
	{
		guard: "memcached: a broken lease is not exported", file: "memcachedbackend/move.go",
		without: "a lease that was broken is adopted, with a lower fence than a holder in between",
		edits:   []edit{{old: "isGrants(g), storeTicket", new: "ownedBy(g.Owner), storeTicket"}},
		pkg:     "memcachedbackend", test: "TestLateAddIsNotExported",
	},
	{
		guard: "memcached: an adopter has the holder's servers", file: "memcachedbackend/move.go",
		without: "a lease is adopted by a client that looks for its name on another server",
		edits:   []edit{{old: "isTickets && r.list != a.list", new: "false"}},
		pkg:     "memcachedbackend", test: "TestAdoptWithAnotherList",
	},
	{
		guard: "memcached: an adoption uses up its ticket", file: "memcachedbackend/move.go",
		without: "the former owner can renew and release the lock, and adopt it again",
		edits: []edit{{
			old: "*r = *newRecord(a.req, a.list, r.fence, time.Now())", new: "_ = time.Now()",
		}},
		pkg: "memcachedbackend", test: "TestConformance/HandleIsAdoptedOnce",
	},
	{
		guard: "memcached: a repeated adoption is the same", file: "memcachedbackend/move.go",
		without: "an adoption whose answer was lost cannot be repeated",
		edits: []edit{{
			old: "if r.owner == a.req.Owner {\n\t\treturn true",
			new: "if r.owner == a.req.Owner {\n\t\treturn false",
		}},
		pkg: "memcachedbackend", test: "TestConformance/RepeatedAdoptionIsTheSame",
	},
}
