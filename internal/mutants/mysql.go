package main

// mysqlMutants are the guards of mysqlbackend.
var mysqlMutants = []mutant{
	{
		guard: "mysql: waiters with Fair have the order of arrival", file: "mysqlbackend/driver.go",
		without: "fair=1 promises an order that the queue does not keep",
		edits: []edit{{
			old: "return req.Fair && req.Queue }", new: "return req.Fair && req.Queue && false }",
		}},
		pkg: "mysqlbackend", test: "TestConformance/ExpiredLockGoesToTheQueue",
	},
	{
		guard:   "mysql: a slow client renews in a roster that keeps changing",
		file:    "mysqlbackend/roster.go",
		without: "faster clients overtake each renewal, and the lease is lost",
		edits: []edit{{
			old: "	if !skipsLocked {\n		var err error",
			new: "	if false {\n		var err error",
		}},
		pkg: "mysqlbackend", test: "TestSlowClientIsNotOvertaken",
	},
	{
		guard:   "mysql: a slow waiter enters a roster that keeps changing",
		file:    "mysqlbackend/roster.go",
		without: "a stream of readers overtakes a slow writer until its term is over",
		edits: []edit{{
			old: "return false, d.insist(ctx, e, before.roster, live)",
			new: "return false, nil",
		}},
		pkg: "mysqlbackend", test: "TestSlowWaiterIsNotOvertaken",
	},
	{
		guard:   "mysql: no reader takes a lock that is kept for a waiter",
		file:    "mysqlbackend/statements/roster-take.sql",
		without: "readers pass a writer that has waited longer, after each release",
		edits: []edit{{
			old: "{isFree} AND expires <= UTC_TIMESTAMP(6))",
			new: "{isFree} AND (owner = '' OR expires <= UTC_TIMESTAMP(6)))",
		}},
		pkg: "mysqlbackend", test: "TestKeptLockRefusesReaders",
	},
	{
		guard: "mysql: no roster begins in a lock that is kept", file: "mysqlbackend/roster.go",
		without: "readers pass a writer that has waited longer, after each release",
		edits: []edit{{
			old: "len(*r) == 0 && row.isKept() &&",
			new: "len(*r) < 0 && row.isKept() &&",
		}},
		pkg: "mysqlbackend", test: "TestKeptLockRefusesReaders",
	},
	{
		guard:   "mysql: the first waiter takes a kept lock as any kind",
		file:    "mysqlbackend/roster.go",
		without: "a reader at the front of the queue waits until the lock is no longer kept",
		edits: []edit{{
			old: "row.isKept() && !d.acquisitions.isFirst(req.Owner)",
			new: "row.isKept() && req.Owner != \"\"",
		}},
		pkg: "mysqlbackend", test: "TestKeptLockRefusesReaders",
	},
	{
		guard: "mysql: a new roster wakes the first waiter", file: "mysqlbackend/roster.go",
		without: "for up to a second, further readers pass a writer that has waited longer",
		edits: []edit{{
			old: "		if row.isPlain() {\n",
			new: "		if row.isKept() {\n",
		}},
		pkg: "mysqlbackend", test: "TestNewRosterEndsASleep",
	},
	{
		guard: "mysql: a client that polls wakes the first waiter", file: "mysqlbackend/driver.go",
		without: "a waiter sleeps for up to a second after the release of a client that polls",
		edits: []edit{{
			old: "out.id > 0 && !d.queue.polls {",
			new: "out.id > 0 && !d.queue.polls && d.caps.Notify {",
		}},
		pkg: "mysqlbackend", test: "TestClientsThatPollWakeWaiters",
	},
	{
		guard:   "mysql: a client that polls wakes several first waiters",
		file:    "mysqlbackend/combine.go",
		without: "a waiter sleeps for up to a second after the release of a client that polls",
		edits: []edit{{
			old: "	if d.queue.polls {\n		return\n",
			new: "	if d.queue.polls || !d.caps.Notify {\n		return\n",
		}},
		pkg: "mysqlbackend", test: "TestClientsThatPollWakeWaiters",
	},
	{
		guard: "mysql: a client that polls wakes waiters in rosters", file: "mysqlbackend/turns.go",
		without: "a waiter sleeps for up to a second after the release of a client that polls",
		edits: []edit{{
			old: "	if d.queue.polls {\n		return nil\n",
			new: "	if d.queue.polls || !d.caps.Notify {\n		return nil\n",
		}},
		pkg: "mysqlbackend", test: "TestClientsThatPollWakeWaiters",
	},
	{
		guard: "mysql: an unreadable lock hides no other lock", file: "mysqlbackend/record.go",
		without: "one damaged row makes List fail for all locks",
		edits: []edit{{
			old: "l.key, err)\n		return l, nil\n",
			new: "l.key, err)\n		return l, l.err\n",
		}},
		pkg: "mysqlbackend", test: "TestUnreadableRowIsBroken",
	},
	{
		guard:   "mysql: a break of all holders clears an unreadable lock",
		file:    "mysqlbackend/inspect.go",
		without: "a damaged row keeps its lock taken until an operator edits the table",
		edits: []edit{{
			old: "owner == \"\" && errors.Is(err, backend.ErrConflict)",
			new: "owner == \"\\x00\" && errors.Is(err, backend.ErrConflict)",
		}},
		pkg: "mysqlbackend", test: "TestUnreadableRowIsBroken",
	},
	{
		guard: "mysql: signals ignore the case of the table", file: "mysqlbackend/keys.go",
		without: "a release wakes no waiter that writes the table's name in another case",
		edits:   []edit{{old: "strings.ToLower(s.database", new: "strings.TrimSpace(s.database"}},
		pkg:     "mysqlbackend", test: "TestSignalsIgnoreTheCaseOfTables",
	},
	{
		guard:   "mysql: no limit of the server ends a wait",
		file:    "mysqlbackend/open.go",
		without: "with max_statement_time on MariaDB, waiters lose their places again and again",
		edits: []edit{{
			old: "/*!80000 , max_execution_time = 0 */ /*M! , max_statement_time = 0 */",
			new: "",
		}},
		pkg: "mysqlbackend", test: "TestServersLimitEndsNoWait",
	},
	{
		guard:   "mysql: a waiter with an entry is queued, whatever follows",
		file:    "mysqlbackend/changes.go",
		without: "an error during a Lock leaves an entry that keeps a free lock taken",
		edits: []edit{{
			old: "if c.isQueued && isDefinite(err) {",
			new: "if c.isQueued && err == nil {",
		}},
		pkg: "mysqlbackend", test: "TestWaiterWithAnEntryIsQueued",
	},
	{
		guard:   "mysql: a simple change of unknown outcome is not repeated",
		file:    "mysqlbackend/swap.go",
		without: "the release of a held permit reports that it was not held",
		edits:   []edit{{old: "	case isUnreadable(err):\n", new: "	case isReply(err):\n"}},
		pkg:     "mysqlbackend", test: "TestUnknownOutcomeIsReturned",
	},
	{
		guard:   "mysql: no owner leaves twice in one statement",
		file:    "mysqlbackend/swap.go",
		without: "two Releases of one grant at a time destroy the roster: all its leases are lost",
		edits: []edit{{
			old: "!slices.Contains(s.leaving, c.leaves)",
			new: "slices.Index(s.leaving, c.leaves) < 99",
		}},
		pkg: "mysqlbackend", test: "TestSwapOf",
	},
	{
		guard:   "mysql: a late wake-up ends no wait",
		file:    "mysqlbackend/turns.go",
		without: "a Lock fails because another client woke its watcher twice",
		edits: []edit{{
			old: "	if hasNumber(err, errInterrupted) {\n		return d.lookOnce",
			new: "	if false {\n		return d.lookOnce",
		}},
		pkg: "mysqlbackend", test: "TestLateKillEndsNoWait",
	},
	{
		guard:   "mysql: a slow client releases in a roster with waiters",
		file:    "mysqlbackend/swap.go",
		without: "faster clients overtake the release until its context ends",
		edits: []edit{{
			old: "case was.Find(c.leaves) != nil",
			new: "case false && c.leaves != \"\"",
		}},
		pkg: "mysqlbackend", test: "TestOvertakenReleaseIsMadeAtOnce",
	},
	{
		guard:   "mysql: a caller that gives up disturbs no other caller",
		file:    "mysqlbackend/changes.go",
		without: "one caller with short contexts starves the other callers of its client",
		edits: []edit{{
			old: "abandonAfter = time.Second",
			new: "abandonAfter = 10 * time.Millisecond",
		}},
		pkg: "mysqlbackend", test: "TestImpatientCallerDisturbsNoOther",
	},
	{
		guard:   "mysql: terms in a roster stay whole numbers",
		file:    "mysqlbackend/statements/roster-renew.sql",
		without: "a renewal makes the roster unreadable",
		edits: []edit{{
			old: "GREATEST(CAST(JSON_EXTRACT({doc}, {expires}) AS SIGNED)",
			new: "GREATEST(0.0 + JSON_EXTRACT({doc}, {expires})",
		}},
		pkg: "mysqlbackend", test: "TestSlowClientIsNotOvertaken",
	},
	{
		guard:   "mysql: a waiter behind others is not granted by a statement",
		file:    "mysqlbackend/statements/roster-grant.sql",
		without: "a waiter on a slow network is a second holder",
		edits:   []edit{{old: "AND {index} <= ?", new: "AND ({index} <= ? OR TRUE)"}},
		pkg:     "mysqlbackend", test: "TestStatements",
	},
	{
		guard:   "mysql: a reader behind a writer is not granted by a statement",
		file:    "mysqlbackend/statements/roster-grant.sql",
		without: "a reader on a slow network holds the lock with a writer",
		edits:   []edit{{old: "AND ({index} = 0 OR ", new: "AND (TRUE OR {index} = 0 OR "}},
		pkg:     "mysqlbackend", test: "TestStatements",
	},
	{
		guard:   "mysql: a slow waiter in front gets the lock",
		file:    "mysqlbackend/swap.go",
		without: "a client on a slow network never gets a lock that others wait for",
		edits:   []edit{{old: "case was.Distance(c.req.Owner) == 0:", new: "case false:"}},
		pkg:     "mysqlbackend", test: "TestOvertakenRequestIsGrantedAtOnce",
	},
	{
		guard:   "mysql: a slow waiter keeps its place",
		file:    "mysqlbackend/swap.go",
		without: "a client on a slow network loses its place again and again",
		edits:   []edit{{old: "return d.keepNow", new: "return nil"}},
		pkg:     "mysqlbackend", test: "TestSlowWaiterIsServed",
	},
	{
		guard:   "mysql: a simple change keeps the limit",
		file:    "mysqlbackend/statements/roster-take.sql",
		without: "a semaphore grants permits beyond its limit",
		edits: []edit{{
			old: "AND JSON_LENGTH({doc}) - ? < ?",
			new: "AND JSON_LENGTH({doc}) - ? < 100 + ?",
		}},
		pkg: "mysqlbackend", test: "TestSwapKeepsTheRules",
	},
	{
		guard:   "mysql: no statement contains a change that was given up",
		file:    "mysqlbackend/changes.go",
		without: "a lock is granted to a caller that has given up long before",
		edits:   []edit{{old: "	c.left = true\n", new: ""}},
		pkg:     "mysqlbackend", test: "TestGivenUpChangeIsNotMade",
	},
	{
		guard: "mysql: a release leaves no owner", file: "mysqlbackend/statements/release.sql",
		without: "a statement that waited for the row revives a released lock",
		edits:   []edit{{old: "  owner = '',", new: "  owner = IF(1, owner, ''),"}},
		pkg:     "mysqlbackend", test: "TestStaleStatementsReviveNothing",
	},
	{
		guard: "mysql: a fence exceeds the last one", file: "mysqlbackend/statements/acquire.sql",
		without: "fences repeat after the clock was set back",
		edits:   []edit{{old: "GREATEST(token + 1, ", new: "GREATEST(0, "}},
		pkg:     "mysqlbackend", test: "TestFenceFollowsAClockThatWasSetBack",
	},
	{
		guard: "mysql: owner check in renew", file: "mysqlbackend/statements/renew.sql",
		without: "a renewal proves another owner's lock",
		edits:   []edit{{old: "AND owner = ?", new: "AND (owner = ? OR TRUE)"}},
		pkg:     "mysqlbackend", test: "TestRebuiltGrantIsOwnerChecked",
	},
	{
		guard: "mysql: terms count from the sending", file: "mysqlbackend/driver.go",
		without: "a slow commit proves a term that is too long",
		edits: []edit{{
			old: "Term: termOf(sent, micros)",
			new: "Term: termOf(sent.Add(time.Since(sent)), micros)",
		}},
		pkg: "mysqlbackend", test: "TestConformance/TermCountsFromSending",
	},
	{
		guard:   "mysql: late statements end before Capabilities.Late",
		file:    "mysqlbackend/driver.go",
		without: "a cancelled statement takes the lock later, as a ghost",
		edits: []edit{{
			old: "time.Duration(s.lockWait)*time.Second + timerSlack + abandonAfter",
			new: "0",
		}},
		pkg: "mysqlbackend", test: "TestCancelledAcquireEndsInTime",
	},
	{
		guard:   "mysql: a release that a wake-up interrupts is repeated",
		file:    "mysqlbackend/driver.go",
		without: "an unlocked lock stays taken until the end of its TTL",
		edits: []edit{{
			old: "if err != nil && !hasNumber(err, errInterrupted) {",
			new: "if err != nil || out.changed == 0 {",
		}},
		pkg: "mysqlbackend", test: "TestLateKillCostsNoRelease",
	},
	{
		guard: "mysql: a release wakes the first waiter", file: "mysqlbackend/driver.go",
		without: "each waiter sleeps until its next poll, for up to a second",
		edits: []edit{{
			old: "\t\t\td.wake(ctx, out.id)\n",
			new: "\t\t\t_ = ctx\n",
		}},
		pkg: "mysqlbackend", test: "TestConformance/ReleaseWakesAWaiter",
	},
	{
		guard: "mysql: no KILL on MariaDB", file: "mysqlbackend/driver.go",
		without: "a wake-up can stop all sleeping connections and all hand-offs of the server " +
			"for two seconds",
		edits: []edit{{
			old: "out.id > 0 && !d.queue.polls {",
			new: "out.id > 0 {",
		}},
		pkg: "mysqlbackend", test: "TestMariaDBKillsNoQuery",
	},
	{
		guard: "mysql: the first waiter on MariaDB polls", file: "mysqlbackend/wait.go",
		without: "each waiter blocks until its wait ends",
		edits:   []edit{{old: "pause(ctx, min(p, left))", new: "pause(ctx, max(p, left))"}},
		pkg:     "mysqlbackend", test: "TestMariaDBKillsNoQuery",
	},
	{
		guard: "mysql: a lent connection is closed after a wait", file: "mysqlbackend/wait.go",
		without: "a late wake-up interrupts a statement of the application",
		edits:   []edit{{old: "if q.lent || w.signal", new: "if false || w.signal"}},
		pkg:     "mysqlbackend", test: "TestLentConnectionIsClosedDuringAWait",
	},
	{
		guard:   "mysql: a late acquisition shortens no term",
		file:    "mysqlbackend/statements/acquire.sql",
		without: "a request that waited for the row makes two holders",
		edits: []edit{{
			old: "GREATEST(expires, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)",
			new: "UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND",
		}},
		pkg: "mysqlbackend", test: "TestLateRequestShortensNoTerm",
	},
	{
		guard: "mysql: a late renewal shortens no term", file: "mysqlbackend/statements/renew.sql",
		without: "a renewal that waited for the row makes two holders",
		edits:   []edit{{old: "GREATEST(expires, ", new: "GREATEST('2026-01-01', "}},
		pkg:     "mysqlbackend", test: "TestLateRequestShortensNoTerm",
	},
	{
		guard:   "mysql: a late batch shortens no term",
		file:    "mysqlbackend/statements/renew-free.sql",
		without: "a batch of renewals that waited makes two holders",
		edits:   []edit{{old: "GREATEST(t.expires, ", new: "GREATEST('2026-01-01', "}},
		pkg:     "mysqlbackend", test: "TestLateRequestShortensNoTerm",
	},
	{
		guard: "mysql: a batch waits for no row", file: "mysqlbackend/statements/renew-free.sql",
		without: "one row that stays locked ends other leases",
		edits:   []edit{{old: "FOR UPDATE SKIP LOCKED", new: "FOR UPDATE"}},
		pkg:     "mysqlbackend", test: "TestLockedRowDelaysNoOtherRenewal",
	},
	{
		guard:   "mysql: owners are read without waiting",
		file:    "mysqlbackend/statements/holders.sql",
		without: "one row that stays locked delays the answers for other leases",
		edits:   []edit{{old: "FOR UPDATE SKIP LOCKED", new: "FOR UPDATE"}},
		pkg:     "mysqlbackend", test: "TestLockedRowDelaysNoOtherRenewal",
	},
	{
		guard: "mysql: a batch waits for contested rows at the end", file: "mysqlbackend/renew.go",
		without: "leases are lost if many clients request their locks",
		edits:   []edit{{old: "bound := maxRowWait\n", new: "bound := 0 * maxRowWait\n"}},
		pkg:     "mysqlbackend", test: "TestContestedLeasesAreNotLost",
	},
	{
		guard: "mysql: few connections wait for locked rows", file: "mysqlbackend/renew.go",
		without: "each row that a stalled commit locks takes a connection, until none is left",
		edits: []edit{{
			old: "const maxRowWaiters = mainConns / 2",
			new: "const maxRowWaiters = mainConns * 50",
		}},
		pkg: "mysqlbackend", test: "TestLockedRowsTakeFewConnections",
	},
	{
		guard:   "mysql: the server soon stops waiting for a locked row",
		file:    "mysqlbackend/pool.go",
		without: "abandoned renewals fill a server with a long lock wait",
		edits: []edit{{
			old: "SET SESSION innodb_lock_wait_timeout = 1\"",
			new: "SET SESSION innodb_lock_wait_timeout = 600\"",
		}},
		pkg: "mysqlbackend", test: "TestLockedRowsTakeFewConnections",
	},
	{
		guard:   "mysql: a read-only server grants nothing",
		file:    "mysqlbackend/statements/acquire.sql",
		without: "a demoted master grants locks to a user with all privileges: two holders",
		edits: []edit{{
			old: "IF(CONCAT(@@global.read_only) IN ('0', 'OFF'), ?, NULL)",
			new: "IF(TRUE, ?, NULL)",
		}},
		pkg: "mysqlbackend", test: "TestDemotedMasterIsIgnored",
	},
	{
		guard:   "mysql: a read-only server renews nothing",
		file:    "mysqlbackend/statements/renew.sql",
		without: "a demoted master renews leases of a user with all privileges: two holders",
		edits: []edit{{
			old: "IF(CONCAT(@@global.read_only) NOT IN ('0', 'OFF'), 1,",
			new: "IF(FALSE, 1,",
		}},
		pkg: "mysqlbackend", test: "TestDemotedMasterIsIgnored",
	},
	{
		guard:   "mysql: a read-only server renews no batch",
		file:    "mysqlbackend/statements/renew-free.sql",
		without: "a demoted master renews leases of a user with all privileges: two holders",
		edits: []edit{{
			old: "IF(CONCAT(@@global.read_only) NOT IN ('0', 'OFF'), 1,",
			new: "IF(FALSE, 1,",
		}},
		pkg: "mysqlbackend", test: "TestDemotedMasterIsIgnored",
	},
	{
		guard: "mysql: no connection converts names", file: "mysqlbackend/open.go",
		without: "clients with two character sets have two rows for one name: two holders",
		edits:   []edit{{old: "case s.convertsText:", new: "case false:"}},
		pkg:     "mysqlbackend", test: "TestCharacterSets",
	},
	{
		guard:   "mysql: a connection is closed whose request the read-only server refused",
		file:    "mysqlbackend/conn.go",
		without: "a driver stays with a demoted master, although its host name has moved",
		edits:   []edit{{old: "if hasNoName(err) {", new: "if false {"}},
		pkg:     "mysqlbackend", test: "TestReadOnlyServerIsLeft",
	},
	{
		guard: "mysql: a connection to a read-only server is closed", file: "mysqlbackend/conn.go",
		without: "a driver stays with a demoted master, although its host name has moved",
		edits: []edit{{
			old: "return nil, errLeaving\n\t}\n\treturn result, nil",
			new: "return result, nil\n\t}\n\treturn result, nil",
		}},
		pkg: "mysqlbackend", test: "TestReadOnlyServerIsLeft",
	},
	{
		guard: "mysql: a statement-based binary log is refused", file: "mysqlbackend/open.go",
		without: "a replica that executes the statements itself has no locks",
		edits: []edit{{
			old: "logs[\"binlog_format\"] == \"STATEMENT\"",
			new: "logs[\"binlog_format\"] == \"NONE\"",
		}},
		pkg: "mysqlbackend", test: "TestStatementLogIsRefused",
	},
	{
		guard: "mysql: a narrow table takes no long names", file: "mysqlbackend/record.go",
		without: "a server that is not strict treats two long names as one",
		edits: []edit{{
			old: "		if hasShape(columns, s.columns()) {\n			return s, nil",
			new: "		if hasShape(columns, s.columns()) {\n" +
				"			s.width = maxKey\n			return s, nil",
		}},
		pkg: "mysqlbackend", test: "TestNarrowTableIsServed",
	},
	{
		guard: "mysql: answers are bounded", file: "mysqlbackend/conn.go",
		without: "a hostile server fills the memory",
		edits: []edit{{
			old: "if s.answered > maxAnswer {",
			new: "if s.answered > maxAnswer<<20 {",
		}},
		pkg: "mysqlbackend", test: "TestAnswerIsBounded",
	},
	{
		guard: "mysql: a server that returns no row is refused", file: "mysqlbackend/open.go",
		without: "a hostile server ends the process",
		edits: []edit{{
			old: "if err == nil && len(found) != 1 {",
			new: "if err == nil && len(found) > 1 {",
		}},
		pkg: "mysqlbackend", test: "TestHostileServer",
	},
	{
		guard:   "mysql: a batch waits for locked rows for at most a second",
		file:    "mysqlbackend/renew.go",
		without: "the renewals of other rows are answered seconds late",
		edits:   []edit{{old: "bound := maxRowWait", new: "bound := 12 * maxRowWait"}},
		pkg:     "mysqlbackend", test: "TestLockedRowsTakeFewConnections",
	},
	{
		guard:   "mysql: a waiter gives its place back only once",
		file:    "mysqlbackend/acquisition.go",
		without: "Close blocks for ever after a lock was granted to an owner twice during its wait",
		edits:   []edit{{old: "\tcase a.state != first:\n\t\treturn false\n", new: ""}},
		pkg:     "mysqlbackend", test: "TestSecondGrantGivesNoPlaceBack",
	},
	{
		guard: "mysql: a release after a wait reports a break", file: "mysqlbackend/driver.go",
		without: "Unlock of a broken lease succeeds while its holder gives the signal away",
		edits: []edit{{
			old: "queued := a.state == waiting || a.state == first",
			new: "queued := a.state != absent",
		}},
		pkg: "mysqlbackend", test: "TestReleaseReportsABreakWhilePassing",
	},
	{
		guard:   "mysql: a late first request revives nothing",
		file:    "mysqlbackend/statements/acquire.sql",
		without: "a broken lease lives on, although the lock has had another holder since then",
		edits:   []edit{{old: "? AND since <= UTC_TIMESTAMP(6)", new: "? AND TRUE"}},
		pkg:     "mysqlbackend", test: "TestLateRequestRevivesNoBrokenLease",
	},
	{
		guard:   "mysql: a clock that is set back keeps no lock taken",
		file:    "mysqlbackend/statements/acquire.sql",
		without: "a free lock stays taken for the time by which the clock was set back",
		edits:   []edit{{old: " OR expires > UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE", new: ""}},
		pkg:     "mysqlbackend", test: "TestFreeLockIsFreeWhenTheClockWasSetBack",
	},
	{
		guard:   "mysql: owners are read from the writer",
		file:    "mysqlbackend/statements/holders.sql",
		without: "a lagging replica confirms a broken lock",
		edits: []edit{{
			old: "WHERE name IN ({names}) FOR UPDATE SKIP LOCKED",
			new: "WHERE name IN ({names})",
		}},
		pkg: "mysqlbackend", test: "TestRenewalIgnoresReplicas",
	},
	{
		guard: "mysql: owner check in a batch", file: "mysqlbackend/statements/renew-free.sql",
		without: "a renewal prolongs another owner's grant",
		edits: []edit{{
			old: "WHERE (t.name, t.owner, IF(?, t.token, 0)) IN ({grants})",
			new: "WHERE ((t.name, t.owner, IF(?, t.token, 0)) IN ({grants}) OR TRUE)",
		}},
		pkg: "mysqlbackend", test: "TestRenewAllTakesAnyBatch",
	},
	{
		guard: "mysql: the connections of idle waiters are closed", file: "mysqlbackend/open.go",
		without: "a stopped waiter delays each hand-off by seconds",
		edits:   []edit{{old: "strconv.Itoa(maxIdle)", new: "strconv.Itoa(maxIdle * 3600)"}},
		pkg:     "mysqlbackend", test: "TestStoppedWaiterIsClosed",
	},
	{
		guard: "mysql: lent connections of idle waiters are closed", file: "mysqlbackend/wait.go",
		without: "a stopped waiter delays each hand-off by seconds",
		edits: []edit{{
			old: "\"SET SESSION wait_timeout = \"+waitTimeout)",
			new: "\"SET SESSION wait_timeout = 7200\")",
		}},
		pkg: "mysqlbackend", test: "TestStoppedWaiterIsClosed",
	},
	{
		guard: "mysql: the sweep moves on", file: "mysqlbackend/sweep.go",
		without: "rows after the first 500 rows in use are never swept",
		edits:   []edit{{old: "if w.end != begin {", new: "if w.end == begin {"}},
		pkg:     "mysqlbackend", test: "TestSweepKeepsUp",
	},
	{
		guard: "mysql: the sweep leaves rows in use", file: "mysqlbackend/statements/sweep.sql",
		without: "a lock that was acquired after the sweep read its row loses the row",
		edits: []edit{{
			old: "AND expires < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND",
			new: "AND expires < UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND",
		}},
		pkg: "mysqlbackend", test: "TestSweepLeavesReusedNames",
	},
	{
		guard: "mysql: Close ends no wake-up", file: "mysqlbackend/driver.go",
		without: "if a process ends just after a release, the next waiter sleeps for up to 1 s",
		edits: []edit{{
			old: "context.WithTimeout(context.Background(), min(d.opts.Timeout, time.Second))",
			new: "context.WithTimeout(d.ctx, min(d.opts.Timeout, time.Second))",
		}},
		pkg: "mysqlbackend", test: "TestCloseEndsNoWakeUp",
	},
	{
		guard: "mysql: a passed signal ends one acquisition", file: "mysqlbackend/acquisition.go",
		without: "the connection of a newer wait of the owner is lost for ever",
		edits:   []edit{{old: "if r.byOwner[owner] == a {", new: "if true || a != nil {"}},
		pkg:     "mysqlbackend", test: "TestPassedSignalForgetsNoOtherAcquisition",
	},
	{
		guard:   "mysql: a release waits until the signal is passed on",
		file:    "mysqlbackend/driver.go",
		without: "a free lock is reserved for its last holder's connection, and TryLock is refused",
		edits:   []edit{{old: "		awaitPassed(ctx, a.passed)\n", new: ""}},
		pkg:     "mysqlbackend", test: "TestReleaseWaitsForThePassingSignal",
	},
	{
		guard:   "mysql: a roster is stored over what was read",
		file:    "mysqlbackend/statements/roster-write.sql",
		without: "of two changes at a time one is lost: too many holders, or a permit that is gone",
		edits:   []edit{{old: "AND token = ?", new: "AND (token = ? OR TRUE)"}},
		pkg:     "mysqlbackend", test: "TestStatements",
	},
	{
		guard:   "mysql: a roster is cleared as it was read",
		file:    "mysqlbackend/statements/roster-clear.sql",
		without: "a holder that has just come is removed",
		edits:   []edit{{old: "AND token = ?", new: "AND (token = ? OR TRUE)"}},
		pkg:     "mysqlbackend", test: "TestStatements",
	},
	{
		guard:   "mysql: a renewal is not overwritten",
		file:    "mysqlbackend/statements/roster-write.sql",
		without: "a roster that is made of a writer's row has the term before its last renewal",
		edits: []edit{{
			old: "AND expires = TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND\n  AND",
			new: "AND (? OR TRUE)\n  AND",
		}},
		pkg: "mysqlbackend", test: "TestStatements",
	},
	{
		guard: "mysql: each change raises the token", file: "mysqlbackend/roster.go",
		without: "a late statement finds a later roster as it was, and replaces it",
		edits: []edit{{
			old: "max(row.drawn+1, row.token+1, row.now-backend.FenceEpoch)",
			new: "max(row.token, 1)",
		}},
		pkg: "mysqlbackend", test: "TestDrawnNumbersGrow",
	},
	{
		guard: "mysql: a writer finds its grant in a roster", file: "mysqlbackend/driver.go",
		without: "a reader that waits costs the writer its lock",
		edits: []edit{{
			old: "if !errors.Is(err, backend.ErrLost) {", new: "if true {",
		}},
		pkg: "mysqlbackend", test: "TestWriterBecomesAnEntry",
	},
	{
		guard: "mysql: a batch finds its grants in rosters", file: "mysqlbackend/renew.go",
		without: "a reader that waits costs the writer its lock",
		edits:   []edit{{old: "case h.live && h.owner == rosterOwner:", new: "case false:"}},
		pkg:     "mysqlbackend", test: "TestWriterBecomesAnEntry",
	},
	{
		guard: "mysql: a writer leaves a roster", file: "mysqlbackend/driver.go",
		without: "a reader that waits gets a lock that was released only after its TTL",
		edits: []edit{{
			old: "if !errors.Is(err, backend.ErrNotHeld) {", new: "if true {",
		}},
		pkg: "mysqlbackend", test: "TestWriterBecomesAnEntry",
	},
	{
		guard: "mysql: a roster is no holder to break.sql", file: "mysqlbackend/inspect.go",
		without: "an operator cannot break a reader's lock",
		edits: []edit{{
			old: "if !errors.Is(err, backend.ErrNotHeld) {",
			new: "if err == nil || errors.Is(err, backend.ErrNotHeld) {",
		}},
		pkg: "mysqlbackend", test: "TestConformance/BreakEndsOneReader",
	},
	{
		guard: "mysql: a locked roster is renewed at the end", file: "mysqlbackend/renew.go",
		without: "rosters that stay locked delay the other renewals, and fill the server",
		edits: []edit{{
			old: "d.pools.renewals, true, r, of)", new: "d.pools.control, false, r, of)",
		}},
		pkg: "mysqlbackend", test: "TestLockedRowDelaysNoOtherRenewal",
	},
	{
		guard:   "mysql: a column that was added is used",
		file:    "mysqlbackend/driver.go",
		without: "a driver that was opened before an ALTER TABLE loses its locks to readers",
		edits: []edit{{
			old: "if !errors.Is(err, backend.ErrLost) {",
			new: "if !d.caps.Move || !errors.Is(err, backend.ErrLost) {",
		}},
		pkg: "mysqlbackend", test: "TestTableWithoutRosters",
	},
	{
		guard:   "mysql: a table without the column has no rosters",
		file:    "mysqlbackend/roster.go",
		without: "the loss of a lock is not detected with a table of an earlier build",
		edits: []edit{{
			old: "		err = backend.ErrLost\n", new: "		err = errors.Join(err)\n",
		}},
		pkg: "mysqlbackend", test: "TestTableWithoutRosters",
	},
	{
		guard:   "mysql: a read-only server gets no row",
		file:    "mysqlbackend/statements/roster-row.sql",
		without: "a demoted master with a fresh name keeps a reader in a loop, or gets a row",
		edits: []edit{{
			old: "IF(CONCAT(@@global.read_only) NOT IN ('0', 'OFF'), 1, 0)", new: "IF(FALSE, 1, 0)",
		}},
		pkg: "mysqlbackend", test: "TestDemotedMasterIsIgnored",
	},
	{
		guard:   "mysql: a read-only server changes no roster",
		file:    "mysqlbackend/roster.go",
		without: "a demoted master answers from its rosters",
		edits: []edit{{
			old: "if row.readOnly && !c.removes {", new: "if row.readOnly && false {",
		}},
		pkg: "mysqlbackend", test: "TestDemotedMasterIsIgnored",
	},
	{
		guard:   "mysql: a connection that has read a read-only server's roster is closed",
		file:    "mysqlbackend/conn.go",
		without: "readers stay with a demoted master, although its host name has moved",
		edits:   []edit{{old: "return !c.isLeft && c.lib", new: "return c.lib"}},
		pkg:     "mysqlbackend", test: "TestReadOnlyServerIsLeft",
	},
	{
		guard: "mysql: a long roster is read alone", file: "mysqlbackend/inspect.go",
		without: "List fails if the rosters of a page exceed an answer",
		edits:   []edit{{old: "maxListed = 8 << 10", new: "maxListed = 8 << 20"}},
		pkg:     "mysqlbackend", test: "TestLongRostersAreListed",
	},
	{
		guard: "mysql: a roster stays readable", file: "mysqlbackend/roster.go",
		without: "a roster grows until no holder can renew or release its lock",
		edits: []edit{{
			old: "len(after.text) > d.maxRoster\n", new: "len(after.text) > maxRoster<<4\n",
		}},
		pkg: "mysqlbackend", test: "TestFullRosterTakesNoMore",
	},
	{
		guard:   "mysql: a waiter in a roster keeps no connection",
		file:    "mysqlbackend/roster.go",
		without: "writers behind it come late, and further waiters of the driver poll",
		edits: []edit{{
			old: "if w := d.acquisitions.take(req.Owner); w != nil {",
			new: "if w := new(waitConn); w.conn != nil {",
		}},
		pkg: "mysqlbackend", test: "TestFirstWaiterEntersARoster",
	},
	{
		guard:   "mysql: the first waiter detects a roster",
		file:    "mysqlbackend/statements/held.sql",
		without: "readers overtake a writer that waits on MariaDB",
		edits:   []edit{{old: "NOT IN ('', '*')", new: "<> ''"}},
		pkg:     "mysqlbackend", test: "TestFirstWaiterEntersARoster",
	},
	{
		guard:   "mysql: AcquireAll grants all or none",
		file:    "mysqlbackend/statements/acquire-all.sql",
		without: "a LockAll takes a lock from its holder",
		edits: []edit{{
			old: "BETWEEN 2 AND (1 << 62) - 1",
			new: "> 1",
		}},
		pkg: "mysqlbackend", test: "TestConformance/OneTakenLeavesNone",
	},
	{
		guard:   "mysql: AcquireAll waits for no locked row",
		file:    "mysqlbackend/statements/acquire-all.sql",
		without: "a LockAll keeps the rows of other leases locked while it waits, and may be late",
		edits: []edit{{
			old: "FOR UPDATE NOWAIT",
			new: "FOR UPDATE",
		}},
		pkg: "mysqlbackend", test: "TestAllWaitsForNoRow",
	},
	{
		guard:   "mysql: ReleaseAll waits for no locked row",
		file:    "mysqlbackend/statements/release-all.sql",
		without: "one row that stays locked keeps the other locks of a LockAll taken",
		edits: []edit{{
			old: "FOR UPDATE SKIP LOCKED",
			new: "FOR UPDATE",
		}},
		pkg: "mysqlbackend", test: "TestAllWaitsForNoRow",
	},
	{
		guard:   "mysql: the fence of AcquireAll exceeds the last ones",
		file:    "mysqlbackend/statements/acquire-all.sql",
		without: "fences repeat after the clock was set back",
		edits: []edit{{
			old: "MAX(token) OVER () + 1",
			new: "0 * MAX(token) OVER ()",
		}},
		pkg: "mysqlbackend", test: "TestAllHasOneFence",
	},
	{
		guard:   "mysql: AcquireAll is idempotent",
		file:    "mysqlbackend/statements/acquire-all.sql",
		without: "after a lost reply, LockAll waits for itself until the end of the term",
		edits: []edit{{
			old: "IF(has OR expires",
			new: "IF(expires",
		}},
		pkg: "mysqlbackend", test: "TestConformance/RepeatedAcquireAllIsTheSame",
	},
	{
		guard:   "mysql: a late AcquireAll shortens no term",
		file:    "mysqlbackend/statements/acquire-all.sql",
		without: "a request that is executed after its successor makes two holders",
		edits: []edit{{
			old: "IF(f.has, t.expires, UTC_TIMESTAMP(6))", new: "UTC_TIMESTAMP(6)",
		}},
		pkg: "mysqlbackend", test: "TestLateRequestShortensNoTerm",
	},
	{
		guard:   "mysql: AcquireAll takes no lock that is kept",
		file:    "mysqlbackend/statements/acquire-all.sql",
		without: "a stream of LockAlls overtakes the first waiter",
		edits: []edit{{
			old: "owner = '' AND expires > UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE",
			new: "owner = ''",
		}},
		pkg: "mysqlbackend", test: "TestAllOfAKeptLock",
	},
	{
		guard:   "mysql: a read-only server grants no AcquireAll",
		file:    "mysqlbackend/statements/acquire-all.sql",
		without: "a demoted master grants locks to a user with all privileges: two holders",
		edits: []edit{{
			old: "IF(CONCAT(@@global.read_only) NOT IN ('0', 'OFF'), 1,",
			new: "IF(FALSE, 1,",
		}},
		pkg: "mysqlbackend", test: "TestDemotedMasterIsIgnored",
	},
	{
		guard:   "mysql: owner check in ReleaseAll",
		file:    "mysqlbackend/statements/release-all.sql",
		without: "ReleaseAll of a lost lease frees the lock of another owner",
		edits: []edit{{
			old: "owner = ELT(FIELD(name, {names}), {owners}) AND",
			new: "(TRUE OR ELT(FIELD(name, {names}), {owners})) AND",
		}},
		pkg: "mysqlbackend", test: "TestConformance/ReleaseAllAnswersEach",
	},
	{
		guard:   "mysql: a refused repetition of AcquireAll leaves nothing",
		file:    "mysqlbackend/combine.go",
		without: "locks of a LockAll that has failed stay taken for a term",
		edits: []edit{{
			old: "if !has {",
			new: "if !has || true {",
		}},
		pkg: "mysqlbackend", test: "TestRefusedRepetitionLeavesNothing",
	},
	{
		guard:   "mysql: a repeated AcquireAll finds its rosters",
		file:    "mysqlbackend/combine.go",
		without: "a LockAll is refused by its own grant after a reader has come",
		edits: []edit{{
			old: "holds := r.Find(req.Owner) != nil",
			new: "holds := r.Find(req.Owner) != nil && false",
		}},
		pkg: "mysqlbackend", test: "TestRepeatedAllFindsItsRosters",
	},
	{
		guard:   "mysql: ReleaseAll gives signals away",
		file:    "mysqlbackend/combine.go",
		without: "a lock is kept for the waiter that has just released it",
		edits: []edit{{
			old: "isPlain(g) && !d.acquisitions.has(g.Owner)",
			new: "isPlain(g)",
		}},
		pkg: "mysqlbackend", test: "TestReleaseAllUsesTheSignal",
	},
	{
		guard:   "mysql: ReleaseAll wakes the first waiters",
		file:    "mysqlbackend/combine.go",
		without: "each waiter sleeps until its next poll, for up to a second",
		edits: []edit{{
			old: "\t\td.wakeOwner(ctx, d.keys.signal(key))\n",
			new: "\t\t_ = ctx\n",
		}},
		pkg: "mysqlbackend", test: "TestReleaseAllEndsSleeps",
	},
	{
		guard:   "mysql: ReleaseAll finds what it has skipped",
		file:    "mysqlbackend/combine.go",
		without: "a lock whose row was locked for a moment stays taken until its TTL",
		edits: []edit{{
			old: "return d.free(ctx, r.grants[i])",
			new: "return backend.ErrNotHeld",
		}},
		pkg: "mysqlbackend", test: "TestRepeatedAllFindsItsRosters",
	},
	{
		guard:   "mysql: a new row waits alone",
		file:    "mysqlbackend/combine.go",
		without: "a LockAll of a new name keeps other names locked for a second",
		edits: []edit{{
			old: "d.text.rosterRow, []byte(req.Key))",
			new: "`INSERT IGNORE INTO dlock (name, owner, token, since, expires, meta)\n" +
				"\t\tSELECT n.name, '', 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), '' FROM\n" +
				"\t\t(SELECT ? AS name UNION ALL SELECT ? UNION ALL SELECT ?) n\n" +
				"\t\tORDER BY n.name`, namesOf(reqs)...)\n\t\t_ = req",
		}},
		pkg: "mysqlbackend", test: "TestNewRowWaitsAlone",
	},
	{
		guard:   "mysql: releases of locked rows take few connections",
		file:    "mysqlbackend/combine.go",
		without: "an Unlock of many locks makes renewals wait until leases are lost",
		edits: []edit{{
			old: "waiting: make(chan struct{}, maxRowWaiters)",
			new: "waiting: make(chan struct{}, maxFreed)",
		}},
		pkg: "mysqlbackend", test: "TestReleasesOfLockedRowsTakeFewConnections",
	},
	{
		guard: "mysql: a closed connection sends nothing", file: "mysqlbackend/conn.go",
		without: "the kernel sends a request that was given up long after its release",
		edits: []edit{{
			old: "\treturn abort.Close(s.Conn)\n",
			new: "\t_ = abort.Close\n\treturn s.Conn.Close()\n",
		}},
		pkg: "mysqlbackend", test: "TestClosedConnectionSendsNothing",
	},
	{
		guard: "mysql: connections of lost hosts end", file: "mysqlbackend/open.go",
		without: "some lost hosts take all connections of the server for hours",
		edits:   []edit{{old: "\t\"wait_timeout\": \"30\",\n", new: ""}},
		pkg:     "mysqlbackend", test: "TestIdleConnectionsEnd",
	},
	{
		guard: "mysql: releases delay no renewal", file: "mysqlbackend/pool.go",
		without: "releases of locked rows take all connections of renewals: leases are lost",
		edits: []edit{{
			old: "\trenewals.extra = make(chan struct{}, reservedConns)\n", new: "",
		}},
		pkg: "mysqlbackend", test: "TestReleasesDelayNoRenewal",
	},
	{
		guard: "mysql: requests for free rows have connections", file: "mysqlbackend/pool.go",
		without: "requests for locked rows delay the requests for all other names",
		edits:   []edit{{old: "if p.spare != nil {", new: "if p.spare != nil && false {"}},
		pkg:     "mysqlbackend", test: "TestLockedRowsDelayNoOtherName",
	},
	{
		guard: "mysql: a spare connection waits for no row", file: "mysqlbackend/pool.go",
		without: "requests for locked rows take the spare connections, too",
		edits: []edit{{
			old: "if p.spare.isFree(ctx, key) {", new: "if p.spare.isFree(ctx, key) || true {",
		}},
		pkg: "mysqlbackend", test: "TestLockedRowsDelayNoOtherName",
	},
	{
		guard:   "mysql: a dead spare connection costs no request",
		file:    "mysqlbackend/pool.go",
		without: "a request that was never sent has an unknown outcome",
		edits: []edit{{
			old: "\t\t\tspare.free()\n",
			new: "\t\t\tspare.free()\n\t\t\tif ctx.Err() == nil {\n" +
				"\t\t\t\treturn nil, nil, context.DeadlineExceeded\n\t\t\t}\n",
		}},
		pkg: "mysqlbackend", test: "TestDeadSpareConnection",
	},
	{
		guard:   "mysql: a dead spare connection leaves time for another one",
		file:    "mysqlbackend/pool.go",
		without: "a request fails although there are free connections",
		edits:   []edit{{old: "time.Until(end)/2", new: "time.Until(end)"}},
		pkg:     "mysqlbackend", test: "TestDeadSpareConnection",
	},
	{
		guard: "mysql: a request without a slot is not unknown", file: "mysqlbackend/pool.go",
		without: "a TryLock that was never sent returns ErrUncertain",
		edits: []edit{{
			old: "fmt.Errorf(\"%w: %w\", backend.ErrUnavailable, err)",
			new: "fmt.Errorf(\"%w\", err)",
		}},
		pkg: "mysqlbackend", test: "TestRequestWithoutASlotIsNotSent",
	},
	{
		guard: "mysql: ReleaseAll waits for locked rows once", file: "mysqlbackend/combine.go",
		without: "an Unlock of 31 locked rows takes eight seconds",
		edits:   []edit{{old: "r.gaveUp.Store(true)", new: "r.gaveUp.Store(false)"}},
		pkg:     "mysqlbackend", test: "TestReleaseAllWaitsOnce",
	},
	{
		guard: "mysql: a Downgrade passes the signal on", file: "mysqlbackend/move.go",
		without: "the release of a reader that has waited as a writer takes a statement more",
		edits: []edit{{
			old: "\td.background.Go(func() { d.passSignal(g.Owner) }) // the next waiter enters " +
				"the roster\n",
			new: "",
		}},
		pkg: "mysqlbackend", test: "TestDowngradePassesTheSignalOn",
	},
	{
		guard: "mysql: a fence is as durable as a commit", file: "mysqlbackend/driver.go",
		without: "require=fence-durable accepts a server that can forget grants in a crash",
		edits:   []edit{{old: "if !s.isDurable {", new: "if false {"}},
		pkg:     "mysqlbackend", test: "TestFencesAreAsDurableAsCommits",
	},
	{
		guard: "mysql: the head of an answer is checked", file: "mysqlbackend/conn.go",
		without: "a hostile server fills the memory with the columns of an answer",
		edits: []edit{{
			old: "return n, cmp.Or(s.head.check(p[:n]), err)",
			new: "return n, cmp.Or(s.head.check(nil), err)",
		}},
		pkg: "mysqlbackend", test: "TestHostileServer",
	},
	{
		guard: "mysql: a panic of the client library is an error", file: "mysqlbackend/answers.go",
		without: "a hostile server ends the process",
		edits:   []edit{{old: "value := recover()", new: "var value any"}},
		pkg:     "mysqlbackend", test: "TestGarbledAnswerEndsItsConnection",
	},
	{
		guard: "mysql: a panic of a lent database is an error", file: "mysqlbackend/statement.go",
		without: "a hostile server ends the process",
		edits: []edit{{
			old: ") (_ []T, err error) {\n\tdefer rescue(&err, nil)\n",
			new: ") (_ []T, err error) {\n",
		}},
		pkg: "mysqlbackend", test: "TestHostileServer",
	},
	{
		guard: "mysql: a connection is closed after a panic", file: "mysqlbackend/conn.go",
		without: "a request reads the rest of the answer to an earlier one",
		edits: []edit{{
			old: "\tc.isLeft = true\n\t_ = c.socket.Close()\n", new: "\t_ = c.socket\n",
		}},
		pkg: "mysqlbackend", test: "TestGarbledAnswerEndsItsConnection",
	},
	{
		guard:   "mysql: the certificate of the server is verified",
		file:    "backend/tlsfile/tlsfile.go",
		without: "any server that an attacker puts in front of the database gets the password",
		edits: []edit{{
			old: "MinVersion: tls.VersionTLS12, ", new: "InsecureSkipVerify: true, ",
		}},
		pkg: "mysqlbackend", test: "TestTLS",
	},
	{
		guard:   "mysql: a renewal is of its grant",
		file:    "mysqlbackend/statements/renew.sql",
		without: "a broken lease lives on, although the lock has had another holder since then",
		edits: []edit{{
			old: "AND (? = 0 OR token = ?)",
			new: "AND (? = 0 OR token = ? OR TRUE)",
		}},
		pkg: "mysqlbackend", test: "TestLateGrantRevivesNoBrokenLease",
	},
	{
		guard:   "mysql: renewals in a batch are of their grants",
		file:    "mysqlbackend/renew.go",
		without: "a broken lease lives on, although the lock has had another holder since then",
		edits: []edit{{
			old: "r.grants[indices[0]].Fence > 0",
			new: "false",
		}, {
			old: "[]byte(gs[i].Owner), int64(gs[i].Fence))",
			new: "[]byte(gs[i].Owner), 0)",
		}},
		pkg: "mysqlbackend", test: "TestLateGrantRevivesNoBrokenLease",
	},
	{
		guard:   "mysql: a batch finds no other grant of the owner",
		file:    "mysqlbackend/renew.go",
		without: "a broken lease lives on, although the lock has had another holder since then",
		edits: []edit{{
			old: "h.token == int64(g.Fence))",
			new: "h.token == int64(g.Fence) || true)",
		}},
		pkg: "mysqlbackend", test: "TestLateGrantRevivesNoBrokenLease",
	},
	{
		guard:   "mysql: a renewal in a roster is of its grant",
		file:    "mysqlbackend/statements/roster-renew.sql",
		without: "a broken lease lives on, although the lock has had another holder since then",
		edits: []edit{{
			old: "CAST(JSON_EXTRACT({doc}, {fence}) AS SIGNED) = ?)",
			new: "CAST(JSON_EXTRACT({doc}, {fence}) AS SIGNED) = ? OR TRUE)",
		}},
		pkg: "mysqlbackend", test: "TestLateGrantRevivesNoBrokenLease",
	},
	{
		guard:   "mysql: renewals of a roster are of their grants",
		file:    "mysqlbackend/roster.go",
		without: "a broken lease lives on, although the lock has had another holder since then",
		edits: []edit{{
			old: "if !isOther(r.Find(g.Owner), g) {",
			new: "if true {",
		}},
		pkg: "mysqlbackend", test: "TestLateGrantRevivesNoBrokenLease",
	},
	{
		guard:   "mysql: an Export is of its grant",
		file:    "mysqlbackend/move.go",
		without: "the ticket of a broken lease is good",
		edits: []edit{{
			old: "if isOther(r.Find(g.Owner), g) {\n\t\t\treturn backend.ErrLost\n\t\t}\n" +
				"\t\treturn r.Export",
			new: "if false {\n\t\t\treturn backend.ErrLost\n\t\t}\n\t\treturn r.Export",
		}},
		pkg: "mysqlbackend", test: "TestLateGrantRevivesNoBrokenLease",
	},
	{
		guard:   "mysql: a Downgrade is of its grant",
		file:    "mysqlbackend/move.go",
		without: "the Downgrade of a broken lease succeeds",
		edits: []edit{{
			old: "if isOther(r.Find(g.Owner), g) {\n\t\t\treturn backend.ErrLost\n\t\t}\n" +
				"\t\tshared",
			new: "if false {\n\t\t\treturn backend.ErrLost\n\t\t}\n\t\tshared",
		}},
		pkg: "mysqlbackend", test: "TestLateGrantRevivesNoBrokenLease",
	},
	{
		guard:   "mysql: a repetition keeps the fence",
		file:    "mysqlbackend/statements/acquire.sql",
		without: "a repetition that is executed late ends the lease",
		edits: []edit{{
			old: "IF(expires > UTC_TIMESTAMP(6), token,",
			new: "IF(FALSE, token,",
		}},
		pkg: "mysqlbackend", test: "TestLateGrantRevivesNoBrokenLease",
	},
	{
		guard:   "mysql: a repeated AcquireAll keeps its fence",
		file:    "mysqlbackend/statements/acquire-all.sql",
		without: "a repetition that is executed late ends the leases",
		edits: []edit{{
			old: "IF(MIN(has) OVER () AND",
			new: "IF(FALSE AND",
		}},
		pkg: "mysqlbackend", test: "TestRepeatedAllKeepsItsFence",
	},
	{
		guard:   "mysql: a new holder has its own term",
		file:    "mysqlbackend/statements/acquire-all.sql",
		without: "after the clock was set back, a new holder keeps a lock for hours",
		edits: []edit{{
			old: "IF(f.has, t.expires, UTC_TIMESTAMP(6))",
			new: "t.expires",
		}},
		pkg: "mysqlbackend", test: "TestFreeLockIsFreeWhenTheClockWasSetBack",
	},
	{
		guard:   "mysql: a read-only server shows no lock",
		file:    "mysqlbackend/statements/list.sql",
		without: "a demoted master shows old holders, or none",
		edits: []edit{{
			old: "CONCAT(@@global.read_only) NOT IN ('0', 'OFF') AS is_read_only",
			new: "0 AS is_read_only",
		}},
		pkg: "mysqlbackend", test: "TestDemotedMasterIsIgnored",
	},
	{
		guard:   "mysql: waiters in a roster leave a read-only server",
		file:    "mysqlbackend/statements/roster-look.sql",
		without: "a waiter stays with a demoted master, and misses its turn",
		edits: []edit{{
			old: "CONCAT(@@global.read_only) NOT IN ('0', 'OFF') AS is_read_only",
			new: "0 AS is_read_only",
		}},
		pkg: "mysqlbackend", test: "TestWaitersLeaveAReadOnlyServer",
	},
	{
		guard:   "mysql: waiters in a queue leave a read-only server",
		file:    "mysqlbackend/statements/queue.sql",
		without: "a waiter stays in the queue of a demoted master",
		edits: []edit{{
			old: "CONCAT(@@global.read_only) NOT IN ('0', 'OFF') AS is_read_only",
			new: "0 AS is_read_only",
		}},
		pkg: "mysqlbackend", test: "TestWaitersLeaveAReadOnlyServer",
	},
	{
		guard:   "mysql: the first waiter leaves a read-only server",
		file:    "mysqlbackend/statements/sleep.sql",
		without: "the first waiter sleeps on a demoted master",
		edits: []edit{{
			old: "CONCAT(@@global.read_only) NOT IN ('0', 'OFF') AS is_read_only",
			new: "0 AS is_read_only",
		}},
		pkg: "mysqlbackend", test: "TestWaitersLeaveAReadOnlyServer",
	},
	{
		guard:   "mysql: the first waiter polls no read-only server",
		file:    "mysqlbackend/statements/held.sql",
		without: "the first waiter polls a demoted master",
		edits: []edit{{
			old: "CONCAT(@@global.read_only) NOT IN ('0', 'OFF') AS is_read_only",
			new: "0 AS is_read_only",
		}},
		pkg: "mysqlbackend", test: "TestWaitersLeaveAReadOnlyServer",
	},
	{
		guard:   "mysql: Open opens the tables of no other database",
		file:    "mysqlbackend/statements/shape.sql",
		without: "MariaDB opens every table of every database at each Open",
		edits: []edit{{
			old: "ON c.TABLE_SCHEMA = DATABASE() AND c.TABLE_NAME = ?",
			new: "ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND ? <> ''",
		}},
		pkg: "mysqlbackend", test: "TestStatements",
	},
	{
		guard:   "mysql: a context of a caller stops no other",
		file:    "mysqlbackend/changes.go",
		without: "a context that blocks stops all other changes of the driver",
		edits: []edit{{
			old: "\tend, _ := ctx.Deadline() // not with the mutex held: ctx is the user's\n",
			new: "",
		}, {
			old: "c.end = end", new: "c.end, _ = ctx.Deadline()",
		}},
		pkg: "mysqlbackend", test: "TestContextOfACallerStopsNoOther",
	},
	{
		guard: "mysql: a key is the whole name", file: "mysqlbackend/statements/shape.sql",
		without: "two names share a row, and a Break of one gives the other to a second holder",
		edits:   []edit{{old: "s.SUB_PART IS NOT NULL", new: "FALSE"}},
		pkg:     "mysqlbackend", test: "TestTablesWithoutTheirKey",
	},
	{
		guard: "mysql: no KILL QUERY behind a proxy", file: "mysqlbackend/wait.go",
		without: "a release interrupts a statement of another program",
		edits:   []edit{{old: "s.isMariaDB() || s.isProxied,", new: "s.isMariaDB(),"}},
		pkg:     "mysqlbackend", test: "TestNoKillBehindAProxy",
	},
	{
		guard: "mysql: a roster fits into a packet", file: "mysqlbackend/driver.go",
		without: "the holders of a name can be granted, and not renewed together",
		edits: []edit{{
			old: "int(min(maxRoster, s.maxPacket/4))", new: "int(min(maxRoster, s.maxPacket))",
		}},
		pkg: "mysqlbackend", test: "TestSmallPackets",
	},
	{
		guard: "mysql: renewals fit into packets", file: "mysqlbackend/renew.go",
		without: "all locks of a client with long names are lost",
		edits: []edit{{
			old: "if used > maxBytes && size > 0 {", new: "if false {",
		}},
		pkg: "mysqlbackend", test: "TestSmallPackets",
	},
	{
		guard: "mysql: sweeps fit into packets", file: "mysqlbackend/sweep.go",
		without: "rows with long names are never deleted",
		edits:   []edit{{old: "sweepBatch, d.maxNames)", new: "sweepBatch, 1<<30)"}},
		pkg:     "mysqlbackend", test: "TestSmallPackets",
	},
	{
		guard: "mysql: an unreadable change is repeated", file: "mysqlbackend/swap.go",
		without: "under contention a release has an unknown outcome",
		edits: []edit{{
			old: "send(ctx, e, c); !isUnreadable(err) {", new: "send(ctx, e, c); true {",
		}},
		pkg: "mysqlbackend", test: "TestUnreadableChangeIsRepeated",
	},
}
