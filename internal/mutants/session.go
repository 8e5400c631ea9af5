package main

// sessionMutants are the guards of internal/session, and of lock=session on the servers.
var sessionMutants = []mutant{
	{
		guard: "session: a held lock is not requested", file: "internal/session/driver.go",
		without: "a server grants the lock of a connection to that connection once more",
		edits: []edit{{
			old: "if h := d.find(s, id); h != nil {", new: "if h := d.find(s, id); false {",
		}},
		pkg: "internal/session", test: "TestHeldLockIsNotRequested",
	},
	{
		guard: "session: a collision is a conflict", file: "internal/session/driver.go",
		without: "a lock seems to be held, and its holder has never heard of it",
		edits:   []edit{{old: "case h.key != req.Key:", new: "case h.key == \"\":"}},
		pkg:     "internal/session", test: "TestCollisionsAreRefused",
	},
	{
		guard: "session: a collision frees no lock", file: "internal/session/driver.go",
		without: "a release frees the lock of another name with the same hash",
		edits:   []edit{{old: " && h.key == g.Key", new: ""}},
		pkg:     "internal/session", test: "TestCollisionsAreRefused",
	},
	{
		guard: "session: owner check in release", file: "internal/session/driver.go",
		without: "a release frees the lock of another owner",
		edits:   []edit{{old: " && h.owner == g.Owner", new: ""}},
		pkg:     "internal/session", test: "TestHeldLockIsNotRequested",
	},
	{
		guard: "session: a release waits for no connection", file: "internal/session/driver.go",
		without: "Unlock is ErrUncertain while a waiter connects, though the lock is free",
		edits: []edit{{
			old: "\tif !isConnected {\n\t\treturn backend.ErrNotHeld\n\t}\n",
			new: "\t_ = isConnected\n",
		}},
		pkg: "internal/session", test: "TestReleaseDoesNotWaitForAConnection",
	},
	{
		guard:   "session: a request that was given up is not sent",
		file:    "internal/session/driver.go",
		without: "an acquisition is executed after its release, and its lock stays held",
		edits: []edit{{
			old: "if ctx.Err() == nil && decided", new: "if decided",
		}},
		pkg: "internal/session", test: "TestRequestThatWasGivenUpIsNotSent",
	},
	{
		guard: "session: a request begins or is given up", file: "internal/session/driver.go",
		without: "a request is executed that was reported as not sent: its lock has no holder",
		edits: []edit{{
			old: "ctx.Err() == nil && decided.CompareAndSwap(false, true) {",
			new: "ctx.Err() == nil && (decided.CompareAndSwap(false, true) || true) {",
		}},
		pkg: "internal/session", test: "TestRequestBeginsOrIsGivenUp",
	},
	{
		guard: "session: a request begins when it is connected", file: "internal/session/driver.go",
		without: "a request is executed seconds after it was given up, or has an unknown outcome",
		edits: []edit{{
			old: "\t\t\t\ts, err := d.connect()\n\t\t\t\tif err == nil {\n" +
				"\t\t\t\t\terr = begin()\n\t\t\t\t}\n",
			new: "\t\t\t\tif err := begin(); err != nil {\n\t\t\t\t\treturn none, err\n" +
				"\t\t\t\t}\n\t\t\t\ts, err := d.connect()\n",
		}},
		pkg: "internal/session", test: "TestRequestIsGivenUpWhileItConnects",
	},
	{
		guard: "session: a request that has not begun is not unknown",
		file:  "internal/session/driver.go",
		without: "while the server cannot be reached, a TryLock that was never sent returns " +
			"ErrUncertain",
		edits: []edit{{
			old: "if err != nil && !isRefusal(err) && decided",
			new: "if err == nil && !isRefusal(err) && decided",
		}},
		pkg: "internal/session", test: "TestRequestThatWasGivenUpIsNotSent",
	},
	{
		guard: "session: an idle connection is not used", file: "internal/session/driver.go",
		without: "a TryLock after a pause of a TTL returns ErrUncertain without a fault",
		edits:   []edit{{old: "elapsed(s.proved) > d.server.TTL/2", new: "false"}},
		pkg:     "internal/session", test: "TestIdleConnectionIsReplaced",
	},
	{
		guard: "session: a suspend makes a proof old", file: "internal/session/driver.go",
		without: "after a suspend a renewal sends no request, and the lease ends",
		edits: []edit{{
			old: "return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))",
			new: "return now.Sub(since)",
		}},
		pkg: "internal/session", test: "TestSuspendMakesAProofOld",
	},
	{
		guard: "session: a longer term needs more patience", file: "internal/session/driver.go",
		without: "a server that is slow for some seconds costs all locks",
		edits:   []edit{{old: "\t\t\th.ttl = max(h.ttl, g.TTL)\n", new: ""}},
		pkg:     "internal/session", test: "TestLongerTermsNeedPatience/Renew",
	},
	{
		guard: "session: a release needs no patience", file: "internal/session/driver.go",
		without: "after an Unlock, a dead connection delays the next Lock by a TTL",
		edits:   []edit{{old: "h.ttl, h.lost = 0, nil", new: "h.lost = nil"}},
		pkg:     "internal/session", test: "TestReleaseNeedsNoPatience",
	},
	{
		guard: "session: TCP of the client outlasts a term", file: "internal/session/link.go",
		without: "a client that is cut off for three minutes loses a lock of ten",
		edits:   []edit{{old: "int(ttl/interval)+1", new: "0"}},
		pkg:     "internal/session", test: "TestKeepAliveOutlastsTheTTL",
	},
	{
		guard: "session: TCP repeats a request for a term", file: "internal/session/link.go",
		without: "a client that is cut off for 16 minutes during a renewal loses a lock of an hour",
		edits:   []edit{{old: "\t\t_ = outlast(tcp, max(defaultSilence, ttl))\n", new: ""}},
		pkg:     "internal/session", test: "TestKeepAliveOutlastsTheTTL",
	},
	{
		guard: "session: a term counts from sending", file: "internal/session/driver.go",
		without: "a lease outlives the lock: two holders",
		edits: []edit{{
			old: "\ts.proved = sent\n", new: "\tsent = time.Now()\n\ts.proved = sent\n",
		}},
		pkg: "internal/session", test: "TestTermsCountFromSending",
	},
	{
		guard: "session: an old proof proves nothing", file: "internal/session/driver.go",
		without: "a renewal sends no request, and the server ends the connection",
		edits: []edit{{
			old: "elapsed(d.present.proved) < age",
			new: "elapsed(d.present.proved) < 100*age",
		}},
		pkg: "internal/session", test: "TestTermsCountFromSending",
	},
	{
		guard: "session: a slow server costs no lock", file: "internal/session/driver.go",
		without: "a server that is slow for some seconds costs all locks",
		edits: []edit{{
			old: "return max(d.server.Timeout, longest-elapsed(s.proved))",
			new: "return d.server.Timeout",
		}},
		pkg: "internal/session", test: "TestSlowServerCostsNoLock",
	},
	{
		guard: "session: the end of a connection is noticed", file: "internal/session/driver.go",
		without: "a holder hears of its loss only when it renews, while another one has the lock",
		edits: []edit{{
			old: "\t\t<-s.conn.Ended()\n\t\t_ = d.end(s, errEnded)\n",
			new: "\t\t<-s.conn.Ended()\n",
		}},
		pkg: "internal/session", test: "TestEndOfAConnectionLosesAllLocks",
	},
	{
		guard: "session: a refusal costs no lock", file: "internal/session/driver.go",
		without: "a full server costs a client the locks that it has",
		edits:   []edit{{old: "if err != nil && !isRefusal(err) {", new: "if err != nil {"}},
		pkg:     "internal/session", test: "TestRefusalCostsNoLock",
	},
	{
		guard: "session: an Unlock is no loss", file: "internal/session/driver.go",
		without: "an Unlock whose answer is lost reports the loss of a lock that it has freed",
		edits: []edit{{
			old: "h.ttl, h.lost = 0, nil", new: "h.ttl = 0",
		}},
		pkg: "internal/session", test: "TestUnlockThatEndsTheConnectionIsNoLoss",
	},
	{
		guard:   "session: an Unlock without an answer stays unknown",
		file:    "internal/session/driver.go",
		without: "Unlock returns nil while the server keeps the lock for up to a TTL",
		edits:   []edit{{old: "\t\td.doubts[u.id] = u\n", new: "\t\t_ = u\n"}},
		pkg:     "internal/session", test: "TestUnlockWithoutAnAnswerStaysUnknown",
	},
	{
		guard: "session: a reset during an Unlock is no answer", file: "internal/session/driver.go",
		without: "Unlock returns nil for a lock that was lost before",
		edits:   []edit{{old: "u.id != \"\" {", new: "u.id != \"\" && cause == errNoAnswer {"}},
		pkg:     "internal/session", test: "TestUnlockThatEndsTheConnectionIsNoLoss",
	},
	{
		guard: "session: a release waits for an Unlock", file: "internal/session/driver.go",
		without: "Unlock returns nil while the server keeps the lock for up to a TTL",
		edits: []edit{{
			old: "if u, ok := d.doubtOf(g, id); ok { // of",
			new: "if u, ok := d.doubtOf(g, id); ok && u.id == \"\" { // of",
		}},
		pkg: "internal/session", test: "TestReleaseWaitsForAnUnlock",
	},
	{
		guard:   "session: an Unlock without an answer is uncertain",
		file:    "internal/session/driver.go",
		without: "Unlock returns nil for a lock that was lost before, and is free again",
		edits:   []edit{{old: "if elapsed(u.sent) < unlockLimit {", new: "if false {"}},
		pkg:     "internal/session", test: "TestFreeLockEndsADoubt",
	},
	{
		guard: "session: a lock that is not free has its doubt", file: "internal/session/driver.go",
		without: "a release returns ErrNotHeld while the server keeps the lock",
		edits: []edit{{
			old: "if err != nil || !isFree {", new: "if err != nil || !isFree && false {",
		}},
		pkg: "internal/session", test: "TestUnlockWithoutAnAnswerStaysUnknown",
	},
	{
		guard: "session: a free lock has no doubt", file: "internal/session/driver.go",
		without: "a client releases for a TTL what is free",
		edits:   []edit{{old: "\t\t\td.settle(u)\n", new: ""}},
		pkg:     "internal/session", test: "TestFreeLockEndsADoubt",
	},
	{
		guard: "postgres: a check of a lock leaves nothing", file: "pgbackend/session.go",
		without: "a lock that was free is taken as long as the connection lasts",
		edits: []edit{{
			old: "pg_try_advisory_xact_lock", new: "pg_try_advisory_lock",
		}},
		pkg: "pgbackend", test: "TestFreeSession",
	},
	{
		guard: "mysql: a check of a lock reads its holder", file: "mysqlbackend/session.go",
		without: "a release returns ErrNotHeld while the server keeps the lock",
		edits:   []edit{{old: "SELECT IS_FREE_LOCK(?)", new: "SELECT ? <> ''"}},
		pkg:     "mysqlbackend", test: "TestFreeSession",
	},
	{
		guard: "session: a doubt has one owner", file: "internal/session/driver.go",
		without: "a client releases for a TTL what it does not have",
		edits:   []edit{{old: " && u.owner == g.Owner", new: ""}},
		pkg:     "internal/session", test: "TestUnlockWithoutAnAnswerStaysUnknown",
	},
	{
		guard: "session: a doubt has one name", file: "internal/session/driver.go",
		without: "a client releases for a TTL what it does not have",
		edits:   []edit{{old: "u.key == g.Key && ", new: ""}},
		pkg:     "internal/session", test: "TestUnlockWithoutAnAnswerStaysUnknown",
	},
	{
		guard: "session: a doubt ends with the term", file: "internal/session/driver.go",
		without: "a client releases for ever what the server has freed",
		edits:   []edit{{old: " && !d.isSettled(u)", new: ""}},
		pkg:     "internal/session", test: "TestUnlockWithoutAnAnswerStaysUnknown",
	},
	{
		guard: "session: old doubts are dropped", file: "internal/session/driver.go",
		without: "each Unlock that loses its connection costs memory for ever",
		edits:   []edit{{old: "return d.isSettled(u) })", new: "return false })"}},
		pkg:     "internal/session", test: "TestOldDoubtsAreDropped",
	},
	{
		guard: "session: a Lock ends a doubt", file: "internal/session/driver.go",
		without: "a client releases for a TTL what is free",
		edits: []edit{{
			old: "\tdelete(d.doubts, id)\n\tif s.cause == nil {",
			new: "\tif s.cause == nil {",
		}},
		pkg: "internal/session", test: "TestLockEndsDoubts",
	},
	{
		guard:   "session: an Unlock that ends the connection is answered",
		file:    "internal/session/driver.go",
		without: "an Unlock on a former primary is ErrUncertain, though the lock is free",
		edits:   []edit{{old: "err == nil || errors.Is(err, ErrFreed)", new: "err == nil"}},
		pkg:     "internal/session", test: "TestUnlockDetectsAReader",
	},
	{
		guard:   "session: an answered Unlock leaves no doubt",
		file:    "internal/session/driver.go",
		without: "a second Release is unknown, though the first one was answered",
		edits: []edit{{
			old: "\t\tdelete(d.doubts, id)\n\t\treturn nil\n", new: "\t\treturn nil\n",
		}},
		pkg: "internal/session", test: "TestUnlockDetectsAReader",
	},
	{
		guard: "mysql: a session has no pooler", file: "mysqlbackend/session.go",
		without: "behind a pooler, a lock belongs to a connection that other clients use",
		edits:   []edit{{old: "case l.made.isProxied(found.connection):", new: "case false:"}},
		pkg:     "mysqlbackend", test: "TestSessionBehindAPooler",
	},
	{
		guard:   "mysql: a session locks on no reader of Aurora",
		file:    "mysqlbackend/statements/session-lock.sql",
		without: "a reader and the writer have a holder each",
		edits:   []edit{{old: "\n    AND NOT @@global.innodb_read_only,", new: ","}},
		pkg:     "mysqlbackend", test: "TestSessionOfAnInnoDBReader",
	},
	{
		guard:   "mysql: a session on a reader of Aurora ends",
		file:    "mysqlbackend/statements/session-prove.sql",
		without: "after a failover, the old writer and the new one have a holder each",
		edits:   []edit{{old: "\n  AND NOT @@global.innodb_read_only", new: ""}},
		pkg:     "mysqlbackend", test: "TestSessionOfAnInnoDBReader",
	},
	{
		guard:   "mysql: an Unlock on a reader of Aurora proves nothing",
		file:    "mysqlbackend/statements/session-unlock.sql",
		without: "after a failover, the old writer and the new one have a holder each",
		edits:   []edit{{old: " AND NOT @@global.innodb_read_only", new: ""}},
		pkg:     "mysqlbackend", test: "TestSessionOfAnInnoDBReader",
	},
	{
		guard:   "mysql: a reader of Aurora is refused",
		file:    "mysqlbackend/statements/server.sql",
		without: "a client that reaches a reader has no locks, and does not look for the writer",
		edits:   []edit{{old: " OR @@global.innodb_read_only", new: ""}},
		pkg:     "mysqlbackend", test: "TestSessionOfAnInnoDBReader",
	},
	{
		guard:   "mysql: a reader of Aurora shows no roster",
		file:    "mysqlbackend/statements/roster-read.sql",
		without: "a reader that is behind makes a renewal report a held lock as lost",
		edits:   []edit{{old: " OR @@global.innodb_read_only", new: ""}},
		pkg:     "mysqlbackend", test: "TestSessionOfAnInnoDBReader",
	},
	{
		guard:   "mysql: an Unlock on a reader proves nothing",
		file:    "mysqlbackend/statements/session-unlock.sql",
		without: "after a failover, a client that unlocks now and then keeps its other locks",
		edits: []edit{{
			old: "IF(CONCAT(@@global.read_only) IN ('0', 'OFF') AND", new: "IF(",
		}},
		pkg: "mysqlbackend", test: "TestUnlockOnAReader",
	},
	{
		guard: "postgres: a session locks in its session only", file: "pgbackend/session.go",
		without: "behind a proxy, a lock belongs to a connection that other clients use",
		edits:   []edit{{old: "` <> $3 OR NOT `", new: "` <> $3 AND false OR NOT `"}},
		pkg:     "pgbackend", test: "TestMovedSession",
	},
	{
		guard: "postgres: a session is proved in its session only", file: "pgbackend/session.go",
		without: "behind a proxy, a lease lives on without its lock",
		edits:   []edit{{old: "tag.RowsAffected() != 1", new: "tag.RowsAffected() > 1"}},
		pkg:     "pgbackend", test: "TestMovedSession",
	},
	{
		guard: "postgres: a session is not its number", file: "pgbackend/session.go",
		without: "after a restart behind a proxy, a lease lives on without its lock",
		edits: []edit{{
			old: "`SELECT WHERE ` + markSQL + ` = $1 AND `",
			new: "`SELECT WHERE split_part(` + markSQL + `, ' ', 1) = split_part($1, ' ', 1) AND `",
		}},
		pkg: "pgbackend", test: "TestMovedSession",
	},
	{
		guard: "postgres: a session locks on the writer only", file: "pgbackend/session.go",
		without: "after a switchover, the old primary and the new one have a holder each",
		edits: []edit{{
			old: "<> $3 OR NOT ` + writerSQL + ` THEN -1", new: "<> $3 THEN -1",
		}},
		pkg: "pgbackend", test: "TestSessionOfAReader",
	},
	{
		guard:   "postgres: a session ends when its server is the writer no more",
		file:    "pgbackend/session.go",
		without: "after a switchover, the old primary and the new one have a holder each",
		edits:   []edit{{old: "= $1 AND ` + writerSQL", new: "= $1`"}},
		pkg:     "pgbackend", test: "TestSessionOfAReader",
	},
	{
		guard: "postgres: an Unlock on a reader proves nothing", file: "pgbackend/session.go",
		without: "after a switchover, a client that unlocks now and then keeps its other locks",
		edits:   []edit{{old: "case !isWriter:", new: "case !isWriter && false:"}},
		pkg:     "pgbackend", test: "TestUnlockOnAReader",
	},
	{
		guard: "session: Close ends a statement", file: "internal/session/driver.go",
		without: "Close waits for a silent server",
		edits:   []edit{{old: "\t\t_ = d.end(s, backend.ErrClosed)\n", new: "\t\t_ = s\n"}},
		pkg:     "internal/session", test: "TestCloseDuringARequest",
	},
	{
		guard: "session: a server may not send without end", file: "internal/session/link.go",
		without: "another protocol costs the memory of the process",
		edits:   []edit{{old: "maxUnread = 1 << 20", new: "maxUnread = 1 << 26"}},
		pkg:     "internal/session", test: "TestLinkLimitsWhatIsUnread",
	},
	{
		guard: "postgres: a silent session lasts for its term", file: "pgbackend/session.go",
		without: "the server frees the lock of a holder that is cut off before its lease ends",
		edits: []edit{{
			old: "return ttl.Milliseconds() + 1 }",
			new: "return ttl.Milliseconds() / 2 }",
		}},
		pkg: "pgbackend", test: "TestSilentSession",
	},
	{
		guard: "postgres: no limit ends a statement that locks", file: "pgbackend/session.go",
		without: "a statement fails and its lock stays, without a holder",
		edits: []edit{{
			old: "\t\t\"statement_timeout\":    \"0\",\n", new: "",
		}},
		pkg: "pgbackend", test: "TestSettingsOfASession",
	},
	{
		guard: "postgres: a full table of locks is a refusal", file: "pgbackend/session.go",
		without: "a server without room for one more lock costs a client all of its locks",
		edits: []edit{{
			old: "\tcase isAnswer(err):\n\t\treturn 0, a.undo(id, err)\n", new: "",
		}},
		pkg: "pgbackend", test: "TestFullLockTable",
	},
	{
		guard: "mysql: a silent session lasts for its term", file: "mysqlbackend/session.go",
		without: "the server frees the lock of a holder that is cut off before its lease ends",
		edits: []edit{{
			old: "strconv.FormatInt(seconds(ttl), 10)",
			new: "strconv.FormatInt(seconds(ttl)/2, 10)",
		}},
		pkg: "mysqlbackend", test: "TestSilentSession",
	},
	{
		guard: "mysql: the term of a session is rounded up", file: "mysqlbackend/session.go",
		without: "the server frees the lock of a holder that is cut off before its lease ends",
		edits:   []edit{{old: "(ttl + time.Second - 1)", new: "(ttl)"}},
		pkg:     "mysqlbackend", test: "TestSettingsOfASession",
	},
	{
		guard:   "mysql: a session locks on the writer only",
		file:    "mysqlbackend/statements/session-lock.sql",
		without: "after a failover, the old writer and the new one have a holder each",
		edits: []edit{{
			old: "= CONNECTION_ID() AND CONCAT(@@global.read_only) IN ('0', 'OFF')",
			new: "= CONNECTION_ID()",
		}},
		pkg: "mysqlbackend", test: "TestSessionOfAReader",
	},
	{
		guard:   "mysql: a session ends when its server is the writer no more",
		file:    "mysqlbackend/statements/session-prove.sql",
		without: "after a failover, the old writer and the new one have a holder each",
		edits: []edit{{
			old: " AND CONCAT(@@global.read_only) IN ('0', 'OFF')", new: "",
		}},
		pkg: "mysqlbackend", test: "TestSessionOfAReader",
	},
	{
		guard:   "mysql: a session locks on its connection only",
		file:    "mysqlbackend/statements/session-lock.sql",
		without: "behind a proxy, a lock belongs to a connection that other clients use",
		edits: []edit{{
			old: "IF(IS_USED_LOCK(?) = CONNECTION_ID() AND", new: "IF(? <> '' AND",
		}},
		pkg: "mysqlbackend", test: "TestMovedSession",
	},
	{
		guard:   "mysql: a session is proved on its connection only",
		file:    "mysqlbackend/statements/session-prove.sql",
		without: "behind a proxy, a lease lives on without its lock",
		edits: []edit{{
			old: "SELECT IFNULL(IS_USED_LOCK(?) = CONNECTION_ID(), 0) AND",
			new: "SELECT ? <> '' AND",
		}},
		pkg: "mysqlbackend", test: "TestMovedSession",
	},
	{
		guard:   "mysql: no limit ends a statement that locks",
		file:    "mysqlbackend/statements/session-settings.sql",
		without: "a statement fails and its lock stays, without a holder",
		edits: []edit{{
			old: "  /*!80000 , max_execution_time = 0 */ /*M! , max_statement_time = 0 */\n",
			new: "",
		}},
		pkg: "mysqlbackend", test: "TestSettingsOfASession",
	},
	{
		guard: "mysql: a session needs a clock", file: "mysqlbackend/session.go",
		without: "a fence is not greater than the one before it",
		edits: []edit{{
			old: "case !advances:", new: "case false:",
		}},
		pkg: "mysqlbackend", test: "TestSessionNeedsAClock",
	},
	{
		guard:   "session: losses are reported before the connection ends",
		file:    "internal/session/driver.go",
		without: "the next holder has the lock while the former one believes in it",
		edits: []edit{{
			old: "\tdefer close(s.over)\n\tdefer s.conn.Close()\n",
			new: "\tdefer close(s.over)\n\ts.conn.Close()\n",
		}},
		pkg: "internal/session", test: "TestLossesAreReportedBeforeTheConnectionEnds",
	},
	{
		guard:   "session: a second cause does not close earlier",
		file:    "internal/session/driver.go",
		without: "the next holder has the lock while the former one believes in it",
		edits:   []edit{{old: "\t\t<-s.over\n", new: "\t\ts.conn.Close()\n"}},
		pkg:     "internal/session", test: "TestLossesAreReportedBeforeTheConnectionEnds",
	},
	{
		guard: "session: patience ends with the terms", file: "internal/session/driver.go",
		without: "a client without a lock waits for a dead connection, as long as its TTL",
		edits: []edit{{
			old: "longest = max(longest, h.ttl)", new: "longest = max(h.ttl, d.server.TTL)",
		}},
		pkg: "internal/session", test: "TestShortTermsNeedNoPatience",
	},
	{
		guard:   "postgres: TCP does not end a silent session",
		file:    "pgbackend/session.go",
		without: "the server frees the lock of a holder that is cut off before its lease ends",
		edits: []edit{{
			old: "\t\t\"tcp_user_timeout\":    strconv.FormatInt(limit, 10),\n", new: "",
		}},
		pkg: "pgbackend", test: "TestSettingsOfASession",
	},
	{
		guard: "postgres: a session keeps its settings", file: "pgbackend/session.go",
		without: "a hook shortens the silence: the server frees the lock before the lease ends",
		edits:   []edit{{old: "case !kept:", new: "case false:"}},
		pkg:     "pgbackend", test: "TestHooksOfAPool",
	},
	{
		guard: "postgres: a session needs a patient TCP", file: "pgbackend/session.go",
		without: "a system without tcp_user_timeout frees the lock before the lease ends",
		edits:   []edit{{old: "case !survives && silence", new: "case false && silence"}},
		pkg:     "pgbackend", test: "TestHooksOfAPool",
	},
	{
		guard: "postgres: a session has the pool's password", file: "pgbackend/pool.go",
		without: "a pool whose passwords expire cannot connect again",
		edits: []edit{{
			old: "if o.beforeConnect != nil {", new: "if false {",
		}},
		pkg: "pgbackend", test: "TestHooksOfAPool",
	},
	{
		guard: "mysql: an answer begins with its request", file: "mysqlbackend/conn.go",
		without: "after 8 MB of answers a client loses all of its locks",
		edits:   []edit{{old: "\ts.answered = 0\n", new: ""}},
		pkg:     "mysqlbackend", test: "TestAnswersOfASession",
	},
	{
		guard: "mysql: a database has one spelling", file: "mysqlbackend/session.go",
		without: "two spellings of one database do not exclude each other: two holders",
		edits: []edit{{
			old: "strings.ToLower(database)", new: "strings.ToLower(\"\")+database",
		}},
		pkg: "mysqlbackend", test: "TestSpellingOfADatabase",
	},
	{
		guard:   "mysql: a session is refused where servers have their own locks",
		file:    "mysqlbackend/session.go",
		without: "two servers of one cluster have a holder each",
		edits: []edit{
			{old: "case variables[\"wsrep_on\"] == \"ON\":", new: "case false:"},
		},
		pkg: "mysqlbackend", test: "TestServersOfSessions",
	},
	{
		guard: "mysql: TCP does not end a silent session", file: "mysqlbackend/session.go",
		without: "the server frees the lock of a holder that is cut off before its lease ends",
		edits:   []edit{{old: "case after > 0 &&", new: "case after > 1e6 &&"}},
		pkg:     "mysqlbackend", test: "TestEagerKeepalive",
	},
	{
		guard:   "mysql: a connection is not its number",
		file:    "mysqlbackend/statements/session-prove.sql",
		without: "after a restart behind a proxy, a lease lives on without its lock",
		edits: []edit{{
			old: "IFNULL(IS_USED_LOCK(?) = CONNECTION_ID(), 0)",
			new: "IFNULL(IS_USED_LOCK(?), CONNECTION_ID()) = CONNECTION_ID()",
		}},
		pkg: "mysqlbackend", test: "TestMovedSession",
	},
	{
		guard: "mysql: an interrupted Lock is undone", file: "mysqlbackend/session.go",
		without: "a KILL QUERY of one statement costs a client all of its locks",
		edits: []edit{{
			old: "case isInterrupted(err):\n\t\treturn 0,", new: "case false:\n\t\treturn 0,",
		}},
		pkg: "mysqlbackend", test: "TestInterruptedSession",
	},
	{
		guard: "mysql: an interrupted Unlock is repeated", file: "mysqlbackend/session.go",
		without: "a KILL QUERY of one statement costs a client all of its locks",
		edits: []edit{{
			old: "case isInterrupted(err):\n\t\tif _", new: "case false:\n\t\tif _",
		}},
		pkg: "mysqlbackend", test: "TestInterruptedSession",
	},
	{
		guard: "mysql: a second Unlock proves the connection", file: "mysqlbackend/session.go",
		without: "behind a proxy, a lease lives on without its lock",
		edits:   []edit{{old: "\t\t\terr = l.Prove()\n", new: ""}},
		pkg:     "mysqlbackend", test: "TestInterruptedSession",
	},
	{
		guard: "mysql: an interrupted renewal is repeated", file: "mysqlbackend/session.go",
		without: "a KILL QUERY of one statement costs a client all of its locks",
		edits: []edit{{
			old: "\tif isInterrupted(err) {\n\t\tvalid", new: "\tif false {\n\t\tvalid",
		}},
		pkg: "mysqlbackend", test: "TestInterruptedSession",
	},
	{
		guard: "postgres: a cancelled Lock leaves no lock", file: "pgbackend/session.go",
		without: "a lock is taken without a holder, as long as the connection lasts",
		edits: []edit{{
			old: "\tif _, _, err := a.unlock(id); err != nil {\n\t\treturn err\n\t}\n", new: "",
		}},
		pkg: "pgbackend", test: "TestCancelledStatements",
	},
	{
		guard: "postgres: a cancelled Unlock is repeated", file: "pgbackend/session.go",
		without: "a cancelled statement costs a client all of its locks",
		edits:   []edit{{old: "wasEnded := isAnswer(err)", new: "wasEnded := false"}},
		pkg:     "pgbackend", test: "TestCancelledStatements",
	},
	{
		guard: "postgres: an error is an answer", file: "pgbackend/session.go",
		without: "a cancelled renewal costs a client all of its locks",
		edits: []edit{{
			old: "case isAnswer(err):\n\t\treturn nil", new: "case false:\n\t\treturn nil",
		}},
		pkg: "pgbackend", test: "TestErrorIsAnAnswer",
	},
	{
		guard: "session: releases pass acquisitions", file: "internal/session/driver.go",
		without: "an Unlock waits for the polls of all names that the process waits for",
		edits: []edit{{
			old: "occupy(ctx, d.line, func() (T, error) {",
			new: "occupy(ctx, make(chan struct{}, 1), func() (T, error) {",
		}},
		pkg: "internal/session", test: "TestReleasesPassAcquisitions",
	},
	{
		guard: "session: acquisitions in place are in line", file: "internal/session/driver.go",
		without: "an Unlock waits for two polls",
		edits: []edit{
			{old: "if enter(d.line) {", new: "if enter(make(chan struct{}, 1)) {"},
			{old: "\t\t\tdefer leave(d.line)\n", new: ""},
			{old: "\t\tleave(d.line)\n\t}\n", new: "\t}\n"},
		},
		pkg: "internal/session", test: "TestReleasesPassAcquisitions",
	},
	{
		guard: "session: a request in place ends in time", file: "internal/session/driver.go",
		without: "a Lock waits for a silent server as long as another lock's TTL",
		edits: []edit{{
			old: "d.patience(s, released) > time.Until(deadline)",
			new: "d.patience(s, released) > 100*time.Until(deadline)",
		}},
		pkg: "internal/session", test: "TestRequestInPlaceEndsInTime",
	},
	{
		guard: "session: a request in place that was given up is not sent",
		file:  "internal/session/driver.go", without: "a request is executed after its end",
		edits: []edit{{old: "d.isIdle(s), ctx.Err() != nil:", new: "d.isIdle(s):"}},
		pkg:   "internal/session", test: "TestRequestInPlaceIsGivenUp",
	},
	{
		guard:   "session: a request in place leaves an idle connection",
		file:    "internal/session/driver.go",
		without: "a TryLock after a pause of a TTL returns ErrUncertain without a fault",
		edits:   []edit{{old: "d.isIdle(s), ctx.Err() != nil:", new: "ctx.Err() != nil:"}},
		pkg:     "internal/session", test: "TestIdleConnectionIsReplaced/in_place",
	},
	{
		guard: "session: the end of a socket is noticed", file: "internal/session/watch_linux.go",
		without: "a holder hears of its loss only when it renews, while another one has the lock",
		edits:   []edit{{old: "Events: syscall.EPOLLRDHUP", new: "Events: syscall.EPOLLPRI"}},
		pkg:     "internal/session", test: "TestSocketNoticesItsEnd",
	},
	{
		guard: "session: a closed socket has ended", file: "internal/session/link.go",
		without: "Close blocks for ever",
		edits:   []edit{{old: "\t\tl.watch.close()\n", new: ""}},
		pkg:     "internal/session", test: "TestSocketIsClosed",
	},
	{
		guard: "session: a refusal proves nothing", file: "internal/session/driver.go",
		without: "a proxy's refusal prolongs a lease, and the server ends the connection",
		edits: []edit{
			{
				old: "if err := d.run(s, statement); err != nil {",
				new: "if err = d.run(s, statement); err != nil && !isRefusal(err) {",
			},
			{
				old: "\ts.proved = sent\n\treturn sent, nil",
				new: "\ts.proved = sent\n\treturn sent, err",
			},
		},
		pkg: "internal/session", test: "TestWhatProvesNothing",
	},
	{
		guard: "session: a floor is no lock", file: "internal/session/measure.go",
		without: "a measurement frees a lock, or finds it busy",
		edits:   []edit{{old: "d.server.ID(floorPrefix + key)", new: "d.server.ID(key)"}},
		pkg:     "internal/session", test: "TestFloorHasALockOfItsOwn",
	},
	{
		guard:   "session: a floor that is given up leaves no lock",
		file:    "internal/session/measure.go",
		without: "a measurement that is interrupted leaves a lock",
		edits: []edit{{
			old: "\t\tcase !acquired:",
			new: "\t\tcase ctx.Err() != nil:\n\t\t\treturn none, ctx.Err()\n\t\tcase !acquired:",
		}},
		pkg: "internal/session", test: "TestFloorThatWasGivenUpLeavesNoLock",
	},
	{
		guard: "mysql: a session opens slowly", file: "mysqlbackend/session.go",
		without: "a client with a round trip of 200 ms never opens a session",
		edits:   []edit{{old: "max(backend.OpenTimeout, t.Timeout)", new: "t.Timeout"}},
		pkg:     "mysqlbackend", test: "TestSessionOpensSlowly",
	},
	{
		guard: "mysql: a Close during a statement is an error", file: "mysqlbackend/session.go",
		without: "the end of a session ends the process",
		edits:   []edit{{old: "\tdefer rescue(&err, nil)\n", new: ""}},
		pkg:     "mysqlbackend", test: "TestStatementWithoutAConnection",
	},
	{
		guard: "postgres: a session passes a silent host", file: "pgbackend/session.go",
		without: "after a failover, a client cannot connect to the second host",
		edits: []edit{{
			old: "WithTimeout(ctx, patienceOf(base, opts.Timeout))",
			new: "WithTimeout(ctx, opts.Timeout)",
		}},
		pkg: "pgbackend", test: "TestSilentHostIsPassed",
	},
	{
		guard: "postgres: a session passes all silent hosts", file: "pgbackend/session.go",
		without: "a client whose other hosts are silent cannot connect to the last one",
		edits: []edit{{
			old: "WithTimeout(ctx, patienceOf(base, opts.Timeout))",
			new: "WithTimeout(ctx, backend.OpenTimeout)",
		}},
		pkg: "pgbackend", test: "TestSilentHostsArePassed/a_session",
	},
	{
		guard:   "session: no TTL is longer than the server allows",
		file:    "internal/session/options.go",
		without: "Open succeeds, and the server ends the connection before the terms of its locks",
		edits:   []edit{{old: " || ttl > maxTTL", new: ""}},
		pkg:     "mysqlbackend", test: "TestBadURLs",
	},
}
