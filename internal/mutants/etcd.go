package main

// The guards of etcdbackend.
var etcdMutants = []mutant{
	{
		guard: "etcd: the queue is empty", file: "etcdbackend/driver.go",
		without: "two holders",
		edits: []edit{{
			old: "ifNone(prefix, end,",
			new: "ifNone(key, nil,",
		}},
		pkg: "etcdbackend", test: "TestConformance/AcquireHasOneWinner",
	},
	{
		guard: "etcd: the lease's time of sending", file: "etcdbackend/lease.go",
		without: "a slow keep-alive proves too much",
		edits:   []edit{{old: "\treturn sent, nil\n}\n", new: "\treturn time.Now(), nil\n}\n"}},
		pkg:     "etcdbackend", test: "TestConformance/TermCountsFromSending",
	},
	{
		guard: "etcd: a lost lease ends all its grants", file: "etcdbackend/lease.go",
		without: "holders go on after their lease has expired",
		edits: []edit{{
			old: "\t\ttell = append(tell, a.lost)\n\t\td.dismiss(a)\n\t}\n\tfor _, s",
			new: "\t\td.dismiss(a)\n\t}\n\tfor _, s",
		}},
		pkg: "etcdbackend", test: "TestLeaseLoss",
	},
	{
		guard: "etcd: a cancelled watch is looked behind", file: "etcdbackend/wait.go",
		without: "waiters sleep through a release",
		edits:   []edit{{old: "\td.dissolve(q)\n}\n", new: "}\n"}},
		pkg:     "etcdbackend", test: "TestCompactionSendsWaitersToLookAgain",
	},
	{
		guard: "etcd: late executions are removed", file: "etcdbackend/lease.go",
		without: "the shared lease keeps a ghost alive for ever",
		edits:   []edit{{old: "len(ghosts) > 0 &&", new: "len(ghosts) < 0 &&"}},
		pkg:     "etcdbackend", test: "TestGhostIsRemovedWithTheNextRenewal",
	},
	{
		guard: "etcd: a lock has one request in a batch", file: "etcdbackend/batch.go",
		without: "two requests of a batch find the same lock free: two holders",
		edits:   []edit{{old: "if seen[c.prefix] {", new: "if false {"}},
		pkg:     "etcdbackend", test: "TestBatchOnAServer",
	},
	{
		guard: "etcd: a former place grants nothing", file: "etcdbackend/wait.go",
		without: "two holders, where a waiter lost its place while its watch lagged",
		edits: []edit{{
			old: "q.places[0] == place{a.owner, a.created}",
			new: "q.places[0].owner == a.owner",
		}},
		pkg: "etcdbackend", test: "TestLostPlaceGrantsNothing",
	},
	{
		guard: "etcd: ghosts of a process that only waits", file: "etcdbackend/lease.go",
		without: "a process that only waits keeps its own ghost alive: the lock is taken for ever",
		edits:   []edit{{old: "\tif !l.doubtful {\n", new: "\tif true {\n"}},
		pkg:     "etcdbackend", test: "TestGhostOfAWaitingProcessIsRemoved",
	},
	{
		guard: "etcd: what may be on the server is doubted", file: "etcdbackend/driver.go",
		without: "as above",
		edits:   []edit{{old: "a.unknown, a.lease.doubtful = true, true", new: "a.unknown = true"}},
		pkg:     "etcdbackend", test: "TestGhostOfAWaitingProcessIsRemoved",
	},
	{
		guard: "etcd: the ghost hunt spares what is known", file: "etcdbackend/lease.go",
		without: "a live key is removed: two holders",
		edits:   []edit{{old: "len(resp.Kvs) == 0 || d.knows(ownerOf(resp.Kvs[0].Key))", new: "len(resp.Kvs) == 0"}},
		pkg:     "etcdbackend", test: "TestGhostHuntSparesLaterKeys",
	},
	{
		guard: "etcd: a silent stream is replaced", file: "etcdbackend/keepalive.go",
		without: "a stream that does not answer costs a renewal",
		edits:   []edit{{old: "time.Until(end)/2", new: "time.Until(end)"}},
		pkg:     "etcdbackend", test: "TestSilentStreamIsReplaced",
	},
	{
		guard: "etcd: keep-alives share a stream", file: "etcdbackend/keepalive.go",
		without: "with a password each keep-alive costs a token",
		edits:   []edit{{old: "len(d.streams) == maxIdle", new: "len(d.streams) >= 0"}},
		pkg:     "etcdbackend", test: "TestKeepAlivesShareAStream",
	},
	{
		guard: "etcd: Close revokes unused leases", file: "etcdbackend/driver.go",
		without: "leases of an hour stay for an hour after Close",
		edits:   []edit{{old: "\td.revokeUnused()\n", new: ""}},
		pkg:     "etcdbackend", test: "TestCloseLeavesNoLease",
	},
	{
		guard: "etcd: Close keeps what is held", file: "etcdbackend/lease.go",
		without: "Close ends a lock-delay: the next holder enters too early",
		edits:   []edit{{old: "l != nil && !used[l] &&", new: "l != nil &&"}},
		pkg:     "etcdbackend", test: "TestCloseFreesNothing",
	},
	{
		guard: "etcd: roots are kept apart", file: "etcdbackend/options.go",
		without: "a lock of one root lies among the keys of another root's lock",
		edits:   []edit{{old: "i >= 0 {", new: "i >= 9 {"}},
		pkg:     "etcdbackend", test: "TestRootsAreKeptApart",
	},
	{
		guard: "etcd: a renewal is of the grant's own key", file: "etcdbackend/lease.go",
		without: "a late request makes the key of a broken lock again: its holder goes on, beside the next one",
		edits:   []edit{{old: "return a != nil && a.unknown", new: "return a == nil"}},
		pkg:     "etcdbackend", test: "TestRemadeKeyProvesNothing",
	},
	{
		guard: "etcd: a key made again is not the grant's", file: "etcdbackend/lease.go",
		without: "as above",
		edits:   []edit{{old: "g.Fence > 0 && resp.Kvs[0].CreateRevision", new: "g.Fence == 0 && resp.Kvs[0].CreateRevision"}},
		pkg:     "etcdbackend", test: "TestRemadeKeyProvesNothing",
	},
	{
		guard: "etcd: a grant wakes a wait beside it", file: "etcdbackend/driver.go",
		without: "a waiter whose late request was granted waits on for a third of its term",
		edits:   []edit{{old: "			a.signal() // a Wait beside this request is in no queue any more\n", new: ""}},
		pkg:     "etcdbackend", test: "TestGrantWakesAWaitBesideIt",
	},
	{
		guard: "etcd: an answer is bounded", file: "etcdbackend/open.go",
		without: "what answers in place of etcd fills 2 GB of memory",
		edits:   []edit{{old: "maxMessage = 16 << 20", new: "maxMessage = 1<<31 - 1"}},
		pkg:     "etcdbackend", test: "TestHostileServer",
	},
	{
		guard: "etcd: requests ask for a leader", file: "etcdbackend/open.go",
		without: "a member without a leader keeps requests until their time is over",
		edits:   []edit{{old: "ctx.Value(wantsLeader{}) != nil", new: "ctx.Value(wantsLeader{}) == false"}},
		pkg:     "etcdbackend", test: "TestRequestsAskForALeader",
	},
	{
		guard: "etcd: a lent client's KV is used", file: "etcdbackend/driver.go",
		without: "the locks of a client with a namespace lie outside of it",
		edits:   []edit{{old: "kv: lentKV{client}", new: "kv: newOwnKV(client)"}},
		pkg:     "etcdbackend", test: "TestLentClientWithANamespace",
	},
}
