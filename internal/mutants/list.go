package main

// mutants are the guards, in the order of docs/reliability.md.
var mutants = []mutant{
	{
		guard: "owner check in release", file: "redisbackend/scripts/release.lua",
		edits: []edit{{
			old: "local holds = value and string.sub(value, 1, #mine) == mine",
			new: "local holds = value",
		}},
		pkg: "redisbackend", test: "TestConformance/ReleaseIsOwnerChecked",
	},
	{
		guard: "owner check in renew", file: "redisbackend/scripts/renew.lua",
		edits: []edit{{
			old: "local held = type(value) == 'string' and string.sub(value, 1, #mine) == mine",
			new: "local held = type(value) == 'string'",
		}},
		pkg: "redisbackend", test: "TestConformance/RenewIsOwnerChecked",
	},
	{
		guard: "deadline from sending", file: "acquire.go",
		edits: []edit{{
			old: "h.grant, h.term, h.start, h.granted = grant, grant.Term, now, now",
			new: "h.grant, h.term, h.start, h.granted = grant, backend.Term{Sent: now, TTL: grant.Term.TTL}, now, now",
		}},
		pkg: "redisbackend", test: "TestConformance/DeadlineCountsFromSending",
	},
	{
		guard: "clean-up after a cancelled acquire", file: "release.go",
		edits: []edit{{
			old: "if h.grant == nil && !queued && !h.attempted {",
			new: "if h.grant == nil || queued {",
		}},
		pkg: "redisbackend", test: "TestConformance/CancelledAcquireIsUndone",
	},
	{
		guard: "re-check after subscribe", file: "redisbackend/wait.go",
		edits: []edit{{
			old: "\t\tt.subscribed = true\n\t\tt.news()\n",
			new: "\t\tt.subscribed = true\n",
		}},
		pkg: "redisbackend", test: "TestConformance/ReleaseDuringWaitIsNotMissed",
	},
	{
		guard: "atomic fence", file: "redisbackend/driver.go",
		edits: []edit{{
			old: "\t\tfence, err := parseFence(text)\n",
			new: "\t\tfence, err := parseFence(text)\n\t\tfence = uint64(time.Since(p.sent)) // drawn by each client for itself\n",
		}},
		pkg: "redisbackend", test: "TestConformance/FenceIncreasesAcrossRelease",
	},
	{
		guard: "once lost, always lost", file: "renew.go",
		edits: []edit{{
			old: "\tlost := h.expire(time.Now())\n\ttold := lost == nil && (h.phase == live || h.phase == kept)",
			new: "\tvar lost error\n\tif err == nil && h.phase == orphaned {\n\t\th.phase = live\n\t}\n\ttold := h.phase == live || h.phase == kept",
		}},
		pkg: "redisbackend", test: "TestConformance/OnceLostAlwaysLost",
	},
	{
		guard: "renewal stopped by Unlock", file: "release.go",
		edits: []edit{{
			old: "\th.phase = releasing\n\th.unschedule()\n",
			new: "",
		}, {
			old: "\th.finish(ErrLost)\n\treturn true, err",
			new: "\treturn true, err",
		}},
		pkg: "redisbackend", test: "TestConformance/UnlockStopsRenewal",
	},
	// The five of each further driver.
	{
		guard: "zk: owner of the node is this session", file: "zkbackend/driver.go",
		edits: []edit{{old: "if err == nil && w.stat.EphemeralOwner != s.conn.SessionID() {", new: "if false {"}},
		pkg:   "zkbackend", test: "TestGhostOfAFormerSession",
	},
	{
		guard: "zk: the negotiated timeout", file: "zkbackend/wire.go",
		edits: []edit{{old: "p.timeout = timeout", new: "p.timeout = DefaultSession"}},
		pkg:   "zkbackend", test: "TestNegotiatedTimeout",
	},
	{
		guard: "zk: a lost reply is looked for", file: "zkbackend/driver.go",
		edits: []edit{{old: "if e.node == \"\" && e.uncertain {", new: "if false {"}},
		pkg:   "zkbackend", test: "TestLostReplyIsLookedFor",
	},
	{
		guard: "zk: the own node is watched", file: "zkbackend/session.go",
		edits: []edit{{old: "if gone != nil && lost != nil {", new: "if false {"}},
		pkg:   "zkbackend", test: "TestBreakIsToldAtOnce",
	},
	{
		guard: "zk: unasked after the first alone", file: "zkbackend/wait.go",
		edits: []edit{{old: "if len(before) == 1 {", new: "if true {"}},
		pkg:   "zkbackend", test: "TestPredecessorThatQuits",
	},
	{
		guard: "zk: watches are in order on one connection", file: "zkbackend/session.go",
		edits: []edit{{old: "return w.wire != s.wires", new: "return false"}},
		pkg:   "zkbackend", test: "TestReconnectionTellsInAnyOrder",
	},
	{
		guard: "zk: whom it follows is not the only one", file: "zkbackend/wait.go",
		edits: []edit{{old: "	return w\n}\n\n// waitBehind", new: "	e.ahead = w\n	return w\n}\n\n// waitBehind"}},
		pkg:   "zkbackend", test: "TestNextFollowsWhomTheHolderSaw",
	},
	{
		guard: "zk: requests are bounded in time", file: "zkbackend/wire.go",
		edits: []edit{{old: "t = w.deadline", new: "t = time.Time{}"}},
		pkg:   "zkbackend", test: "TestSilentServer",
	},
	{
		guard: "etcd: the queue is empty", file: "etcdbackend/driver.go",
		edits: []edit{{
			old: "clientv3.Compare(clientv3.CreateRevision(a.prefix).WithPrefix(), \"=\", 0)",
			new: "clientv3.Compare(clientv3.CreateRevision(a.key), \"=\", 0)",
		}},
		pkg: "etcdbackend", test: "TestConformance/AcquireHasOneWinner",
	},
	{
		guard: "etcd: the lease's time of sending", file: "etcdbackend/lease.go",
		edits: []edit{{old: "\treturn sent, nil\n}\n", new: "\treturn time.Now(), nil\n}\n"}},
		pkg:   "etcdbackend", test: "TestConformance/TermCountsFromSending",
	},
	{
		guard: "etcd: a lost lease ends all its grants", file: "etcdbackend/lease.go",
		edits: []edit{{
			old: "\t\ttell = append(tell, a.lost)\n\t\td.dismiss(a)\n\t}\n\tfor _, s",
			new: "\t\td.dismiss(a)\n\t}\n\tfor _, s",
		}},
		pkg: "etcdbackend", test: "TestLeaseLoss",
	},
	{
		guard: "etcd: a cancelled watch is looked behind", file: "etcdbackend/wait.go",
		edits: []edit{{old: "\td.dissolve(q)\n}\n", new: "}\n"}},
		pkg:   "etcdbackend", test: "TestCompactionSendsWaitersToLookAgain",
	},
	{
		guard: "etcd: late executions are removed", file: "etcdbackend/lease.go",
		edits: []edit{{old: "len(ghosts) > 0 &&", new: "len(ghosts) < 0 &&"}},
		pkg:   "etcdbackend", test: "TestGhostIsRemovedWithTheNextRenewal",
	},
	{
		guard: "etcd: a lock has one request in a batch", file: "etcdbackend/batch.go",
		edits: []edit{{old: "if seen[c.prefix] {", new: "if false {"}},
		pkg:   "etcdbackend", test: "TestBatchOnAServer",
	},
	{
		guard: "memcached: a second more than trusted", file: "memcachedbackend/driver.go",
		edits: []edit{{
			old: "int32 { return int32(term(ttl)/time.Second) + 1 }",
			new: "int32 { return int32(term(ttl) / time.Second) }",
		}},
		pkg: "memcachedbackend", test: "TestConformance/AbandonedGrantExpires",
	},
	{
		guard: "memcached: owner check", file: "memcachedbackend/driver.go",
		edits: []edit{{old: "if !ok || !owned(r) {", new: "if !ok {"}},
		pkg:   "memcachedbackend", test: "TestConformance/ReleaseIsOwnerChecked",
	},
	{
		guard: "memcached: the fence is drawn while holding", file: "memcachedbackend/driver.go",
		edits: []edit{{old: "if err == nil && (again || !sure) {", new: "if err == nil && (again || !sure && false) {"}},
		pkg:   "memcachedbackend", test: "TestFenceIsDrawnWhileHolding",
	},
	{
		guard: "memcached: another's seed is confirmed", file: "memcachedbackend/fence.go",
		edits: []edit{{old: "\t\tsure = false\n", new: ""}},
		pkg:   "memcachedbackend", test: "TestFenceIsDrawnWhileHolding",
	},
	{
		guard: "memcached: old seeds are not used", file: "memcachedbackend/fence.go",
		edits: []edit{{old: "foreseen.next || now > fence+maxSeedAge", new: "foreseen.next"}},
		pkg:   "memcachedbackend", test: "TestOldSeed",
	},
	{
		guard: "memcached: a counter that was lost is told", file: "memcachedbackend/fence.go",
		edits: []edit{{old: "max(now, fence), false", new: "max(now, fence), true"}},
		pkg:   "memcachedbackend", test: "TestFenceIsStored",
	},
	{
		guard: "memcached: compare and swap", file: "memcachedbackend/driver.go",
		edits: []edit{{old: "err := c.CompareAndSwap(item)", new: "err := c.Set(item)"}},
		pkg:   "memcachedbackend", test: "TestNothingIsOverwritten",
	},
	{
		guard: "memcached: dead connections are not used", file: "memcachedbackend/pool.go",
		edits: []edit{{old: "if c.isDead() {", new: "if false {"}},
		pkg:   "memcachedbackend", test: "TestIdleConnectionsMayDie",
	},
	{
		guard: "mysql: a release leaves no owner", file: "mysqlbackend/statements/release.sql",
		edits: []edit{{old: "  owner = '',\n", new: "  owner = IF(1, owner, ''),\n"}},
		pkg:   "mysqlbackend", test: "TestStaleStatementsReviveNothing",
	},
	{
		guard: "mysql: the fence exceeds the last", file: "mysqlbackend/statements/acquire.sql",
		edits: []edit{{old: "GREATEST(token + 1, ", new: "GREATEST(0, "}},
		pkg:   "mysqlbackend", test: "TestFenceFollowsAClockThatWasSetBack",
	},
	{
		guard: "mysql: owner check in renew", file: "mysqlbackend/statements/renew.sql",
		edits: []edit{{old: "AND (name, owner) IN ({pairs})", new: "AND ((name, owner) IN ({pairs}) OR TRUE)"}},
		pkg:   "mysqlbackend", test: "TestConformance/RenewIsOwnerChecked",
	},
	{
		guard: "mysql: terms count from sending", file: "mysqlbackend/driver.go",
		edits: []edit{{
			old: "backend.Term{Sent: sent, TTL: time.Duration(ttl)",
			new: "backend.Term{Sent: sent.Add(time.Since(sent)), TTL: time.Duration(ttl)",
		}},
		pkg: "mysqlbackend", test: "TestConformance/TermCountsFromSending",
	},
	{
		guard: "mysql: late statements are waited for", file: "mysqlbackend/driver.go",
		edits: []edit{{old: "time.Duration(s.lockWait)*time.Second + timerSlack", new: "0 * timerSlack"}},
		pkg:   "mysqlbackend", test: "TestCancelledAcquireEndsInTime",
	},
	{
		guard: "mysql: a release that a wake-up hits is repeated", file: "mysqlbackend/driver.go",
		edits: []edit{{old: "if err != nil && !replied(err, errInterrupted) {", new: "if err != nil || out.changed == 0 {"}},
		pkg:   "mysqlbackend", test: "TestLateKillCostsNoRelease",
	},
	{
		guard: "mysql: lent connections are not given back", file: "mysqlbackend/wait.go",
		edits: []edit{{old: "if p.known && q.lent ||", new: "if p.known && false ||"}},
		pkg:   "mysqlbackend", test: "TestLentConnectionIsClosedBehindAWaiter",
	},
	{
		guard: "redis: a lock without its replicas is undone", file: "redisbackend/driver.go",
		edits: []edit{{old: "undone := d.Release(ctx,", new: "undone := error(nil)\n\t\t_ = fmt.Sprint(ctx,"}},
		pkg:   "redisbackend", test: "TestLockWithoutItsReplicas",
	},
	{
		guard: "redis: renewals need their replicas", file: "redisbackend/driver.go",
		edits: []edit{{old: "for i, a := range d.control.runEach(d.opts.proven(ctx, ttl),", new: "_ = ttl\n\tfor i, a := range d.control.runEach(ctx,"}},
		pkg:   "redisbackend", test: "TestReplicasProveTerms",
	},
	{
		guard: "redis: a lock that moves is followed", file: "redisbackend/wait.go",
		edits: []edit{{old: "case \"sunsubscribe\":\n\t\th.drop(lock)\n", new: "case \"sunsubscribe\":\n"}},
		pkg:   "redisbackend", test: "TestSlotMovesWhileHeld",
	},
	{
		guard: "redis: former masters are left", file: "redisbackend/sentinel.go",
		edits: []edit{{old: "\t\t\t_ = c.TCPConn.Close()\n", new: "\t\t\t_ = c\n"}},
		pkg:   "redisbackend", test: "TestConnectionsFollowTheMaster",
	},
	{
		guard: "redis: no client repeats a command", file: "redisbackend/script.go",
		edits: []edit{{old: "func (once) NoRetry() bool { return true }", new: "func (once) NoRetry() bool { return false }"}},
		pkg:   "redisbackend", test: "TestLentClient",
	},
	{
		guard: "redis: renewals do not queue", file: "redisbackend/script.go",
		edits: []edit{{old: "l.runAside(ctx, calls[0].script, calls[0].args)", new: "l.run(ctx, calls[0].script, calls[0].args...)"}},
		pkg:   "redisbackend", test: "TestRenewalsDoNotQueue",
	},
	{
		guard: "batches: a batch does not hold up a caller", file: "internal/batch/batch.go",
		edits: []edit{{old: "case <-q.ctx.Done():", new: "case <-context.Background().Done():"}},
		pkg:   "internal/batch", test: "TestContextsInABatch",
	},
	{
		guard: "batches: connections are left for others", file: "internal/batch/batch.go",
		edits: []edit{{old: "if b.underWay < b.opts.Most {", new: "if b.opts.Most > 0 {"}},
		pkg:   "internal/batch", test: "TestQueueIsNotHeldUp",
	},
}
