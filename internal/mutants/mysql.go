package main

// The guards of mysqlbackend.
var mysqlMutants = []mutant{
	{
		guard: "mysql: a release leaves no owner", file: "mysqlbackend/statements/release.sql",
		without: "a statement that waited for the row revives what was released",
		edits:   []edit{{old: "  owner = '',", new: "  owner = IF(1, owner, ''),"}},
		pkg:     "mysqlbackend", test: "TestStaleStatementsReviveNothing",
	},
	{
		guard: "mysql: the fence exceeds the last", file: "mysqlbackend/statements/acquire.sql",
		without: "a clock that was set back repeats fences",
		edits:   []edit{{old: "GREATEST(token + 1, ", new: "GREATEST(0, "}},
		pkg:     "mysqlbackend", test: "TestFenceFollowsAClockThatWasSetBack",
	},
	{
		guard: "mysql: owner check in renew", file: "mysqlbackend/statements/renew.sql",
		without: "a renewal proves what is another's",
		edits:   []edit{{old: "AND owner = ?", new: "AND (owner = ? OR TRUE)"}},
		pkg:     "mysqlbackend", test: "TestConformance/RenewIsOwnerChecked",
	},
	{
		guard: "mysql: terms count from sending", file: "mysqlbackend/driver.go",
		without: "a slow commit proves too much",
		edits: []edit{{
			old: "backend.Term{Sent: sent, TTL: time.Duration(ttl)",
			new: "backend.Term{Sent: sent.Add(time.Since(sent)), TTL: time.Duration(ttl)",
		}},
		pkg: "mysqlbackend", test: "TestConformance/TermCountsFromSending",
	},
	{
		guard: "mysql: late statements are waited for", file: "mysqlbackend/driver.go",
		without: "a cancelled statement takes the lock later, as a ghost",
		edits:   []edit{{old: "time.Duration(s.lockWait)*time.Second + timerSlack", new: "0 * timerSlack"}},
		pkg:     "mysqlbackend", test: "TestCancelledAcquireEndsInTime",
	},
	{
		guard: "mysql: a release that a wake-up hits is repeated", file: "mysqlbackend/driver.go",
		without: "a lock that was unlocked stays taken until the end of its TTL",
		edits:   []edit{{old: "if err != nil && !replied(err, errInterrupted) {", new: "if err != nil || out.changed == 0 {"}},
		pkg:     "mysqlbackend", test: "TestLateKillCostsNoRelease",
	},
	{
		guard: "mysql: lent connections are not given back", file: "mysqlbackend/wait.go",
		without: "a wake-up that comes late interrupts a statement of the application",
		edits:   []edit{{old: "if q.lent || p.first", new: "if false || p.first"}},
		pkg:     "mysqlbackend", test: "TestLentConnectionIsClosedBehindAWaiter",
	},
	{
		guard: "mysql: a late acquisition shortens no term", file: "mysqlbackend/statements/acquire.sql",
		without: "two holders, after a request that waited for the row",
		edits:   []edit{{old: "GREATEST(expires, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)", new: "UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND"}},
		pkg:     "mysqlbackend", test: "TestLateRequestShortensNoTerm",
	},
	{
		guard: "mysql: a late renewal shortens no term", file: "mysqlbackend/statements/renew.sql",
		without: "two holders, after a renewal that waited for the row",
		edits:   []edit{{old: "GREATEST(expires, ", new: "GREATEST('2026-01-01', "}},
		pkg:     "mysqlbackend", test: "TestLateRequestShortensNoTerm",
	},
	{
		guard: "mysql: a late batch shortens no term", file: "mysqlbackend/statements/renew-free.sql",
		without: "two holders, after a batch of renewals that waited",
		edits:   []edit{{old: "GREATEST(t.expires, ", new: "GREATEST('2026-01-01', "}},
		pkg:     "mysqlbackend", test: "TestLateRequestShortensNoTerm",
	},
	{
		guard: "mysql: a batch waits for no row", file: "mysqlbackend/statements/renew-free.sql",
		without: "one row that stays locked costs other leases",
		edits:   []edit{{old: "FOR UPDATE SKIP LOCKED", new: "FOR UPDATE"}},
		pkg:     "mysqlbackend", test: "TestLockedRowDelaysNoOtherRenewal",
	},
	{
		guard: "mysql: owners are read without waiting", file: "mysqlbackend/statements/holders.sql",
		without: "one row that stays locked delays the answers for other leases",
		edits:   []edit{{old: "FOR UPDATE SKIP LOCKED", new: "FOR UPDATE"}},
		pkg:     "mysqlbackend", test: "TestLockedRowDelaysNoOtherRenewal",
	},
	{
		guard: "mysql: a batch waits for contested rows at the end", file: "mysqlbackend/driver.go",
		without: "leases whose locks many clients ask for are lost",
		edits:   []edit{{old: "bound := mostLocked\n", new: "bound := 0 * mostLocked\n"}},
		pkg:     "mysqlbackend", test: "TestContestedLeasesAreNotLost",
	},
	{
		guard: "mysql: a place is given back once", file: "mysqlbackend/wait.go",
		without: "Close waits for ever when an owner was granted a lock twice behind a wait",
		edits:   []edit{{old: "\tcase p.holds:\n\t\treturn false\n", new: ""}},
		pkg:     "mysqlbackend", test: "TestSecondGrantGivesNoPlaceBack",
	},
	{
		guard: "mysql: a release behind a wait tells of a break", file: "mysqlbackend/driver.go",
		without: "Unlock of a lease that was broken succeeds while its holder gives the signal away",
		edits:   []edit{{old: "\t\tgaveUp = false\n", new: ""}},
		pkg:     "mysqlbackend", test: "TestReleaseToldOfABreakWhilePassing",
	},
	{
		guard: "mysql: a late request of the first revives nothing", file: "mysqlbackend/statements/acquire.sql",
		without: "a lease that was broken lives on, although another one has held since",
		edits:   []edit{{old: "? AND since <= UTC_TIMESTAMP(6)", new: "? AND TRUE"}},
		pkg:     "mysqlbackend", test: "TestLateRequestRevivesNoBrokenLease",
	},
	{
		guard: "mysql: a clock that is set back keeps no free lock", file: "mysqlbackend/statements/acquire.sql",
		without: "a free lock stays taken for as long as the clock was set back",
		edits:   []edit{{old: " OR expires > UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE", new: ""}},
		pkg:     "mysqlbackend", test: "TestFreeLockIsFreeWhenTheClockWasSetBack",
	},
	{
		guard: "mysql: owners are read from the writer", file: "mysqlbackend/statements/holders.sql",
		without: "a replica that lags confirms a lock that is broken",
		edits:   []edit{{old: "WHERE name IN ({names}) FOR UPDATE SKIP LOCKED", new: "WHERE name IN ({names})"}},
		pkg:     "mysqlbackend", test: "TestRenewalBelievesNoReplica",
	},
	{
		guard: "mysql: owner check in a batch", file: "mysqlbackend/statements/renew-free.sql",
		without: "a renewal prolongs another owner's grant",
		edits:   []edit{{old: "WHERE (t.name, t.owner) IN ({pairs})", new: "WHERE ((t.name, t.owner) IN ({pairs}) OR TRUE)"}},
		pkg:     "mysqlbackend", test: "TestRenewAllTakesWhatComes",
	},
	{
		guard: "mysql: waiters are closed when they are idle", file: "mysqlbackend/open.go",
		without: "a waiter that has stopped delays each hand-off by seconds",
		edits:   []edit{{old: "strconv.Itoa(maxIdle)", new: "strconv.Itoa(maxIdle * 3600)"}},
		pkg:     "mysqlbackend", test: "TestStoppedWaiterIsClosed",
	},
	{
		guard: "mysql: lent waiters are closed when they are idle", file: "mysqlbackend/wait.go",
		without: "a waiter that has stopped delays each hand-off by seconds",
		edits:   []edit{{old: "strconv.Itoa(maxIdle)", new: "strconv.Itoa(maxIdle * 3600)"}},
		pkg:     "mysqlbackend", test: "TestStoppedWaiterIsClosed",
	},
	{
		guard: "mysql: the sweep moves on", file: "mysqlbackend/sweep.go",
		without: "rows behind the first 500 that are in use are never swept",
		edits:   []edit{{old: "if w.end != begin {", new: "if w.end == begin {"}},
		pkg:     "mysqlbackend", test: "TestSweepKeepsUp",
	},
	{
		guard: "mysql: the sweep leaves what is in use", file: "mysqlbackend/statements/sweep.sql",
		without: "a lock that was acquired since the sweep read it loses its row",
		edits:   []edit{{old: "AND expires < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND", new: "AND expires < UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND"}},
		pkg:     "mysqlbackend", test: "TestSweepLeavesWhatIsInUseAgain",
	},
	{
		guard: "mysql: a release waits for the passing signal", file: "mysqlbackend/driver.go",
		without: "a free lock is kept for the connection of its last holder, and TryLock is refused",
		edits:   []edit{{old: "		awaitLeaving(ctx, p)\n", new: ""}},
		pkg:     "mysqlbackend", test: "TestReleaseWaitsForThePassingSignal",
	},
}
