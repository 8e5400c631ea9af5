package main

// redisMutants are the guards of redisbackend.
var redisMutants = []mutant{
	{
		guard: "owner check in release", file: "redisbackend/scripts/release.lua",
		without: "an Unlock frees another owner's lock",
		edits: []edit{{
			old: "type(value) == 'string' and string.sub(value, 1, #mine) == mine",
			new: "type(value) == 'string'",
		}},
		pkg: "redisbackend", test: "TestConformance/ReleaseIsOwnerChecked",
	},
	{
		guard: "owner check in renew", file: "redisbackend/scripts/renew.lua",
		without: "a renewal prolongs another owner's lock, and with it its own lost lease",
		edits: []edit{{
			old: "elseif value and string.sub(value, 1, #mine) == mine then",
			new: "elseif value then",
		}},
		pkg: "redisbackend", test: "TestConformance/RenewIsOwnerChecked",
	},
	{
		guard: "redis: the last millisecond is time", file: "redisbackend/driver.go",
		without: "a waiter whose request comes in the last millisecond of a term sleeps for a " +
			"third of its own term",
		edits: []edit{{old: "max(left, 1)", new: "left"}},
		pkg:   "redisbackend", test: "TestLastMillisecondIsTime",
	},
	{
		guard: "atomic fence", file: "redisbackend/driver.go",
		without: "a later holder gets a smaller fence",
		edits: []edit{{
			old: "\t\tfence, err := parseFence(text)\n",
			new: "\t\tfence, err := parseFence(text)\n" +
				"\t\tfence = uint64(time.Since(p.sent)) // drawn by each client for itself\n",
		}},
		pkg: "redisbackend", test: "TestConformance/FenceIncreasesAcrossRelease",
	},
	{
		guard: "redis: a lock without its replicas is undone", file: "redisbackend/driver.go",
		without: "with `wait=1` a refused lock stays taken for a TTL",
		edits: []edit{{
			old: "undone := d.Release(ctx,",
			new: "undone := error(nil)\n\t\t_ = fmt.Sprint(ctx,",
		}},
		pkg: "redisbackend", test: "TestLockWithoutItsReplicas",
	},
	{
		guard: "redis: a refused WAIT refuses no request", file: "redisbackend/errors.go",
		without: "with `wait=1` an executed Downgrade is ErrUnavailable: a writer among readers",
		edits:   []edit{{old: "err == nil, isUnreplicated(err),", new: "err == nil,"}},
		pkg:     "redisbackend", test: "TestRefusedWait",
	},
	{
		guard: "redis: redaction hides no missing replica", file: "redisbackend/errors.go",
		without: "with `wait=1` a lock without its replicas stays, if its error shows a password",
		edits: []edit{{
			old: "if missing, ok := errors.AsType[*replicaError](err); ok {",
			new: "if missing, ok := errors.AsType[*replicaError](err); ok && false {",
		}},
		pkg: "redisbackend", test: "TestRefusedWait",
	},
	{
		guard: "redis: renewals need their replicas", file: "redisbackend/renew.go",
		without: "a promoted replica ends the lock before its holder does",
		edits: []edit{{
			old: "for i, a := range d.control.runEach(d.opts.withReplicaWait(ctx, ttl),",
			new: "_ = ttl\n\tfor i, a := range d.control.runEach(ctx,",
		}},
		pkg: "redisbackend", test: "TestReplicasProveTerms",
	},
	{
		guard: "redis: connections to former masters are closed", file: "redisbackend/sentinel.go",
		without: "a client stays with a master that the sentinels have replaced",
		edits:   []edit{{old: "\t\t\t_ = c.TCPConn.Close()\n", new: "\t\t\t_ = c\n"}},
		pkg:     "redisbackend", test: "TestOlderAnswerIsIgnored",
	},
	{
		guard: "redis: the newest epoch counts", file: "redisbackend/sentinel.go",
		without: "lagging sentinels lead a client back to the former master",
		edits:   []edit{{old: "v.epoch > s.accepted.epoch:", new: "v.epoch > 0:"}},
		pkg:     "redisbackend", test: "TestOlderAnswerIsIgnored",
	},
	{
		guard: "redis: an announcement leads to a query", file: "redisbackend/sentinel.go",
		without: "a client stays with the former master until it needs another connection",
		edits:   []edit{{old: "s.isAnnouncement(message) {", new: "message == nil {"}},
		pkg:     "redisbackend", test: "TestOlderAnswerIsIgnored",
	},
	{
		guard: "redis: an announcement proves nothing", file: "redisbackend/sentinel.go",
		without: "after a stall, a client returns to a former master: two holders",
		edits: []edit{{
			old: "\t\tif subscribed || s.isAnnouncement(message) {\n",
			new: "\t\tif s.isAnnouncement(message) { // accepts what it announces\n" +
				"\t\t\tw := strings.Fields(message[2])\n" +
				"\t\t\ts.update(addr, view{net.JoinHostPort(w[3], w[4]),\n" +
				"\t\t\t\ts.views[addr].epoch + 1, time.Now()})\n" +
				"\t\t}\n" +
				"\t\tif subscribed || s.isAnnouncement(message) {\n",
		}},
		pkg: "redisbackend", test: "TestStaleAnnouncementIsIgnored",
	},
	{
		guard: "redis: all sentinels are followed", file: "redisbackend/sentinel.go",
		without: "a client misses a switch if one sentinel lags",
		edits: []edit{{
			old: "for _, addr := range s.addrs {\n\t\ts.running",
			new: "for _, addr := range s.addrs[:1] {\n\t\ts.running",
		}},
		pkg: "redisbackend", test: "TestOlderAnswerIsIgnored",
	},
	{
		guard:   "redis: the unanimous answer of the sentinels counts",
		file:    "redisbackend/sentinel.go",
		without: "a client is stuck after an operator has reset the epochs",
		edits: []edit{{
			old: "&& s.isUnanimous(v.master):",
			new: "&& s.isUnanimous(v.master) && s.closed:",
		}},
		pkg: "redisbackend", test: "TestUnanimousSentinelsWin",
	},
	{
		guard:   "redis: a connection dialled during a switch is closed",
		file:    "redisbackend/sentinel.go",
		without: "a connection to the former master outlives the switch",
		edits:   []edit{{old: "if s.accepted.master != addr {", new: "if s.closed {"}},
		pkg:     "redisbackend", test: "TestSwitchWhileDialling",
	},
	{
		guard: "redis: a replica is no master", file: "redisbackend/open.go",
		without: "a driver opens on a demoted server",
		edits: []edit{{
			old: "opts.Dialer, opts.OnConnect = conn.sentinels.connect, checkRole",
			new: "opts.Dialer = conn.sentinels.connect",
		}},
		pkg: "redisbackend", test: "TestReplicaIsNoMaster",
	},
	{
		guard: "redis: a sentinel's answer is bounded", file: "redisbackend/sentinelconn.go",
		without: "a hostile server at a sentinel's address ends the process",
		edits:   []edit{{old: "budget < 0 {", new: "budget < 0 && n < 0 {"}},
		pkg:     "redisbackend", test: "TestHostileSentinel/a_string_of_128_MB",
	},
	{
		guard: "redis: no error shows a password", file: "redisbackend/errors.go",
		without: "with a server without AUTH, the password gets into logs",
		edits:   []edit{{old: "return redactedReply(text)", new: "return err"}},
		pkg:     "redisbackend", test: "TestErrorsShowNoCredentials",
	},
	{
		guard: "redis: no error shows arguments", file: "redisbackend/errors.go",
		without: "the password of a lent client gets into logs",
		edits:   []edit{{old: "text, _, _ = strings.Cut(", new: "_, _, _ = strings.Cut("}},
		pkg:     "redisbackend", test: "TestErrorsShowNoArguments",
	},
	{
		guard: "redis: go-redis does not log failed dials", file: "redisbackend/dial.go",
		without: "go-redis writes to the program's standard error",
		edits: []edit{{
			old: "return failedConn{fmt.Errorf(\"%w: %w\", backend.ErrUnavailable, err)}, nil",
			new: "return nil, fmt.Errorf(\"%w: %w\", backend.ErrUnavailable, err)",
		}},
		pkg: "redisbackend", test: "TestNothingIsWrittenToStandardError",
	},
	{
		guard: "redis: no client repeats a command", file: "redisbackend/script.go",
		without: "go-redis repeats a release with a lost answer, and Unlock reports a loss",
		edits: []edit{{
			old: "func (once) NoRetry() bool { return true }",
			new: "func (once) NoRetry() bool { return false }",
		}},
		pkg: "redisbackend", test: "TestLentClient",
	},
	{
		guard: "redis: renewals do not queue", file: "redisbackend/pipeline.go",
		without: "leases are lost because their renewals wait behind many acquisitions",
		edits: []edit{{
			old: "l.runSeparately(ctx, calls[0].script, calls[0].args)",
			new: "l.run(ctx, calls[0].script, &request{args: calls[0].args})",
		}},
		pkg: "redisbackend", test: "TestRenewalsDoNotQueue",
	},
	{
		guard:   "redis: the numbers of attempts are never reused",
		file:    "redisbackend/acquisition.go",
		without: "after a refusal, a late message counts as a new grant: two leases",
		edits: []edit{{
			old: "\t\th.attempts++\n\t\tp.attempt = h.attempts\n",
			new: "\t\tp.attempt = 1\n",
		}},
		pkg: "redisbackend", test: "TestLateMessageAfterARefusal",
	},
	{
		guard: "redis: a replica reports no loss", file: "redisbackend/scripts/renew.lua",
		without: "a demoted master ends a lease that the present master keeps",
		edits:   []edit{{old: "redis.pcall('GETEX', lock)", new: "redis.pcall('GET', lock)"}},
		pkg:     "redisbackend", test: "TestDemotedMasterIsIgnored",
	},
	{
		guard: "redis: a replica breaks nothing", file: "redisbackend/scripts/break.lua",
		without: "a demoted master reports that a held lock is free",
		edits:   []edit{{old: "read('GETEX')", new: "read('GET')"}},
		pkg:     "redisbackend", test: "TestDemotedMasterIsIgnored",
	},
	{
		guard: "redis: a replica reports no holder", file: "redisbackend/scripts/acquire.lua",
		without: "because of a demoted master, a client does not get a free lock",
		edits:   []edit{{old: "return confirm(refuse())", new: "return refuse()"}},
		pkg:     "redisbackend", test: "TestDemotedMasterIsIgnored",
	},
	{
		guard:   "redis: a replica reports no conflict of fences",
		file:    "redisbackend/scripts/grant.lua",
		without: "a demoted master refuses a lock that the present master grants",
		edits: []edit{{
			old: "redis.call('GETEX', KEYS[2]) -- repeats",
			new: "redis.call('GET', KEYS[2]) -- repeats",
		}},
		pkg: "redisbackend", test: "TestDemotedMasterReportsNoConflict",
	},
	{
		guard:   "redis: a replica reports no conflict of locks",
		file:    "redisbackend/scripts/acquire.lua",
		without: "a demoted master refuses a lock that the present master grants",
		edits:   []edit{{old: "return confirm(failure)", new: "return failure"}},
		pkg:     "redisbackend", test: "TestDemotedMasterReportsNoConflict",
	},
	{
		guard:   "redis: an uncontended lock needs no queue",
		file:    "redisbackend/scripts/acquire.lua",
		without: "a pair of Lock and Unlock costs the server more than twice as much",
		edits: []edit{{
			old: "redis.call('EXISTS', KEYS[1], KEYS[3]) == 0 then",
			new: "redis.call('EXISTS', KEYS[1], KEYS[3]) == 0 and attempt == '0' then",
		}},
		pkg: "redisbackend", test: "TestUncontendedLockDoesNotQueue",
	},
	{
		guard:   "redis: a full server accepts no queue entry",
		file:    "redisbackend/scripts/acquire.lua",
		without: "waiters fill a server beyond its memory limit",
		edits: []edit{{
			old: "local failure = read('GET')", new: "local failure = read('GETEX')",
		}},
		pkg: "redisbackend", test: "TestFullServerQueuesNoWaiter",
	},
	{
		guard: "redis: a full server grants nothing", file: "redisbackend/scripts/acquire.lua",
		without: "attempts on locks with readers or permits fill a server beyond its memory limit",
		edits: []edit{{
			old: "local failure = read('GET')",
			new: "local failure = read(attempt == '0' and 'GETEX' or 'GET')",
		}},
		pkg: "redisbackend", test: "TestFullServerQueuesNoWaiter",
	},
	{
		guard:   "redis: the wait for replicas ends before its renewal does",
		file:    "redisbackend/replicas.go",
		without: "with a short term, a renewal never reports that replicas are missing",
		edits:   []edit{{old: "min(o.Timeout/2, ttl/4)", new: "min(o.Timeout/2, ttl/3)"}},
		pkg:     "redisbackend", test: "TestShortTermsDoNotWaitForLong",
	},
	{
		guard: "redis: a lent client gets no hook", file: "redisbackend/lane.go",
		without: "each driver over a lent client adds another WAIT to each request",
		edits: []edit{{
			old: "\tl.cluster, _ = client.(*redis.ClusterClient)\n",
			new: "\tl.cluster, _ = client.(*redis.ClusterClient)\n" +
				"\tif l.waits {\n\t\tclient.AddHook(replication{})\n\t}\n",
		}},
		pkg: "redisbackend", test: "TestLentClientWaitsOnce",
	},
	{
		guard: "redis: a dial ends with the context", file: "redisbackend/lane.go",
		without: "a request in place waits for a new connection beyond its deadline",
		edits:   []edit{{old: "inPlace{direct, l.dials.next()}", new: "inPlace{direct, nil}"}},
		pkg:     "redisbackend", test: "TestDialInPlaceEndsWithTheContext",
	},
	{
		guard: "redis: waiters attempt again after a reconnection", file: "redisbackend/hub.go",
		without: "a waiter misses a grant while it is not connected, and its term passes",
		edits:   []edit{{old: "\t\ta.notify(notice{})\n\t}\n}\n", new: "\t\t_ = a\n\t}\n}\n"}},
		pkg:     "redisbackend", test: "TestWaitersRetryAfterAReconnection",
	},
	{
		guard:   "redis: the place of a dead waiter ends soon",
		file:    "redisbackend/scripts/acquire.lua",
		without: "a waiter that has died delays the next ones for a whole TTL",
		edits:   []edit{{old: "math.min(ttl, entry_term)", new: "tonumber(ttl)"}},
		pkg:     "redisbackend", test: "TestScripts",
	},
	{
		guard:   "redis: a queue entry from before a step of the clock ends soon",
		file:    "redisbackend/scripts/queue.lua",
		without: "a dead waiter has the lock for the time by which the clock was set back",
		edits: []edit{{
			old: "math.min((expiry or now) - now, entry_term)", new: "(expiry or now) - now",
		}},
		pkg: "redisbackend", test: "TestScripts/release",
	},
	{
		guard:   "redis: a clock that is set back keeps no lock taken",
		file:    "redisbackend/scripts/renew.lua",
		without: "a dead reader keeps the lock for the time by which the clock was set back",
		edits:   []edit{{old: "if ends < tonumber(expiry) then", new: "if not ends then"}},
		pkg:     "redisbackend", test: "TestScripts/terms",
	},
	{
		guard:   "redis: a renewal leaves the first end of the terms",
		file:    "redisbackend/scripts/renew.lua",
		without: "a dead reader keeps the lock until the term of another reader ends",
		edits:   []edit{{old: "if kind and first < tonumber(former) then", new: "if kind then"}},
		pkg:     "redisbackend", test: "TestScripts/terms",
	},
	{
		guard: "redis: a granted term is rounded up", file: "redisbackend/scripts/queue.lua",
		without: "the term of a reader or a permit ends up to a millisecond too early",
		edits:   []edit{{old: "local expiry = now + ms + 1", new: "local expiry = now + ms"}},
		pkg:     "redisbackend", test: "TestScripts/terms",
	},
	{
		guard: "redis: a renewed term is rounded up", file: "redisbackend/scripts/renew.lua",
		without: "the term of a reader or a permit ends up to a millisecond too early",
		edits:   []edit{{old: "local ends = now + ttl + 1", new: "local ends = now + ttl"}},
		pkg:     "redisbackend", test: "TestScripts/terms",
	},
	{
		guard: "redis: all locks or none", file: "redisbackend/scripts/acquireall.lua",
		without: "AcquireAll grants locks that are held",
		edits:   []edit{{old: "  elseif not lock then", new: "  elseif true then"}},
		pkg:     "redisbackend", test: "TestConformance/OneTakenLeavesNone",
	},
	{
		guard: "redis: AcquireAll overtakes no waiter", file: "redisbackend/scripts/acquireall.lua",
		without: "a stream of LockAlls keeps the waiter of an expired lock waiting",
		edits: []edit{{
			old: "  if not lock or lock.kind ~= 'w' then\n    pass_on(owner)\n",
			new: "  if lock and lock.kind ~= 'w' then\n    pass_on(owner)\n",
		}, {
			old: "names[2 * i - 1], names[2 * i], missing[i] = all[4 * i - 3], all[4 * i - 1], i",
			new: "names[i], missing[i] = all[4 * i - 3], i",
		}},
		pkg: "redisbackend", test: "TestConformance/AllWaitForAQueue",
	},
	{
		guard:   "redis: AcquireAll reports which queue is foreign",
		file:    "redisbackend/scripts/acquireall.lua",
		without: "the error about a foreign value names another lock",
		edits:   []edit{{old: "failure = queue.err and queue", new: "failure = nil"}},
		pkg:     "redisbackend", test: "TestForeignQueueOfOneLock",
	},
	{
		guard:   "redis: AcquireAll of queued locks needs a fence",
		file:    "redisbackend/scripts/acquireall.lua",
		without: "a foreign fence is an unknown outcome instead of a conflict",
		edits: []edit{{
			old: "  elseif not lock then",
			new: "  elseif not lock and redis.call('EXISTS', KEYS[3]) == 0 then",
		}},
		pkg: "redisbackend", test: "TestQueuedLocksWithoutAFence",
	},
	{
		guard: "redis: AcquireAll is idempotent", file: "redisbackend/scripts/acquireall.lua",
		without: "after a lost reply, LockAll waits for itself until the end of the term",
		edits: []edit{{
			old: "lock.kind == 'w' and lock.owner == owner", new: "lock.kind == 'w' and false",
		}},
		pkg: "redisbackend", test: "TestConformance/RepeatedAcquireAllIsTheSame",
	},
	{
		guard: "redis: ReleaseAll wakes waiters", file: "redisbackend/scripts/releaseall.lua",
		without: "waiters of locks that are released together wait until the end of their entries",
		edits: []edit{{
			old: "  if answers[i] == 1 then\n    vacate()", new: "  if answers[i] == 1 then",
		}},
		pkg: "redisbackend", test: "TestConformance/ReleaseAllWakesWaiters",
	},
	{
		guard: "redis: ReleaseAll checks each owner", file: "redisbackend/scripts/releaseall.lua",
		without: "ReleaseAll removes the lock of the next holder",
		edits: []edit{{
			old: "value and string.sub(value, 1, #prefix) == prefix", new: "value and prefix",
		}},
		pkg: "redisbackend", test: "TestConformance/ReleaseAllAnswersEach",
	},
	{
		guard: "redis: the masters are loaded at Open", file: "redisbackend/driver.go",
		without: "the first renewal in a cluster may wait for a silent node",
		edits:   []edit{{old: "err = d.loadMasters(ctx)", new: "err = nil"}},
		pkg:     "redisbackend", test: "TestSilentMasterDelaysNoOtherRelease",
	},
	{
		guard: "redis: ReleaseAll sends all releases at once", file: "redisbackend/combine.go",
		without: "a silent master delays the releases on the other masters",
		edits: []edit{{
			old: "for i, a := range d.control.runEach(ctx, calls) {",
			new: "for i := range calls {\n\t\ta := d.control.runEach(ctx, calls[i:i+1])[0]",
		}},
		pkg: "redisbackend", test: "TestSilentMasterDelaysNoOtherRelease",
	},
	{
		guard:   "redis: waiters return when the first of several terms ends",
		file:    "redisbackend/scripts/refuse.lua",
		without: "a writer is late by the last renewal of a reader that has left",
		edits: []edit{{
			old: "return {lock.first - now,", new: "return {redis.call('PTTL', KEYS[1]),",
		}},
		pkg: "redisbackend", test: "TestScripts/readers",
	},
	{
		guard: "redis: a foreign fence is a conflict", file: "redisbackend/scripts/acquire.lua",
		without: "with two waiters, an attempt fails with an error of the script",
		edits:   []edit{{old: "if not lock or admits(kind) and", new: "if admits(kind) and"}},
		pkg:     "redisbackend", test: "TestScripts/foreign",
	},
	{
		guard:   "redis: a conflict leaves no queue entry",
		file:    "redisbackend/scripts/acquire.lua",
		without: "when the fence is repaired, the lock goes to a waiter that has given up",
		edits:   []edit{{old: "    unqueue(owner)\n", new: ""}},
		pkg:     "redisbackend", test: "TestScripts/foreign",
	},
	{
		guard:   "redis: an adoption without its replicas is not undone",
		file:    "redisbackend/move.go",
		without: "with `wait=1` Adopt reports that nothing was executed, but the ticket is gone",
		edits: []edit{{
			old: "\t\tif isDefinite(err) {\n\t\t\td.hub.forget(req.Owner)\n\t\t}\n" +
				"\t\treturn nil, err\n",
			new: "\t\treturn nil, d.handleFailure(ctx, req, err)\n",
		}},
		pkg: "redisbackend", test: "TestAdoptionWithoutItsReplicas",
	},
	{
		guard: "redis: an export needs its replicas", file: "redisbackend/move.go",
		without: "after a failover, an exported lock goes to another client during its term",
		edits:   []edit{{old: "\tctx = d.opts.withReplicaWait(ctx, ttl)\n", new: ""}},
		pkg:     "redisbackend", test: "TestReplicasProveTerms",
	},
	{
		guard: "redis: a refused move needs no replicas", file: "redisbackend/replicas.go",
		without: "while replicas are missing, the loss of a lock has an unknown outcome",
		edits: []edit{{
			old: "if reply == int64(0) && isUnreplicated(err) {",
			new: "if reply == nil && isUnreplicated(err) {",
		}},
		pkg: "redisbackend", test: "TestAdoptionWithoutItsReplicas",
	},
	{
		guard: "redis: no ticket is used after the context", file: "redisbackend/move.go",
		without: "a cancelled Adopt takes the lock after its caller has cleaned up",
		edits:   []edit{{old: "&guardedNumKeys{n: 5, ctx: ctx}", new: "5"}},
		pkg:     "redisbackend", test: "TestNothingIsSentAfterTheContext",
	},
	{
		guard: "redis: a writer that is lost is forgotten", file: "redisbackend/move.go",
		without: "each Downgrade that reports a loss leaves an entry in memory",
		edits: []edit{{
			old: "\t\td.hub.forget(g.Owner)\n\t\treturn nil, backend.ErrLost\n",
			new: "\t\treturn nil, backend.ErrLost\n",
		}},
		pkg: "redisbackend", test: "TestGoneWaitersAreForgotten",
	},
	{
		guard: "redis: a semaphore has a limit", file: "redisbackend/scripts/queue.lua",
		without: "a semaphore has one holder too many",
		edits:   []edit{{old: "KEYS[1]) <= tonumber(", new: "KEYS[1]) <= 1 + tonumber("}},
		pkg:     "redisbackend", test: "TestConformance/PermitsAreLimited",
	},
	{
		guard: "redis: a ticket has a secret", file: "redisbackend/scripts/adopt.lua",
		without: "a client that may inspect a lock can adopt it",
		edits:   []edit{{old: " or redis.call('GET', KEYS[5]) ~= secret then", new: " then"}},
		pkg:     "redisbackend", test: "TestConformance/ForgedHandleIsRefused",
	},
	{
		guard: "redis: a fence exceeds the last one", file: "redisbackend/scripts/grant.lua",
		without: "fences decrease when the server's clock is set back",
		edits:   []edit{{old: "    fence = string.format('%.0f', last + 1)\n", new: ""}},
		pkg:     "redisbackend", test: "TestFenceGrowsWhenTheServerForgets",
	},
	{
		guard: "redis: free names use no memory", file: "redisbackend/keys.go",
		without: "each name that was ever locked stays on the server",
		edits: []edit{{
			old: "fence: fenceKey, queue:",
			new: "fence: fenceKey + all[:lock], queue:",
		}},
		pkg: "redisbackend", test: "TestFreeLocksLeaveOneFence",
	},
	{
		guard: "redis: an expired lock goes to the queue", file: "redisbackend/scripts/acquire.lua",
		without: "an attempt overtakes fair waiters when the holder's term ends",
		edits: []edit{{
			old: "redis.call('EXISTS', KEYS[1], KEYS[3])",
			new: "redis.call('EXISTS', KEYS[1])",
		}},
		pkg: "redisbackend", test: "TestConformance/ExpiredLockGoesToTheQueue",
	},
	{
		guard: "redis: a refresh keeps the place", file: "redisbackend/scripts/acquire.lua",
		without: "a waiter that repeats its request goes to the end of the queue",
		edits: []edit{{
			old: "if not place then",
			new: "if true then",
		}},
		pkg: "redisbackend", test: "TestConformance/RefreshKeepsThePlace",
	},
	{
		guard:   "redis: a short queue entry shortens no other entry",
		file:    "redisbackend/scripts/acquire.lua",
		without: "a waiter with a short term ends the whole queue together with its own entry",
		edits: []edit{{
			old: "if redis.call('PTTL', KEYS[i]) < term then",
			new: "if true then",
		}},
		pkg: "redisbackend", test: "TestConformance/ShortTermShortensNoOtherEntry",
	},
	{
		guard:   "redis: a waiter that leaves wakes the next one",
		file:    "redisbackend/scripts/release.lua",
		without: "the lock is free, but each waiter in its queue sleeps until its own timer",
		edits: []edit{{
			old: "if type(value) ~= 'string' then --",
			new: "if owner == '' then --",
		}},
		pkg: "redisbackend", test: "TestConformance/LeavingTheQueueOfAFreeLockWakesTheNext",
	},
	{
		guard: "redis: a broken lock goes to the queue", file: "redisbackend/scripts/break.lua",
		without: "fair waiters sleep although the lock is free",
		edits:   []edit{{old: "vacate()\nreturn 1", new: "return 1"}},
		pkg:     "redisbackend", test: "TestConformance/BrokenLockGoesToTheQueue",
	},
	{
		guard:   "redis: a repeated Acquire prolongs the term",
		file:    "redisbackend/scripts/queue.lua",
		without: "a holder relies on a term that the server never granted",
		edits: []edit{{
			old: "    redis.call('PEXPIRE', KEYS[1], ttl)\n    return lock.fence\n",
			new: "    return lock.fence\n",
		}},
		pkg: "redisbackend", test: "TestConformance/RepeatedAcquireProlongsTheTerm",
	},
	{
		guard: "redis: a wrong clock sets no fence", file: "redisbackend/scripts/grant.lua",
		without: "no lock can be acquired any more after the clock was far ahead",
		edits: []edit{{
			old: "  if newest > '4019025413685247' then\n" +
				"    redis.call('GETEX', KEYS[2])\n" +
				"    return nil\n" +
				"  end\n",
			new: "",
		}},
		pkg: "redisbackend", test: "TestClockBeyondTheLastFence",
	},
	{
		guard:   "redis: a silent master delays only its own renewals",
		file:    "redisbackend/pipeline.go",
		without: "leases on the other masters of a cluster are lost",
		edits: []edit{{
			old: "parts[node] = append(parts[node], i)",
			new: "_ = node\n\t\tparts[l.client] = append(parts[l.client], i)",
		}},
		pkg: "redisbackend", test: "TestSilentMasterCostsNoOtherRenewal",
	},
	{
		guard: "redis: a late acquisition revives no grant", file: "redisbackend/scripts/renew.lua",
		without: "a lease goes on with a fence that the resource refuses",
		edits:   []edit{{old: " .. fence .. '\\n'", new: ""}},
		pkg:     "redisbackend", test: "TestLateAcquireRevivesNoGrant",
	},
	{
		guard:   "redis: nothing is sent after the context has ended",
		file:    "redisbackend/request.go",
		without: "a cancelled Break breaks the lock of the next holder",
		edits: []edit{{
			old: "if n.ctx != nil && n.ctx.Err() != nil {",
			new: "if n.ctx != nil && n.ctx == nil {",
		}},
		pkg: "redisbackend", test: "TestNothingIsSentAfterTheContext",
	},
	{
		guard: "redis: no batch is sent after its context", file: "redisbackend/pipeline.go",
		without: "a batched acquisition takes a lock long after its caller has returned",
		edits:   []edit{{old: "\t\t\tn.ctx = ctx\n", new: "\t\t\t_ = n\n"}},
		pkg:     "redisbackend", test: "TestNoBatchIsSentAfterItsContext",
	},
	{
		guard: "redis: an answer waits for no script", file: "redisbackend/pipeline.go",
		without: "after a restart of the server, a lock is granted a round trip late or not at all",
		edits:   []edit{{old: "\t\t\t\treport(i, answers[i])\n", new: "\t\t\t\t_ = report\n"}},
		pkg:     "redisbackend", test: "TestAnswerWaitsForNoScript",
	},
	{
		guard: "redis: a hook that panics ends no process", file: "redisbackend/pipeline.go",
		without: "a hook of a lent client that panics at a pipeline ends the process",
		edits:   []edit{{old: "\t\tdefer batch.Rescue(&err)\n", new: ""}},
		pkg:     "redisbackend", test: "TestPanicOfAHook",
	},
	{
		guard: "redis: Close waits for no lent client", file: "redisbackend/hub.go",
		without: "Close hangs until a lent client gives up a silent server",
		edits:   []edit{{old: "time.After(limit):", new: "time.After(1000 * limit):"}},
		pkg:     "redisbackend", test: "TestCloseOfASilentLentClient",
	},
	{
		guard: "redis: a malformed message ends no process", file: "redisbackend/link.go",
		without: "go-redis panics in a goroutine of the driver",
		edits: []edit{{
			old: "if reason := recover(); reason != nil {",
			new: "if reason := any(nil); reason != nil {",
		}},
		pkg: "redisbackend", test: "TestMalformedMessage",
	},
	{
		guard: "redis: a server's answer is bounded", file: "redisbackend/dial.go",
		without: "a hostile server ends the process",
		edits: []edit{{
			old: "return newBoundedConn(conn), nil",
			new: "_ = newBoundedConn\n\treturn conn, nil",
		}},
		pkg: "redisbackend", test: "TestHostileServer/redis/a_map_of_1,000,000,000",
	},
	{
		guard: "redis: the depth of an answer is bounded", file: "redisbackend/reply.go",
		without: "go-redis recurses until the process ends",
		edits: []edit{{
			old: "if s.depth == maxReplyDepth {\n\t\treturn errLongReply",
			new: "if s.depth == maxReplyDepth {\n\t\treturn nil",
		}},
		pkg: "redisbackend", test: "TestHostileRepliesAreRefused",
	},
	{
		guard: "redis: the number of elements is bounded", file: "redisbackend/reply.go",
		without: "go-redis allocates as much memory as a server announces",
		edits:   []edit{{old: "return s.charge(n * elementCost)", new: "return nil"}},
		pkg:     "redisbackend", test: "TestHostileRepliesAreRefused",
	},
	{
		guard: "redis: the length of a line is bounded", file: "redisbackend/reply.go",
		without: "an endless line fills the memory",
		edits: []edit{{
			old: "case s.read > maxReplyLine || s.cost > maxReply:",
			new: "case s.cost > maxReply && end >= 0:",
		}},
		pkg: "redisbackend", test: "TestHostileRepliesAreRefused",
	},
	{
		guard: "redis: a closed connection sends nothing", file: "redisbackend/dial.go",
		without: "the kernel sends a request that was given up long after its release",
		edits:   []edit{{old: "\t\tabort.OnClose(conn) //", new: "\t\t_ = abort.OnClose //"}},
		pkg:     "redisbackend", test: "TestClosedConnectionSendsNothing/server",
	},
	{
		guard: "redis: nor does one that sentinels chose", file: "redisbackend/sentinel.go",
		without: "the kernel sends a request that was given up long after its release",
		edits:   []edit{{old: ") NetConn() net.Conn {", new: ") netConn() net.Conn {"}},
		pkg:     "redisbackend", test: "TestClosedConnectionSendsNothing/sentinel",
	},
	{
		guard: "redis: a replica inspects nothing", file: "redisbackend/scripts/inspect.lua",
		without: "a demoted master reports a holder that has left, or a lock as free",
		edits: []edit{{
			old: "if type(refused) == 'table' and", new: "if type(refused) == 'number' and",
		}},
		pkg: "redisbackend", test: "TestDemotedMasterIsIgnored",
	},
	{
		guard:   "redis: an inspection needs no writes",
		file:    "redisbackend/scripts/inspect.lua",
		without: "while a server accepts no writes, nothing shows which locks are held",
		edits: []edit{{
			old: "string.find(refused.err, 'READONLY', 1, true)",
			new: "not string.find(refused.err, 'WRONGTYPE', 1, true)",
		}},
		pkg: "redisbackend", test: "TestInspectNeedsNoWrites",
	},
	{
		guard: "redis: a replica lists nothing", file: "redisbackend/inspect.go",
		without: "a demoted master without locks lists none, and not an error",
		edits:   []edit{{old: ` && !isReply(wait.Err(), replicaWaits) {`, new: " {"}},
		pkg:     "redisbackend", test: "TestDemotedMasterIsIgnored",
	},
	{
		guard: "redis: a list needs no right to WAIT", file: "redisbackend/inspect.go",
		without: "List fails for a user without that right, or behind a proxy",
		edits:   []edit{{old: "err = step.Err()", new: "_ = step.Err()"}},
		pkg:     "redisbackend", test: "TestListNeedsNoWait",
	},
	{
		guard: "redis: a deaf link is replaced", file: "redisbackend/link.go",
		without: "grants and breaks are missed when the node of the link has left the cluster",
		edits:   []edit{{old: "if l.isDeaf() {", new: "if l.isDeaf() && false {"}},
		pkg:     "redisbackend", test: "TestDeafLinkIsReplaced",
	},
	{
		guard: "redis: a node without cluster is left", file: "redisbackend/lane.go",
		without: "the names of a node that has left the cluster are unavailable for a minute",
		edits:   []edit{{old: ` || isReply(err, "CLUSTERDOWN")`, new: " || false"}},
		pkg:     "redisbackend", test: "TestNodeWithoutClusterIsLeft",
	},
	{
		guard: "redis: Close ends dials", file: "redisbackend/dial.go",
		without: "a dial to a silent server outlives Close until its timeout",
		edits: []edit{{
			old: "defer context.AfterFunc(d.ctx, cancel)()",
			new: "defer context.AfterFunc(ctx, cancel)()",
		}},
		pkg: "redisbackend", test: "TestCloseEndsDials/rediss",
	},
	{
		guard: "redis: Close ends queries", file: "redisbackend/sentinel.go",
		without: "the search for the master outlives Close if a sentinel is silent",
		edits: []edit{{
			old: "defer context.AfterFunc(s.ctx, cancel)()",
			new: "defer context.AfterFunc(ctx, cancel)()",
		}},
		pkg: "redisbackend", test: "TestCloseEndsDials",
	},
	{
		guard: "redis: Close ends the context of dials", file: "redisbackend/open.go",
		without: "a dial to a silent server outlives Close until its timeout",
		edits:   []edit{{old: "\tc.end()\n", new: ""}},
		pkg:     "redisbackend", test: "TestCloseEndsDials",
	},
	{
		guard: "redis: a malformed renewal is no loss", file: "redisbackend/renew.go",
		without: "a proxy that garbles an answer costs a lease that the server still has",
		edits: []edit{{
			old: "renewals[i].Err = errUnexpected(held[i])",
			new: "renewals[i].Err = backend.ErrLost",
		}},
		pkg: "redisbackend", test: "TestMalformedRenewalIsNoLoss",
	},
	{
		guard: "redis: old idle connections are not tried", file: "redisbackend/open.go",
		without: "a renewal tries one dead connection after the other until the lease is lost",
		edits: []edit{{
			old: "opts.PoolSize, opts.ConnMaxIdleTime = controlConns, idleTime",
			new: "opts.PoolSize = controlConns",
		}},
		pkg: "redisbackend", test: "TestSilentConnectionsAreNotTriedSingly",
	},
	{
		guard: "redis: a release ignores foreign values", file: "redisbackend/scripts/queue.lua",
		without: "Unlock and Close hang if another program has replaced the lock",
		edits: []edit{{
			old: "elseif string.find(n.err, 'WRONGTYPE', 1, true) then\n    return 0\n",
			new: "elseif not n.err then\n    return 0\n",
		}},
		pkg: "redisbackend", test: "TestUnlockDespiteAForeignValue",
	},
	{
		guard: "redis: a foreign queue fails no release", file: "redisbackend/scripts/queue.lua",
		without: "a Break that has taken the lock returns an error",
		edits:   []edit{{old: "pcall(pass_on)", new: "pass_on()"}},
		pkg:     "redisbackend", test: "TestReleaseDespiteForeignKeys",
	},
	{
		guard:   "redis: ReleaseAll ignores foreign values",
		file:    "redisbackend/scripts/releaseall.lua",
		without: "a foreign lock costs the waiters of other locks their wake-up",
		edits: []edit{{
			old: "remove('HDEL', KEYS[1], owner) == 1 then",
			new: "redis.call('HDEL', KEYS[1], owner) == 1 then",
		}},
		pkg: "redisbackend", test: "TestForeignLockAmongMany",
	},
	{
		guard:   "redis: a foreign value leaves no part of an entry",
		file:    "redisbackend/scripts/acquire.lua",
		without: "a refused attempt leaves a queue that never expires",
		edits: []edit{{
			old: "  local term = math.min(ttl, entry_term)\n",
			new: "  local term = math.min(ttl, entry_term)\n" +
				"  redis.call('ZADD', KEYS[3], 'NX', 0, owner)\n",
		}},
		pkg: "redisbackend", test: "TestForeignKeyLeavesNoEntry",
	},
	{
		guard:   "redis: an inspection ignores foreign waiters",
		file:    "redisbackend/scripts/inspect.lua",
		without: "one foreign key hides all locks from List",
		edits:   []edit{{old: "redis.pcall('HVALS',", new: "redis.call('HVALS',"}},
		pkg:     "redisbackend", test: "TestForeignWaitersHideNoLock",
	},
	{
		guard: "redis: an inspection is of few locks", file: "redisbackend/inspect.go",
		without: "List fails if many locks have many holders",
		edits:   []edit{{old: "min(d.perScript, maxInspected)", new: "d.perScript"}},
		pkg:     "redisbackend", test: "TestManyHoldersAreListed",
	},
	{
		guard: "redis: times are compared as numbers", file: "redisbackend/scripts/renew.lua",
		without: "a reader with a TTL of 300 years is lost at its first renewal",
		edits: []edit{{
			old: "tonumber(expiry) <= now", new: "expiry <= string.format('%.0f', now)",
		}},
		pkg: "redisbackend", test: "TestLongestTermIsRenewed",
	},
	{
		guard: "redis: pollers refresh their entries", file: "redisbackend/driver.go",
		without: "without pub/sub, a waiter with a short TTL loses its place between its polls",
		edits: []edit{{
			old: "refresh := min(ttl, entryTerm) / 3", new: "refresh := entryTerm / 3",
		}},
		pkg: "redisbackend", test: "TestWithoutPubSubTheCorePolls",
	},
	{
		guard: "redis: Open needs the right to wait", file: "redisbackend/open.go",
		without: "with `wait=1`, a user without that right gets no lock and no explanation",
		edits:   []edit{{old: "err == nil && d.opts.Wait > 0 {", new: "err != nil {"}},
		pkg:     "redisbackend", test: "TestRefusedWait",
	},
	{
		guard: "redis: a dead network is ErrUnavailable", file: "redisbackend/errors.go",
		without: "the error of Open does not say that the server cannot be reached",
		edits: []edit{{
			old: "\treturn fmt.Errorf(\"%w: %w\", backend.ErrUnavailable, err)\n}\n\n// isDefinite",
			new: "\treturn err\n}\n\n// isDefinite",
		}},
		pkg: "redisbackend", test: "TestConformance/OpeningReturnsFromABlackHole",
	},
}
