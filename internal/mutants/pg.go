package main

// renewalThatInserts begins a renewal that makes the row of a name that has none.
const renewalThatInserts = "const renewSQL = `WITH made$ AS (INSERT INTO TABLE " +
	"(name, version, fence, owner, meta, since, expires) VALUES ($1, $4, $4, $2, '', now(), " +
	"now() + $3::bigint * interval '1 microsecond') " +
	"ON CONFLICT (name) DO NOTHING RETURNING version), "

// pgMutants are the guards of pgbackend.
var pgMutants = []mutant{
	{
		guard: "postgres: what an unchecked server sends is bounded", file: "pgbackend/open.go",
		without: "another protocol takes all memory with small messages",
		edits:   []edit{{old: "base.DialContext, maxUnchecked", new: "base.DialContext, 0"}},
		pkg:     "pgbackend", test: "TestHostileServer",
	},
	{
		guard: "postgres: an answer is bounded", file: "pgbackend/dial.go",
		without: "a server takes all memory with small messages",
		edits:   []edit{{old: "c.limit.Store(maxAnswer)", new: "c.limit.Store(0)"}},
		pkg:     "pgbackend", test: "TestAnswerIsLimited",
	},
	{
		guard: "postgres: a flood ends its connection", file: "pgbackend/dial.go",
		without: "each request lets the server send as much again",
		edits: []edit{{
			old: "if c.isFlooded() {\n\t\treturn 0, errFlood\n\t}\n\tc.read.Store(0)",
			new: "c.read.Store(0)",
		}},
		pkg: "pgbackend", test: "TestAnswerIsLimited",
	},
	{
		guard: "postgres: a message of the server is bounded", file: "pgbackend/open.go",
		without: "a wrong server under the URL makes the client allocate gigabytes",
		edits:   []edit{{old: "\tconn.MaxProtocolMessageBodyLen = maxMessage\n", new: ""}},
		pkg:     "pgbackend", test: "TestHostileServer",
	},
	{
		guard: "postgres: a release grants the next waiter", file: "pgbackend/record.go",
		without: "a lock that changes hands costs one more commit",
		edits: []edit{{
			old: "if entries.Grant(owner, last+1, now) {", new: "if false && owner != \"\" {",
		}},
		pkg: "pgbackend", test: "TestReleaseGrantsTheNextWaiter",
	},
	{
		guard: "postgres: later commits wait for the disk", file: "pgbackend/statements.go",
		without: "after a crash of the server there are two holders",
		edits: []edit{{
			old: "'off', true)\n)\n` + changeSQL",
			new: "'off', false)\n)\n` + changeSQL",
		}},
		pkg: "pgbackend", test: "TestCrashForgetsNoGrant",
	},
	{
		guard: "postgres: a crash forgets no grant", file: "pgbackend/edit.go",
		without: "after a crash of the server there are two holders",
		edits: []edit{{
			old: "if r.fence == r.read().fence && e.isOnlyOfWaiters()",
			new: "if e.isOnlyOfWaiters()",
		}},
		pkg: "pgbackend", test: "TestCrashForgetsNoGrant",
	},
	{
		guard: "postgres: a standby confirms a grant", file: "pgbackend/wait.go",
		without: "after a cancelled commit and a failover there are two holders",
		edits:   []edit{{old: "proves := r.isAlone && e", new: "proves := e"}},
		pkg:     "pgbackend", test: "TestSynchronousStandbyConfirmsAGrant",
	},
	{
		guard: "postgres: a grant by a release ends with the place", file: "pgbackend/wait.go",
		without: "a lease outlives its grant",
		edits: []edit{{
			old: "g.Term.TTL = min(rest, g.Term.TTL)", new: "_ = rest",
		}},
		pkg: "pgbackend", test: "TestReleaseGrantsTheNextWaiter",
	},
	{
		guard: "postgres: a waiter keeps its place", file: "pgbackend/wait.go",
		without: "a waiter is overtaken, and sleeps although the lock is free",
		edits:   []edit{{old: "roster.Place(req.TTL)/3", new: "roster.Place(req.TTL)*4"}},
		pkg:     "pgbackend", test: "TestWaiterKeepsItsPlace",
	},
	{
		guard:   "postgres: a release without waiters sends no message",
		file:    "pgbackend/statements.go",
		without: "the commits of the whole server wait for each other",
		edits: []edit{{
			old: "RETURNING version`\n\n// freeAllSQL",
			new: "RETURNING version + length(pg_notify('dlock', '')::text)`\n\n// freeAllSQL",
		}},
		pkg: "pgbackend", test: "TestUncontendedPairSendsNoMessage",
	},
	{
		guard: "postgres: a release wakes the first waiter", file: "pgbackend/record.go",
		without: "each waiter sleeps until its next poll",
		edits: []edit{{
			old: "before.Distance(e.Owner) > 0 {",
			new: "before.Distance(e.Owner) > 99 {",
		}},
		pkg: "pgbackend", test: "TestConformance/ReleaseWakesAWaiter",
	},
	{
		guard: "postgres: the row is read again after subscribing", file: "pgbackend/wait.go",
		without: "a waiter misses a release",
		edits: []edit{{
			old: "if g != nil || err != nil || distance == 0 {",
			new: "if g = nil; err != nil || distance < 0 {",
		}},
		pkg: "pgbackend", test: "TestConformance/ReleaseBeforeWaitIsNotMissed",
	},
	{
		guard: "postgres: a new connection wakes all waiters", file: "pgbackend/wait.go",
		without: "a message that was lost with the connection costs a waiter its turn",
		edits: []edit{{
			old: "\tfor _, w := range l.waiters {\n\t\tnotify(w.signal)\n\t}\n", new: "",
		}},
		pkg: "pgbackend", test: "TestLostListenerWakesWaiters",
	},
	{
		guard: "postgres: a late acquisition shortens no term", file: "pgbackend/statements.go",
		without: "a request that waited for the row makes two holders",
		edits: []edit{{
			old: "THEN greatest(expires, clock_timestamp() +",
			new: "THEN greatest(clock_timestamp() +",
		}},
		pkg: "pgbackend", test: "TestLateRequestShortensNoTerm",
	},
	{
		guard: "postgres: a late renewal shortens no term", file: "pgbackend/statements.go",
		without: "a renewal that waited for the row makes two holders",
		edits: []edit{{
			old: "greatest(expires, clock_timestamp() + $3::bigint * interval '1 microsecond')",
			new: "clock_timestamp() + $3::bigint * interval '1 microsecond'",
		}},
		pkg: "pgbackend", test: "TestLateRequestShortensNoTerm",
	},
	{
		guard: "postgres: the isolation level is set", file: "pgbackend/open.go",
		without: "a user's default refuses statements that meet at a row",
		edits: []edit{{
			old: "	\"default_transaction_isolation\": \"read committed\", // see statements\n",
			new: "",
		}},
		pkg: "pgbackend", test: "TestDefaultsOfTheServerDoNotMatter",
	},
	{
		guard: "postgres: synchronous_commit is set", file: "pgbackend/open.go",
		without: "a crash of the server forgets a lock that was granted",
		edits: []edit{{
			old: "\"on\",             // an answer is on the disk\n",
			new: "\"off\",\n",
		}},
		pkg: "pgbackend", test: "TestDefaultsOfTheServerDoNotMatter",
	},
	{
		guard: "postgres: a lent pool must commit synchronously", file: "pgbackend/open.go",
		without: "a crash of the server forgets a lock that was granted",
		edits: []edit{{
			old: "case commit == \"off\" || commit == \"local\":",
			new: "case commit == \"\":",
		}},
		pkg: "pgbackend", test: "TestLentPoolWithOtherSettingsIsRefused",
	},
	{
		guard: "postgres: a lent pool must have the isolation level", file: "pgbackend/open.go",
		without: "statements that meet at a row are refused",
		edits: []edit{{
			old: "case isolation != \"read committed\":",
			new: "case isolation == \"\":",
		}},
		pkg: "pgbackend", test: "TestLentPoolWithOtherSettingsIsRefused",
	},
	{
		guard: "postgres: a fence exceeds the last one", file: "pgbackend/statements.go",
		without: "fences repeat",
		edits: []edit{{
			old: "CASE WHEN owner = $2 THEN fence ELSE fence + 1 END",
			new: "CASE WHEN owner = $2 THEN fence ELSE fence END",
		}},
		pkg: "pgbackend", test: "TestConformance/FenceIncreasesAcrossRelease",
	},
	{
		guard: "postgres: a new row has a fence of its time", file: "pgbackend/record.go",
		without: "fences repeat after a row was deleted",
		edits: []edit{{
			old: "max(1, r.now.UnixMicro()-backend.FenceEpoch)",
			new: "max(1, 0*(r.now.UnixMicro()-backend.FenceEpoch))",
		}},
		pkg: "pgbackend", test: "TestRenewalCreatesNothing",
	},
	{
		guard: "postgres: owner check in renew", file: "pgbackend/statements.go",
		without: "a renewal proves another owner's lock",
		edits: []edit{
			{
				old: "WHERE owner = $2 AND ($4::bigint",
				new: "WHERE $2::text <> '' AND ($4::bigint",
			},
			{
				old: "WHERE name = $1 AND owner = $2 FOR NO KEY",
				new: "WHERE name = $1 AND $2::text <> '' FOR NO KEY",
			},
		},
		pkg: "pgbackend", test: "TestRebuiltGrantIsOwnerChecked",
	},
	{
		guard: "postgres: owner check in release", file: "pgbackend/statements.go",
		without: "a late release frees another owner's lock",
		edits: []edit{{
			old: "WHERE name = $1 AND owner = $2 AND roster IS NULL\n",
			new: "WHERE name = $1 AND $2::text <> '' AND roster IS NULL\n",
		}},
		pkg: "pgbackend", test: "TestConformance/LateReleaseFreesNoOtherGrant",
	},
	{
		guard: "postgres: fence check in renew", file: "pgbackend/statements.go",
		without: "a broken lease lives on, although the lock has had another holder since then",
		edits:   []edit{{old: "AND ($4::bigint = 0 OR fence = $4)", new: "AND $4::bigint >= 0"}},
		pkg:     "pgbackend", test: "TestLateRequestRevivesNoBrokenLease",
	},
	{
		guard: "postgres: fence check in a batch", file: "pgbackend/statements.go",
		without: "a broken lease lives on, although the lock has had another holder since then",
		edits:   []edit{{old: "WHERE (a.fence = 0 OR a.fence = l.fence) AND", new: "WHERE"}},
		pkg:     "pgbackend", test: "TestLateRequestRevivesNoBrokenLease",
	},
	{
		guard: "postgres: a batch waits for no row", file: "pgbackend/statements.go",
		without: "one row that stays locked ends other leases",
		edits: []edit{{
			old: "a.fence = l.fence) AND l.roster IS NULL\n\tFOR NO KEY UPDATE OF l SKIP LOCKED",
			new: "a.fence = l.fence) AND l.roster IS NULL\n\tFOR NO KEY UPDATE OF l",
		}},
		pkg: "pgbackend", test: "TestConformance/LockedEntryCostsNoOtherLease",
	},
	{
		guard: "postgres: a batch finds its grants in rosters", file: "pgbackend/renew.go",
		without: "a waiter costs the writer its lock",
		edits: []edit{{
			old: "err != nil || row == nil || row.roster == nil {",
			new: "true || row == nil {",
		}},
		pkg: "pgbackend", test: "TestRostersAreRenewedInABatch",
	},
	{
		guard: "postgres: a roster is stored over what was read", file: "pgbackend/statements.go",
		without: "of two changes at a time one is lost: too many holders, or a permit that is gone",
		edits: []edit{{
			old: "isUnchanged = `version = $2 AND fence = $9 AND owner = $10 AND expires = $11\n" +
				"\tAND sha256(roster) IS NOT DISTINCT FROM $12`",
			new: "isUnchanged = `$2::bigint > 0 AND $9::bigint > 0 AND $10::text >= ''\n" +
				"\tAND $11::timestamptz > '-infinity' AND length($12::bytea) IS DISTINCT FROM 0`",
		}},
		pkg: "pgbackend", test: "TestConformance/NoPermitTooMany",
	},
	{
		guard: "postgres: a version alone is not enough", file: "pgbackend/statements.go",
		without: "a row that was read on a former primary is stored over a held lock: two holders",
		edits: []edit{{
			old: "version = $2 AND fence = $9 AND owner = $10 AND expires = $11\n",
			new: "version = $2 AND $9::bigint > 0 AND $10::text >= ''\n" +
				"\tAND $11::timestamptz > '-infinity'\n",
		}},
		pkg: "pgbackend", test: "TestRowOfAnotherServerIsNotStored",
	},
	{
		guard: "postgres: a roster is part of what was read", file: "pgbackend/statements.go",
		without: "a row that was read on a former primary is stored over a held lock: two holders",
		edits: []edit{{
			old: "AND sha256(roster) IS NOT DISTINCT FROM $12`",
			new: "AND length($12::bytea) IS DISTINCT FROM 0`",
		}},
		pkg: "pgbackend", test: "TestRowOfAnotherServerIsNotStored",
	},
	{
		guard: "postgres: a set compares more than versions", file: "pgbackend/statements.go",
		without: "a row that was read on a former primary is stored over a held lock: two holders",
		edits: []edit{{
			old: "\t\tAND l.fence = n.read_fence AND l.owner = n.read_owner " +
				"AND l.expires = n.read_expires\n",
			new: "",
		}},
		pkg: "pgbackend", test: "TestRowOfAnotherServerIsNotStored",
	},
	{
		guard: "postgres: a set compares rosters", file: "pgbackend/statements.go",
		without: "a row that was read on a former primary is stored over a held lock: two holders",
		edits: []edit{{
			old: "\t\tAND sha256(l.roster) IS NOT DISTINCT FROM n.read_roster\n",
			new: "",
		}},
		pkg: "pgbackend", test: "TestRowOfAnotherServerIsNotStored",
	},
	{
		guard: "postgres: statements end before Capabilities.Late", file: "pgbackend/open.go",
		without: "a statement that was given up takes the lock later, as a ghost",
		edits: []edit{{
			old: "strconv.FormatInt(statementTimeout.Milliseconds(), 10)",
			new: "strconv.Itoa(0)",
		}},
		pkg: "pgbackend", test: "TestDefaultsOfTheServerDoNotMatter",
	},
	{
		guard:   "postgres: a connection that refuses changes is left",
		file:    "pgbackend/attempt.go",
		without: "after a failover the pool of a program lends connections to the standby",
		edits:   []edit{{old: "hasCode(err, codeReadOnly) || errors", new: "errors"}},
		pkg:     "pgbackend", test: "TestReadOnlyConnectionIsLeft",
	},
	{
		guard:   "postgres: a connection to a standby is left",
		file:    "pgbackend/attempt.go",
		without: "after a failover the pool of a program lends connections to the standby",
		edits:   []edit{{old: " || errors.Is(err, errReadOnly) {", new: " {"}},
		pkg:     "pgbackend", test: "TestReadOnlyConnectionIsLeft",
	},
	{
		guard:   "postgres: no answer is a row of a standby",
		file:    "pgbackend/record.go",
		without: "a standby that is behind makes a driver report a held lock as lost",
		edits:   []edit{{old: "case readOnly:", new: "case readOnly && err != nil:"}},
		pkg:     "pgbackend", test: "TestReadOnlyConnectionIsLeft",
	},
	{
		guard:   "postgres: a standby without a row is no answer",
		file:    "pgbackend/statements.go",
		without: "a standby that is behind makes a driver report a held lock as lost",
		edits: []edit{{
			old: "FROM (SELECT) AS one$ LEFT JOIN TABLE AS l ON l.name = ANY($1::bytea[])",
			new: "FROM TABLE AS l WHERE l.name = ANY($1::bytea[])",
		}},
		pkg: "pgbackend", test: "TestReadOnlyConnectionIsLeft",
	},
	{
		guard: "postgres: a standby is left", file: "pgbackend/open.go",
		without: "a driver stays with a server that became a standby",
		edits:   []edit{{old: "case readOnly != \"off\":", new: "case readOnly == \"\":"}},
		pkg:     "pgbackend", test: "TestStandbyIsUnavailable",
	},
	{
		guard:   "postgres: the settings of a connection are checked",
		file:    "pgbackend/open.go",
		without: "a request that was given up takes the lock later, for a whole TTL",
		edits: []edit{{
			old: "\tf, err := checkOwn(ctx, conn)\n\treturn cmp.Or(err, f.unkept())\n",
			new: "\t_, err := checkOwn(ctx, conn)\n\treturn err\n",
		}},
		pkg: "pgbackend", test: "TestSettingsThatAreNotKept",
	},
	{
		guard:   "postgres: transaction_timeout is off",
		file:    "pgbackend/open.go",
		without: "a statement that waits for a row ends its connection, and its outcome is unknown",
		edits:   []edit{{old: "check(ctx, conn, true)", new: "check(ctx, conn, false)"}},
		pkg:     "pgbackend", test: "TestDefaultsOfTheServerDoNotMatter",
	},
	{
		guard: "postgres: a pooler is detected", file: "pgbackend/open.go",
		without: "settings and LISTEN are lost between two statements",
		edits: []edit{{
			old: "isPooled = pid != strconv.FormatUint(uint64(conn.PID()), 10)",
			new: "isPooled = pid == strconv.FormatUint(uint64(conn.PID())+1, 36)",
		}},
		pkg: "pgbackend", test: "TestPoolerIsDetected",
	},
	{
		guard: "postgres: behind a pooler waiters poll", file: "pgbackend/driver.go",
		without: "a waiter sleeps, and its messages go to another client of the pooler",
		edits:   []edit{{old: "Notify: !d.pooled,", new: "Notify: true,"}},
		pkg:     "pgbackend", test: "TestNewWithAPooler",
	},
	{
		guard: "postgres: behind a pooler the settings count", file: "pgbackend/open.go",
		without: "a crash or a failover forgets locks",
		edits: []edit{{
			old: "\tf, err := check(ctx, conn, false)\n\treturn cmp.Or(err, f.unkept())\n",
			new: "\treturn nil\n",
		}},
		pkg: "pgbackend", test: "TestPooledSettings",
	},
	{
		guard: "postgres: behind a pooler no statement has a name", file: "pgbackend/open.go",
		without: "the driver needs a pooler that supports prepared statements",
		edits: []edit{{
			old: "conn.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe",
			new: "conn.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement",
		}},
		pkg: "pgbackend", test: "TestPooledStatementsHaveNoNames",
	},
	{
		guard: "postgres: the end of a connection is no answer", file: "pgbackend/errors.go",
		without: "a commit whose answer was lost counts as not executed: two holders",
		edits: []edit{{
			old: "&& answer.SeverityUnlocalized == \"ERROR\"",
			new: "&& answer.SeverityUnlocalized != \"\"",
		}},
		pkg: "pgbackend", test: "TestInterpretError",
	},
	{
		guard: "postgres: Close ends all connections", file: "pgbackend/dial.go",
		without: "Close waits for a request that a silent server does not answer",
		edits:   []edit{{old: "\t\t_ = conn.Conn.Close()\n", new: "\t\t_ = conn\n"}},
		pkg:     "pgbackend", test: "TestCloseInABlackHole",
	},
	{
		guard: "postgres: a roster that cannot be read is a conflict", file: "pgbackend/record.go",
		without: "an Acquire takes a lock whose holders it cannot read",
		edits: []edit{{
			old: "entries, err := roster.Parse(r.roster)\n\t\tif err != nil {",
			new: "entries, err := roster.Parse(r.roster)\n\t\tif false {",
		}},
		pkg: "pgbackend", test: "TestUnreadableRowIsBroken",
	},
	{
		guard: "postgres: a fence is as durable as a commit", file: "pgbackend/driver.go",
		without: "require=fence-durable accepts a server that can forget grants in a crash",
		edits:   []edit{{old: "if !d.durable {", new: "if false {"}},
		pkg:     "pgbackend", test: "TestFencesAreAsDurableAsCommits",
	},
	{
		guard: "postgres: a table has its key", file: "pgbackend/open.go",
		without: "a name has two rows, and two holders",
		edits:   []edit{{old: "case !isUnique:", new: "case !isUnique && false:"}},
		pkg:     "pgbackend", test: "TestTablesWithoutTheirKey",
	},
	{
		guard: "postgres: a table is not one user's", file: "pgbackend/open.go",
		without: "two users have a table each, and both hold every lock",
		edits:   []edit{{old: "case isOwn:", new: "case false:"}},
		pkg:     "pgbackend", test: "TestTableOfOneUser",
	},
	{
		guard: "postgres: statements name the schema", file: "pgbackend/open.go",
		without: "a search path that an application leaves leads to another table",
		edits: []edit{{
			old: "table = pgx.Identifier{*found, d.table}.Sanitize()", new: "_ = pgx.Identifier{}",
		}},
		pkg: "pgbackend", test: "TestLeftSearchPath",
	},
	{
		guard: "postgres: an index of a table has all names", file: "pgbackend/statements.go",
		without: "a name has two rows, and two holders",
		edits:   []edit{{old: "AND indpred IS NULL ", new: ""}},
		pkg:     "pgbackend", test: "TestTablesWithoutTheirKey",
	},
	{
		guard: "postgres: an index of a table has only names", file: "pgbackend/statements.go",
		without: "a name has two rows, and two holders",
		edits:   []edit{{old: "AND indnkeyatts = 1 ", new: ""}},
		pkg:     "pgbackend", test: "TestTablesWithoutTheirKey",
	},
	{
		guard: "postgres: an index of a table counts at once", file: "pgbackend/statements.go",
		without: "Open succeeds, and each request for a new name fails",
		edits:   []edit{{old: "bool_and(indimmediate)", new: "count(*) > 0"}},
		pkg:     "pgbackend", test: "TestTablesWithoutTheirKey",
	},
	{
		guard: "postgres: an index of a table is valid", file: "pgbackend/statements.go",
		without: "Open succeeds, and each request for a new name fails",
		edits:   []edit{{old: "AND indisvalid\n", new: "\n"}},
		pkg:     "pgbackend", test: "TestTablesWithoutTheirKey",
	},
	{
		guard: "postgres: an error has no password", file: "pgbackend/errors.go",
		without: "a program that reports the fields of its errors publishes the password",
		edits:   []edit{{old: "\terr = withoutConfig(err)\n", new: ""}},
		pkg:     "pgbackend", test: "TestErrorsHaveNoPassword",
	},
	{
		guard: "postgres: the error of a bad URL has no password", file: "pgbackend/errors.go",
		without: "a program that reports the fields of its errors publishes the password",
		edits: []edit{{
			old: "AsType[*pgconn.ParseConfigError](err); ok {",
			new: "AsType[*pgconn.ParseConfigError](err); ok && false {",
		}},
		pkg: "pgbackend", test: "TestErrorsHaveNoPassword",
	},
	{
		guard: "postgres: a renewal creates nothing", file: "pgbackend/statements.go",
		without: "a lock that an operator has deleted is revived: two holders",
		edits: []edit{
			{old: "const renewSQL = `UPDATE", new: renewalThatInserts + "renewed$ AS (UPDATE"},
			{
				old: "AND owner = $2 FOR NO KEY UPDATE SKIP LOCKED)\nRETURNING version`",
				new: "AND owner = $2 FOR NO KEY UPDATE SKIP LOCKED)\nRETURNING version)\n" +
					"SELECT version FROM made$ UNION ALL SELECT version FROM renewed$`",
			},
		},
		pkg: "pgbackend", test: "TestRenewalCreatesNothing",
	},
	{
		guard: "postgres: a renewal of many creates nothing", file: "pgbackend/statements.go",
		without: "a lock that an operator has deleted is revived: two holders",
		edits: []edit{
			{
				old: "WHERE (a.fence = 0 OR a.fence = l.fence) AND l.roster IS NULL\n" +
					"\tFOR NO KEY UPDATE OF l SKIP LOCKED\n)\nUPDATE TABLE AS l SET",
				new: "WHERE (a.fence = 0 OR a.fence = l.fence) AND l.roster IS NULL\n" +
					"\tFOR NO KEY UPDATE OF l SKIP LOCKED\n), made$ AS (INSERT INTO TABLE " +
					"(name, version, fence, owner, meta, since, expires) SELECT name, fence, " +
					"fence, owner, '', now(), now() + ttl * interval '1 microsecond' FROM asked$ " +
					"ON CONFLICT (name) DO NOTHING)\nUPDATE TABLE AS l SET",
			},
		},
		pkg: "pgbackend", test: "TestRenewalCreatesNothing",
	},
	{
		guard: "postgres: each process sweeps", file: "pgbackend/sweep.go",
		without: "the table grows for ever if each process makes few acquisitions",
		edits:   []edit{{old: "rand.N(sweepOdds) > 0 ||", new: "rand.N(sweepOdds) >= 0 ||"}},
		pkg:     "pgbackend", test: "TestSweepKeepsUp",
	},
	{
		guard: "postgres: the sweep moves on", file: "pgbackend/statements.go",
		without: "the table grows for ever",
		edits:   []edit{{old: "meta = excluded.meta", new: "meta = l.meta"}},
		pkg:     "pgbackend", test: "TestSweepKeepsUp",
	},
	{
		guard: "postgres: a sweep waits for no other sweep", file: "pgbackend/statements.go",
		without: "a sweep waits for the commit of another one, and checks the same rows",
		edits: []edit{{
			old: "WHERE name = $1 FOR NO KEY UPDATE SKIP LOCKED\n), begin$",
			new: "WHERE name = $1\n), begin$",
		}},
		pkg: "pgbackend", test: "TestSweepsShareTheTable",
	},
	{
		guard: "postgres: the sweep waits for no row", file: "pgbackend/statements.go",
		without: "one row that stays locked keeps the table growing",
		edits:   []edit{{old: "\tFOR UPDATE SKIP LOCKED", new: "\tFOR UPDATE"}},
		pkg:     "pgbackend", test: "TestSweepWaitsForNoRow",
	},
	{
		guard: "postgres: no query of WITH hides a table", file: "pgbackend/statements.go",
		without: "the renewals of a table fail if it has the name of a query",
		edits: []edit{
			{old: "WITH asked$ AS (", new: "WITH asked AS ("},
			{old: "FROM asked$ AS a", new: "FROM asked AS a"},
		},
		pkg: "pgbackend", test: "TestTablesWithTheNamesOfQueries",
	},
	{
		guard: "postgres: a waiter does not need the listener", file: "pgbackend/wait.go",
		without: "places end and a free lock stays unused while LISTEN cannot connect",
		edits:   []edit{{old: "d.awaitTurn(turn, req)", new: "d.awaitTurn(ctx, req)"}},
		pkg:     "pgbackend", test: "TestWaiterWithoutListener",
	},
	{
		guard: "postgres: the listener passes silent hosts", file: "pgbackend/wait.go",
		without: "after a failover the waiters poll, because LISTEN tries the first host only",
		edits: []edit{{
			old: "WithTimeout(l.ctx, patienceOf(l.base, l.timeout))",
			new: "WithTimeout(l.ctx, l.timeout)",
		}},
		pkg: "pgbackend", test: "TestSilentHostsArePassed/the_listener",
	},
	{
		guard: "postgres: requests delay no renewal", file: "pgbackend/renew.go",
		without: "many requests make renewals wait until leases are lost",
		edits:   []edit{{old: "d.edit(ctx, d.renewals, key,", new: "d.edit(ctx, d.main, key,"}},
		pkg:     "pgbackend", test: "TestRequestsDelayNoRenewal",
	},
	{
		guard: "postgres: with a standby each success has a commit", file: "pgbackend/record.go",
		without: "a failover forgets a grant that was confirmed",
		edits:   []edit{{old: "r.isAlone || !succeeded //", new: "true || !succeeded //"}},
		pkg:     "pgbackend", test: "TestSuccessIsStoredWithAStandby",
	},
	{
		guard: "postgres: a grant of a release counts on no more than its TTL",
		file:  "pgbackend/wait.go", without: "a lease outlives a clock that is set back and forth",
		edits: []edit{{old: "min(rest, g.Term.TTL)", new: "rest"}},
		pkg:   "pgbackend", test: "TestGrantCountsNoMoreThanItsTTL",
	},
	{
		guard: "postgres: notifications are no flood", file: "pgbackend/dial.go",
		without: "a driver with many hand-offs loses the connection of its waiters again and again",
		edits: []edit{{
			old: "ok {\n\t\tc.read.Store(0)", new: "ok && false {\n\t\tc.read.Store(0)",
		}},
		pkg: "pgbackend", test: "TestAnswerIsLimited",
	},
	{
		guard: "postgres: long rosters are listed one by one", file: "pgbackend/inspect.go",
		without: "List fails for a table with many long rosters",
		edits:   []edit{{old: "if l.row.isCut() {", new: "if false {"}},
		pkg:     "pgbackend", test: "TestLongRosters",
	},
	{
		guard: "postgres: LockAll reads long rosters one by one", file: "pgbackend/combine.go",
		without: "LockAll of names with long rosters fails",
		edits:   []edit{{old: "if err != nil || !r.isCut() {", new: "if true {"}},
		pkg:     "pgbackend", test: "TestLongRosters",
	},
	{
		guard:   "postgres: an Unlock after an error proves its session",
		file:    "pgbackend/session.go",
		without: "an Unlock on the connection of another session reports success",
		edits: []edit{{
			old: "err = a.Prove()\n\t}\n\treturn err", new: "err = nil\n\t}\n\treturn err",
		}},
		pkg: "pgbackend", test: "TestMovedSession",
	},
	{
		guard: "session: the doubt of a later owner stays", file: "internal/session/driver.go",
		without: "an Unlock that may have come too late reports success",
		edits:   []edit{{old: "if d.doubts[u.id].owner == u.owner {", new: "if true {"}},
		pkg:     "internal/session", test: "TestSettleKeepsALaterDoubt",
	},
	{
		guard: "postgres: grants of one name are renewed at once", file: "pgbackend/renew.go",
		without: "many holders of one name make its renewals slow, until leases are lost",
		edits: []edit{{
			old: "\trenewNamed(ctx, edit, key, positions, gs, answers)",
			new: "for _, i := range positions {\n" +
				"renewNamed(ctx, edit, key, []int{i}, gs, answers)\n}",
		}},
		pkg: "pgbackend", test: "TestHoldersOfOneNameAreRenewedAtOnce",
	},
	{
		guard: "postgres: a clock in the past gives no negative fence", file: "pgbackend/record.go",
		without: "a lock that was granted seems to be refused",
		edits:   []edit{{old: "r.fence = max(1, ", new: "r.fence = max(-1<<62, "}},
		pkg:     "pgbackend", test: "TestFenceOfAWrongClock",
	},
	{
		guard:   "postgres: a request without a connection was not sent",
		file:    "pgbackend/attempt.go",
		without: "each error of the pool is an outcome that is unknown",
		edits:   []edit{{old: "return value, unsent(failed)", new: "return value, failed"}},
		pkg:     "pgbackend", test: "TestClosedPoolIsUnavailable",
	},
	{
		guard:   "postgres: the certificate of the server is verified",
		file:    "backend/tlsfile/tlsfile.go",
		without: "any server that an attacker puts in front of the database gets the password",
		edits: []edit{{
			old: "MinVersion: tls.VersionTLS12, ", new: "InsecureSkipVerify: true, ",
		}},
		pkg: "pgbackend", test: "TestTLS",
	},
	{
		guard: "postgres: TLS of the environment does not count", file: "pgbackend/open.go",
		without: "a variable for other programs turns TLS on, or keeps the driver from connecting",
		edits:   []edit{{old: " sslrootcert=''", new: ""}},
		pkg:     "pgbackend", test: "TestTLSOfTheEnvironment",
	},
	{
		guard: "postgres: several clients create the table", file: "pgbackend/open.go",
		without: "an Open fails because another one creates the table at the same time",
		edits: []edit{{
			old: "hasCode(err, codeDuplicateKey, codeDuplicateTable, codeDuplicateObject)",
			new: "false",
		}},
		pkg: "pgbackend", test: "TestTableIsCreatedByMany",
	},
	{
		guard: "postgres: a cancel request ends soon", file: "pgbackend/dial.go",
		without: "connections to a silent server stop the renewals for 15 s",
		edits: []edit{{
			old: "network, isForCancel := strings.CutPrefix(network, forCancel)",
			new: "network, _ = strings.CutPrefix(network, forCancel)\n\tisForCancel := false",
		}},
		pkg: "pgbackend", test: "TestSlotLastsAsLongAsItsConnection",
	},
	{
		guard: "postgres: a slot lasts as long as its connection", file: "pgbackend/pool.go",
		without: "requests take the connections that are reserved for renewals",
		edits:   []edit{{old: "IsClosed() && !awaitCleanup(own)", new: "IsClosed() && false"}},
		pkg:     "pgbackend", test: "TestSlotLastsAsLongAsItsConnection",
	},
	{
		guard: "postgres: what waits for a slot shares a statement", file: "pgbackend/batch.go",
		without: "each lock costs a commit, however many are acquired at the same time",
		edits:   []edit{{old: "len(chosen) < maxBatch", new: "len(chosen) < 1"}},
		pkg:     "pgbackend", test: "TestWaitingRequestsShareAStatement",
	},
	{
		guard: "postgres: a shared statement serves callers that wait", file: "pgbackend/batch.go",
		without: "a lock is taken for a caller that has gone",
		edits:   []edit{{old: "\tb.remove(m)\n", new: ""}},
		pkg:     "pgbackend", test: "TestRequestIsNotSentWhenItsCallerHasGone",
	},
	{
		guard: "postgres: a shared statement waits for no row", file: "pgbackend/statements.go",
		without: "one row that stays locked delays the acquisition of other locks",
		edits: []edit{{
			old: "l.expires <= clock_timestamp())\n\tFOR NO KEY UPDATE OF l SKIP LOCKED",
			new: "l.expires <= clock_timestamp())\n\tFOR NO KEY UPDATE OF l",
		}},
		pkg: "pgbackend", test: "TestSharedStatementWaitsForNoRow",
	},
	{
		guard:   "postgres: a statement is given up when all of its callers have gone",
		file:    "pgbackend/attempt.go",
		without: "statements that are wanted take the slots of those that were given up",
		edits: []edit{{
			old: "case all && a.lane.abandon():", new: "case a.lane.abandon():",
		}},
		pkg: "pgbackend", test: "TestOneCallerLeavesASharedStatement",
	},
	{
		guard:   "postgres: an acquisition that was not sent has no unknown outcome",
		file:    "pgbackend/batch.go",
		without: "each error of the pool is an outcome that is unknown",
		edits:   []edit{{old: "b.fail(m, unsent(err))", new: "b.fail(m, err)"}},
		pkg:     "pgbackend", test: "TestClosedPoolIsUnavailable",
	},
	{
		guard: "postgres: hasty requests have statements of their own", file: "pgbackend/batch.go",
		without: "an attempt with a short limit makes other outcomes unknown",
		edits:   []edit{{old: " && other.isHasty(now) == m.isHasty(now)", new: ""}},
		pkg:     "pgbackend", test: "TestChosenRequestsShareAStatement",
	},
	{
		guard: "postgres: a request whose time is over is not sent", file: "pgbackend/batch.go",
		without: "a process that was stopped takes locks for callers that give up",
		edits:   []edit{{old: "return m.hasEnded(now) })", new: "return false })"}},
		pkg:     "pgbackend", test: "TestChosenRequestsShareAStatement",
	},
	{
		guard: "postgres: a failed connection ends its own request", file: "pgbackend/batch.go",
		without: "a request waits until its context ends, because nothing serves it",
		edits: []edit{{
			old: "\tif b.remove(m) {\n", new: "\tif m = b.waiting[0]; b.remove(m) {\n",
		}},
		pkg: "pgbackend", test: "TestFailedConnectionEndsItsOwnRequest",
	},
	{
		guard:   "postgres: a shared statement has nothing locked while it waits",
		file:    "pgbackend/statements.go",
		without: "statements that make rows deadlock with LockAll, and fail",
		edits: []edit{{
			old: `SELECT a.position, m.fence
FROM made$ AS m JOIN wanted$ AS a ON a.name = m.name AND a.owner = m.owner
UNION ALL
SELECT position, fence FROM taken$`,
			new: `SELECT position, fence FROM taken$
UNION ALL
SELECT a.position, m.fence
FROM made$ AS m JOIN wanted$ AS a ON a.name = m.name AND a.owner = m.owner`,
		}},
		pkg: "pgbackend", test: "TestSharedStatementHasNothingLockedWhileItWaits",
	},
	{
		guard: "postgres: messages reach the driver", file: "pgbackend/pool.go",
		without: "a message ends a process with a *sql.DB, or goes to the program's handler",
		edits:   []edit{{old: "\tconfig.OnNotification = nil\n", new: ""}},
		pkg:     "pgbackend", test: "TestMessagesReachTheDriver",
	},
	{
		guard: "postgres: Close ends requests that were given up", file: "pgbackend/driver.go",
		without: "goroutines of a closed driver wait for a pool of the program",
		edits:   []edit{{old: "\td.end()\n", new: ""}},
		pkg:     "pgbackend", test: "TestCloseEndsRequestsThatWereGivenUp",
	},
	{
		guard: "postgres: a connection that has ended leaves its place", file: "pgbackend/pool.go",
		without: "a *sql.DB waits for a free connection while it counts ended ones",
		edits: []edit{{
			old: "return sqldriver.ErrBadConn // makes room for another one",
			new: "_ = sqldriver.ErrBadConn\n\t\t\treturn nil",
		}},
		pkg: "pgbackend", test: "TestEndedConnectionLeavesItsPlace",
	},
	{
		guard: "postgres: a release waits for a commit", file: "pgbackend/driver.go",
		without: "an acquisition whose commit waited for a standby takes the lock as a ghost",
		edits: []edit{{
			old: "if err := d.settleOne(ctx, g.Key); err != nil {",
			new: "if err := ctx.Err(); err != nil {",
		}},
		pkg: "pgbackend", test: "TestReleaseWaitsForACommit",
	},
	{
		guard: "postgres: a new row can be waited for", file: "pgbackend/statements.go",
		without: "an acquisition of a new name whose commit waited takes the lock as a ghost",
		edits: []edit{{
			old: "FROM unnest($1::bytea[]) AS a (name)\n\tWHERE NOT EXISTS",
			new: "FROM unnest($1::bytea[]) AS a (name) JOIN TABLE AS o ON o.name = a.name\n" +
				"\tWHERE NOT EXISTS",
		}},
		pkg: "pgbackend", test: "TestReleaseWaitsForACommit",
	},
	{
		guard: "postgres: settling waits for no standby", file: "pgbackend/statements.go",
		without: "while a standby is away, a release that has nothing to do is not answered",
		edits: []edit{{
			old: "set_config('synchronous_commit', 'off', true)\n), unsettled$",
			new: "set_config('synchronous_commit', 'on', true)\n), unsettled$",
		}},
		pkg: "pgbackend", test: "TestReleaseWaitsForACommit",
	},
	{
		guard: "postgres: a set is stored over what was read", file: "pgbackend/statements.go",
		without: "AcquireAll takes a lock that another client has taken meanwhile",
		edits: []edit{{
			old: "ON l.name = n.name AND l.version = n.version\n" +
				"\t\tAND l.fence = n.read_fence AND l.owner = n.read_owner " +
				"AND l.expires = n.read_expires\n" +
				"\t\tAND sha256(l.roster) IS NOT DISTINCT FROM n.read_roster",
			new: "ON l.name = n.name",
		}},
		pkg: "pgbackend", test: "TestSetMeetsAnotherChange",
	},
	{
		guard: "postgres: a set is stored as a whole", file: "pgbackend/statements.go",
		without: "AcquireAll takes some of its locks",
		edits:   []edit{{old: "= cardinality($1::bytea[])", new: "> 0"}},
		pkg:     "pgbackend", test: "TestSetMeetsAnotherChange",
	},
	{
		guard: "postgres: the rows of a set are locked in order", file: "pgbackend/statements.go",
		without: "sets in opposite orders deadlock, and PostgreSQL refuses one after a second",
		edits: []edit{{
			old: "ORDER BY l.name FOR NO KEY UPDATE OF l",
			new: "FOR NO KEY UPDATE OF l",
		}},
		pkg: "pgbackend", test: "TestSetMeetsAnotherChange",
	},
	{
		guard: "postgres: AcquireAll is idempotent", file: "pgbackend/record.go",
		without: "a repetition that changes nothing panics",
		edits:   []edit{{old: "\t\tnext = r\n", new: ""}},
		pkg:     "pgbackend", test: "TestRepeatedSetWithAShorterTerm",
	},
	{
		guard: "postgres: owner check in ReleaseAll", file: "pgbackend/statements.go",
		without: "a late ReleaseAll frees another owner's lock",
		edits: []edit{{
			old: "ON l.name = a.name AND l.owner = a.owner\n\tWHERE l.roster IS NULL\n\tFOR NO KEY",
			new: "ON l.name = a.name\n\tWHERE l.roster IS NULL\n\tFOR NO KEY",
		}},
		pkg: "pgbackend", test: "TestConformance/ReleaseAllAnswersEach",
	},
	{
		guard: "postgres: ReleaseAll waits for no row", file: "pgbackend/statements.go",
		without: "one row that stays locked keeps the other locks taken",
		edits: []edit{{
			old: "\tWHERE l.roster IS NULL\n\tFOR NO KEY UPDATE OF l SKIP LOCKED",
			new: "\tWHERE l.roster IS NULL\n\tFOR NO KEY UPDATE OF l",
		}},
		pkg: "pgbackend", test: "TestLockedRowDelaysNoOtherRelease",
	},
	{
		guard: "postgres: an abandoned request ends soon", file: "pgbackend/attempt.go",
		without: "a request that was given up is executed after its release, for a whole TTL",
		edits: []edit{{
			old: "\t\ta.limit.Reset(min(abandonAfter, time.Until(a.until)))\n", new: "",
		}},
		pkg: "pgbackend", test: "TestAbandonedRequestEnds",
	},
	{
		guard: "postgres: a caller that goes extends no limit", file: "pgbackend/attempt.go",
		without: "the other callers of a statement wait longer than the timeout",
		edits:   []edit{{old: "min(abandonAfter, time.Until(a.until))", new: "abandonAfter"}},
		pkg:     "pgbackend", test: "TestCallerThatGoesExtendsNoLimit",
	},
	{
		guard: "postgres: a request without a slot is not unknown", file: "pgbackend/batch.go",
		without: "a TryLock that was never sent returns ErrUncertain",
		edits: []edit{{
			old: "\t\treturn unsent(reason)\n", new: "\t\treturn reason\n",
		}},
		pkg: "pgbackend", test: "TestRequestWithoutASlotIsNotSent",
	},
	{
		guard: "postgres: an edit without a slot is not unknown", file: "pgbackend/edit.go",
		without: "a TryRLock that was never sent returns ErrUncertain",
		edits: []edit{{
			old: "\t\treturn unsent(reason)\n", new: "\t\treturn reason\n",
		}},
		pkg: "pgbackend", test: "TestRequestWithoutASlotIsNotSent",
	},
	{
		guard: "postgres: a reset connection sends nothing more", file: "pgbackend/attempt.go",
		without: "the kernel sends a request that was given up long after its release",
		edits: []edit{{
			old: "_ = abort.Close(a.conn.Conn())",
			new: "_ = abort.Close\n\t_ = a.conn.Conn().Close()",
		}},
		pkg: "pgbackend", test: "TestResetConnectionSendsNothing",
	},
	{
		guard: "postgres: abandoned requests leave slots", file: "pgbackend/lane.go",
		without: "attempts for one locked row delay the releases of all other locks",
		edits:   []edit{{old: "<= (cap(l.slots)+1)/2 {", new: "<= cap(l.slots) {"}},
		pkg:     "pgbackend", test: "TestAbandonedRequestsLeaveSlots",
	},
	{
		guard:   "postgres: one release of a locked row has a slot",
		file:    "pgbackend/driver.go",
		without: "releases of one locked row delay the requests for all other locks",
		edits: []edit{{
			old: "leave, err := d.main.gates.enter(ctx, key)",
			new: "leave, err := func() {}, error(nil)",
		}},
		pkg: "pgbackend", test: "TestReleasesOfALockedRowTakeOneSlot",
	},
	{
		guard:   "postgres: half of the renewals wait for no row",
		file:    "pgbackend/driver.go",
		without: "locked rows take the few connections of all renewals: leases are lost",
		edits:   []edit{{old: "\td.renewals.skips = true\n", new: ""}},
		pkg:     "pgbackend", test: "TestRenewalGetsItsTurn",
	},
	{
		guard: "postgres: a renewal waits for its turn", file: "pgbackend/driver.go",
		without: "a renewal never finds a row unlocked that many clients change: the lease is lost",
		edits: []edit{{
			old: "err = renewEntries(ctx, d.editPatiently, g.Key, gs)[0]", new: "_ = gs",
		}},
		pkg: "pgbackend", test: "TestRenewalGetsItsTurn",
	},
	{
		guard: "postgres: the warning of a cancelled commit arrives", file: "pgbackend/open.go",
		without: "a failover forgets the lock: two holders",
		edits: []edit{{
			old: "\t\"client_min_messages\":           \"warning\", // see noteUnreplicated\n",
			new: "",
		}},
		pkg: "pgbackend", test: "TestCancelledCommitIsNoSuccess",
	},
	{
		guard: "postgres: a renewal waits for no row", file: "pgbackend/statements.go",
		without: "locked rows take the few connections of all renewals: leases are lost",
		edits: []edit{{
			old: "owner = $2 FOR NO KEY UPDATE SKIP LOCKED)",
			new: "owner = $2 FOR NO KEY UPDATE)",
		}},
		pkg: "pgbackend", test: "TestRenewalGetsItsTurn",
	},
	{
		guard: "postgres: the rest of ReleaseAll waits for no row", file: "pgbackend/driver.go",
		without: "the callers of a set hear of no release while one row stays locked",
		edits: []edit{{
			old: "abandoned: d.main.abandoned, skips: true}",
			new: "abandoned: d.main.abandoned, skips: false}",
		}},
		pkg: "pgbackend", test: "TestLockedRowDelaysNoOtherRelease",
	},
	{
		guard: "postgres: silent connections are ended together", file: "pgbackend/open.go",
		without: "a renewal tries one dead connection after the other until the lease is lost",
		edits:   []edit{{old: "\t\tpool.Reset()\n", new: ""}},
		pkg:     "pgbackend", test: "TestSilentConnectionsAreNotTriedSingly",
	},
	{
		guard: "postgres: a cancelled commit is no grant", file: "pgbackend/open.go",
		without: "a failover forgets the lock: two holders",
		edits:   []edit{{old: "\tconn.OnNotice = noteUnreplicated\n", new: ""}},
		pkg:     "pgbackend", test: "TestCancelledCommitIsNoSuccess",
	},
	{
		guard: "postgres: a refused message delays no release", file: "pgbackend/edit.go",
		without: "with a full queue of messages, Unlock fails until the term ends",
		edits: []edit{{
			old: "if !hasCode(err, codeNoPrivilege, codeQueueFull) {", new: "if true {",
		}},
		pkg: "pgbackend", test: "TestRefusedMessageDelaysNoRelease",
	},
	{
		guard: "postgres: few renewals wait for locked rows", file: "pgbackend/driver.go",
		without: "locked rows take the few connections of all renewals: leases are lost",
		edits: []edit{{
			old: "d.patient = newLane(half), newLane(half)",
			new: "d.patient = newLane(half), newLane(4*half)",
		}},
		pkg: "pgbackend", test: "TestLockedRowsTakeHalfOfTheRenewals",
	},
	{
		guard: "postgres: a silent connection ends soon", file: "pgbackend/open.go",
		without: "connections in their clean-up keep renewals from connecting for 15 s",
		edits: []edit{{
			old: "\t\t\t_ = abort.Close(conn.Conn())\n\t\t\t<-conn.CleanupDone()\n",
			new: "\t\t\t_ = abort.Close\n",
		}},
		pkg: "pgbackend", test: "TestSilentConnectionsDelayNoRenewal",
	},
	{
		guard:   "postgres: the wait for a cancel request is limited",
		file:    "pgbackend/pool.go",
		without: "two requests on a pool of the caller stop all renewals for 15 s",
		edits: []edit{{
			old: "const cleanupTimeout = 2 * cancelTimeout",
			new: "const cleanupTimeout = 20 * cancelTimeout",
		}},
		pkg: "pgbackend", test: "TestHangingCancelRequestsDelayNoRenewal",
	},
	{
		guard:   "postgres: a connection in its clean-up leaves its pool",
		file:    "pgbackend/pool.go",
		without: "after some resets, a pool of the caller has no connection for 15 s",
		edits:   []edit{{old: "\t\tconn.Hijack()\n", new: "\t\tconn.Release()\n"}},
		pkg:     "pgbackend", test: "TestHangingCancelRequestsDelayNoRenewal",
	},
	{
		guard: "postgres: an unreadable lock hides no other lock", file: "pgbackend/inspect.go",
		without: "one damaged row makes List fail for all locks",
		edits: []edit{{
			old: "case errors.Is(err, backend.ErrConflict):",
			new: "case false:",
		}},
		pkg: "pgbackend", test: "TestUnreadableRowIsBroken",
	},
	{
		guard:   "postgres: a break of all holders clears an unreadable lock",
		file:    "pgbackend/inspect.go",
		without: "a damaged row keeps its lock taken until an operator edits the table",
		edits: []edit{{
			old: "owner == \"\" && errors.Is(err, backend.ErrConflict)",
			new: "owner == \"\\x00\" && errors.Is(err, backend.ErrConflict)",
		}},
		pkg: "pgbackend", test: "TestUnreadableRowIsBroken",
	},
	{
		guard:   "postgres: an answer that cannot be read is unknown",
		file:    "pgbackend/batch.go",
		without: "Lock fails, and the lock stays taken for a whole TTL",
		edits: []edit{{
			old: "fmt.Errorf(\"the server has answered for row %d of %d\", position, n)",
			new: "fmt.Errorf(\"%w: row %d of %d\", errStranger, position, n)",
		}},
		pkg: "pgbackend", test: "TestUnreadableAnswerIsUnknown",
	},
	{
		guard:   "postgres: List omits free locks",
		file:    "pgbackend/inspect.go",
		without: "a lock is listed that has neither holders nor waiters",
		edits:   []edit{{old: "len(info.Holders) == 0 &&", new: "len(info.Holders) < 0 &&"}},
		pkg:     "pgbackend", test: "TestListOmitsFreeLocks",
	},
	{
		guard:   "postgres: a page of List reads few rows",
		file:    "pgbackend/statements.go",
		without: "with very many free rows, List fails",
		edits: []edit{{
			old: "WHERE name >= $1 ORDER BY name LIMIT $3", new: "WHERE name >= $1 ORDER BY name",
		}},
		pkg: "pgbackend", test: "TestListReadsFewRowsAtATime",
	},
	{
		guard: "postgres: a locked row ends no connection", file: "pgbackend/driver.go",
		without: "renewals of other locks wait for new connections: leases are lost",
		edits:   []edit{{old: "\td.patient.bounded = true\n", new: ""}},
		pkg:     "pgbackend", test: "TestLockedRosterEndsNoConnection",
	},
	{
		guard: "postgres: a locked roster is renewed at the end", file: "pgbackend/renew.go",
		without: "locked rosters delay the other renewals until leases are lost",
		edits: []edit{{
			old: "\td.renewRosters(ctx, d.editHastily, rest, gs, answers)\n",
			new: "\td.renewRosters(ctx, d.editPatiently, rest, gs, answers)\n",
		}},
		pkg: "pgbackend", test: "TestLockedRostersDelayNoOther",
	},
	{
		guard: "postgres: a pooler that is full is unavailable", file: "pgbackend/errors.go",
		without: "while the server behind a pooler is away, Lock and Elect give up",
		edits: []edit{{
			old: " && strings.Contains(answer.Message, \"startup parameter\"):",
			new: " && !strings.Contains(answer.Message, \"\\x00\"):",
		}},
		pkg: "pgbackend", test: "TestServerBehindAPoolerIsAway",
	},
	{
		guard: "postgres: behind a pooler statements end", file: "pgbackend/open.go",
		without: "a request that was given up takes the lock later, for a whole TTL",
		edits: []edit{{
			old: "case !f.isLimited:", new: "case !f.isLimited && f.isQuiet:",
		}},
		pkg: "pgbackend", test: "TestPooledSettings",
	},
	{
		guard: "postgres: behind a pooler warnings arrive", file: "pgbackend/open.go",
		without: "a cancelled commit counts as a grant, which a failover forgets: two holders",
		edits: []edit{{
			old: "case f.isQuiet:", new: "case f.isQuiet && !f.isLimited:",
		}},
		pkg: "pgbackend", test: "TestPooledSettings",
	},
	{
		guard:   "postgres: changes that wait share a statement",
		file:    "pgbackend/edit.go",
		without: "each permit costs two commits, and clients overtake each other",
		edits:   []edit{{old: "len(chosen) < maxEdition && ", new: "len(chosen) < 1 && "}},
		pkg:     "pgbackend", test: "TestWaitingChangesShareAStatement",
	},
	{
		guard:   "postgres: an edition serves callers that wait",
		file:    "pgbackend/edit.go",
		without: "a lock is taken for a caller that has gone",
		edits: []edit{{
			old: "len(e.served) == 0 || slices.ContainsFunc(e.served, (*caller).isGone)",
			new: "len(e.served) == 0",
		}},
		pkg: "pgbackend", test: "TestEditionLeavesOutACallerThatHasGone",
	},
	{
		guard:   "postgres: hasty changes have editions of their own",
		file:    "pgbackend/edit.go",
		without: "an attempt with a short limit makes other outcomes unknown",
		edits:   []edit{{old: " && m.isHasty(now) == waiting[0].isHasty(now)", new: ""}},
		pkg:     "pgbackend", test: "TestChosenChangesShareAnEdition",
	},
	{
		guard:   "postgres: in an edition holders leave first",
		file:    "pgbackend/edit.go",
		without: "a waiter is refused what a holder frees at the same time",
		edits: []edit{{
			old: "if m.leaves != \"\" {\n\t\treturn 0",
			new: "if m.leaves != \"\" {\n\t\treturn 1",
		}},
		pkg: "pgbackend", test: "TestChosenChangesShareAnEdition",
	},
	{
		guard:   "postgres: a release wakes the waiters of its own driver",
		file:    "pgbackend/edit.go",
		without: "a waiter sleeps until its next poll",
		edits:   []edit{{old: "\t\t\te.d.listener.wake(near...)\n", new: "\t\t\t_ = near\n"}},
		pkg:     "pgbackend", test: "TestWaiterOfTheSameDriverNeedsNoMessage",
	},
	{
		guard:   "postgres: one statement grants no permit too many",
		file:    "pgbackend/statements.go",
		without: "a semaphore has more holders than its limit",
		edits:   []edit{{old: "$7::bigint - 1\n", new: "$7::bigint\n"}},
		pkg:     "pgbackend", test: "TestSwap",
	},
	{
		guard:   "postgres: one statement overtakes no waiter",
		file:    "pgbackend/statements.go",
		without: "a permit is granted past the queue, and its release wakes no waiter",
		edits:   []edit{{old: "bool_and(e ? 'granted' AND ", new: "bool_and("}},
		pkg:     "pgbackend", test: "TestSwap",
	},
	{
		guard:   "postgres: one statement grants an owner once",
		file:    "pgbackend/statements.go",
		without: "a repeated request takes two permits",
		edits:   []edit{{old: " AND e->>'owner' <> $4::text\n", new: "\n"}},
		pkg:     "pgbackend", test: "TestSwap",
	},
	{
		guard:   "postgres: one statement adds holders of one kind",
		file:    "pgbackend/statements.go",
		without: "a semaphore has holders with different limits",
		edits:   []edit{{old: "\t\t\tAND ($3::text IS NULL OR e->>'kind' = $6::text)\n", new: ""}},
		pkg:     "pgbackend", test: "TestSwap",
	},
	{
		guard:   "postgres: one statement removes what is there",
		file:    "pgbackend/statements.go",
		without: "a release of nothing reports success",
		edits: []edit{{
			old: "count(*) FILTER (WHERE e->>'owner' = ANY ($2::text[])) = cardinality($2::text[])",
			new: "true",
		}},
		pkg: "pgbackend", test: "TestSwap",
	},
	{
		guard:   "postgres: text that JSON cannot have is read and stored",
		file:    "pgbackend/swap.go",
		without: "a permit whose text has a zero byte is never granted",
		edits:   []edit{{old: "case isUnreadable(err):", new: "case false:"}},
		pkg:     "pgbackend", test: "TestSwap",
	},
	{
		guard:   "postgres: an overtaken change insists",
		file:    "pgbackend/edit.go",
		without: "in a roster that is in heavy use each renewal is overtaken: leases are lost",
		edits: []edit{{
			old: "conflicts%maxOvertaken == maxOvertaken-1 && r.isSwappable()",
			new: "conflicts < 0",
		}},
		pkg: "pgbackend", test: "TestOvertakenEditionInsists",
	},
	{
		guard:   "postgres: a client that insists has time",
		file:    "pgbackend/record.go",
		without: "a change that another client stores ends the time of a client that insists",
		edits:   []edit{{old: "\t\t\tnext.since = r.since\n", new: ""}},
		pkg:     "pgbackend", test: "TestOvertakenEditionInsists",
	},
	{
		guard: "postgres: the fence of a broken grant is stored", file: "pgbackend/record.go",
		without: "two holders get one fence, if the first was broken in the edition that granted",
		edits:   []edit{{old: "last == uint64(r.fence) && ", new: ""}},
		pkg:     "pgbackend", test: "TestFenceOfABrokenGrantIsStored",
	},
	{
		guard: "postgres: an operator can make the server read-only", file: "pgbackend/open.go",
		without: "a primary that was fenced before a switchover still grants locks: two holders",
		edits: []edit{{
			old: "\t\"lock_timeout\": ",
			new: "\t\"default_transaction_read_only\": \"off\",\n\t\"lock_timeout\": ",
		}},
		pkg: "pgbackend", test: "TestFencedServerIsLeft",
	},
	{
		guard: "postgres: waiters leave a read-only server", file: "pgbackend/wait.go",
		without: "waiters listen on a former primary, and get no message of the new one",
		edits:   []edit{{old: "if err == nil && isReadOnly {", new: "if false {"}},
		pkg:     "pgbackend", test: "TestFencedServerIsLeft",
	},
	{
		guard: "postgres: an edition calls no context", file: "pgbackend/edit.go",
		without: "a context that blocks stops all other requests of the driver",
		edits: []edit{{
			old: "return m.left || !m.end", new: "return m.left || m.ctx.Err() != nil || !m.end",
		}},
		pkg: "pgbackend", test: "TestEditionCallsNoContext",
	},
	{
		guard: "postgres: a repeated release wakes waiters", file: "pgbackend/driver.go",
		without: "a waiter sleeps for seconds after a release whose answer was lost",
		edits:   []edit{{old: "\t\td.listener.wakeAll(g.Key)\n", new: ""}},
		pkg:     "pgbackend", test: "TestRepeatedReleaseWakesWaiters",
	},
	{
		guard: "postgres: quoted types are the same types", file: "pgbackend/statements.go",
		without: "with quote_all_identifiers no driver opens",
		edits: []edit{{
			old: `replace(format_type(atttypid, atttypmod), '"', '')`,
			new: "format_type(atttypid, atttypmod)",
		}},
		pkg: "pgbackend", test: "TestDefaultsOfTheServerDoNotMatter",
	},
}
