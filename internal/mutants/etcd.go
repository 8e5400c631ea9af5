package main

// etcdMutants are the guards of etcdbackend.
var etcdMutants = []mutant{
	{
		guard: "etcd: a grant needs an empty queue", file: "etcdbackend/driver.go",
		without: "two holders",
		edits: []edit{{
			old: "ifNone(prefix, end,",
			new: "ifNone(key, nil,",
		}},
		pkg: "etcdbackend", test: "TestConformance/AcquireHasOneWinner",
	},
	{
		guard: "etcd: a lease counts from the sending", file: "etcdbackend/lease.go",
		without: "a slow keep-alive proves a term that is too long",
		edits: []edit{{
			old: "\treturn p, nil\n}\n",
			new: "\tp.sent = time.Now()\n\treturn p, nil\n}\n",
		}},
		pkg: "etcdbackend", test: "TestConformance/TermCountsFromSending",
	},
	{
		guard: "etcd: the end of a lease is pushed", file: "etcdbackend/inbox.go",
		without: "a holder whose lease a former leader has ended works on until its next renewal",
		edits: []edit{{
			old: "case !isInbox && ev.Type == clientv3.EventTypeDelete:",
			new: "case false:",
		}},
		pkg: "etcdbackend", test: "TestEndOfALeaseIsPushed",
	},
	{
		guard: "etcd: a deleted marker is no loss", file: "etcdbackend/inbox.go",
		without: "a deletion of the keys of clients ends all their locks",
		edits: []edit{{
			old: "\t\t\td.mark(l)\n",
			new: "\t\t\td.endLease(l)\n",
		}},
		pkg: "etcdbackend", test: "TestDeletedMarkerIsNoLoss",
	},
	{
		guard: "etcd: a missing marker is created again", file: "etcdbackend/renew.go",
		without: "after one refusal the end of a lease is not pushed",
		edits: []edit{{
			old: "if !seen[markerName(l.id)] {",
			new: "if false {",
		}},
		pkg: "etcdbackend", test: "TestFailedMarkerIsCreatedLater",
	},
	{
		guard: "etcd: a refused marker ends its lease", file: "etcdbackend/inbox.go",
		without: "the end of a lease that has no marker yet is not pushed",
		edits: []edit{{
			old: "\t\t\t\td.endLease(l)\n",
			new: "",
		}},
		pkg: "etcdbackend", test: "TestEndBeforeTheMarkerIsPushed",
	},
	{
		guard: "etcd: a lapsed lease is revoked", file: "etcdbackend/lease.go",
		without: "the keys of waiters block a lock for a term after an outage",
		edits: []edit{{
			old: "\t\t\td.revokeLapsed(l)\n",
			new: "",
		}},
		pkg: "etcdbackend", test: "TestLapsedLeaseIsRevoked",
	},
	{
		guard: "etcd: a lease lapses during a suspend", file: "etcdbackend/lease.go",
		without: "a machine that wakes up uses a lease that the server is ending: two holders",
		edits: []edit{{
			old: "max(now.Sub(l.sent), now.Round(0).Sub(l.sent.Round(0)))",
			new: "now.Sub(l.sent)",
		}},
		pkg: "etcdbackend", test: "TestSuspendedLeaseHasLapsed",
	},
	{
		guard: "etcd: a lapsed lease is not used", file: "etcdbackend/lease.go",
		without: "the server ends a lease just after a grant: two holders",
		edits: []edit{{
			old: "if l.age() >= l.ttl-margin(l.ttl) {",
			new: "if false {",
		}},
		pkg: "etcdbackend", test: "TestLapsedLeaseIsReplaced",
	},
	{
		guard: "etcd: a sweep leaves markers", file: "etcdbackend/sweep.go",
		without: "each sweep removes the marker, which the driver creates again",
		edits: []edit{{
			old: "if isOfLock && d.acquisitions",
			new: "if (isOfLock || true) && d.acquisitions",
		}},
		pkg: "etcdbackend", test: "TestSweepLeavesMarkers",
	},
	{
		guard: "etcd: a former leader proves nothing", file: "etcdbackend/keepalive.go",
		without: "a leader that was stopped renews a lease that has ended: two holders",
		edits: []edit{{
			old: "case p.reign != 0 && resp.Header.GetRaftTerm() != p.reign:",
			new: "case resp == nil:",
		}},
		pkg: "etcdbackend", test: "TestFormerLeaderProvesNothing",
	},
	{
		guard: "etcd: a lost lease ends all its grants", file: "etcdbackend/lease.go",
		without: "holders continue after their lease has expired",
		edits: []edit{{
			old: "\t\tlost = append(lost, a.lost)\n\t\td.forget(a)\n\t}\n\tfor _, s",
			new: "\t\td.forget(a)\n\t}\n\tfor _, s",
		}},
		pkg: "etcdbackend", test: "TestLeaseLoss",
	},
	{
		guard: "etcd: after a cancelled watch the queue is read again", file: "etcdbackend/wait.go",
		without: "waiters miss a release",
		edits:   []edit{{old: "\td.wakeWaiters(q)\n}\n", new: "}\n"}},
		pkg:     "etcdbackend", test: "TestCompactionMakesWaitersRetry",
	},
	{
		guard: "etcd: late executions are removed", file: "etcdbackend/sweep.go",
		without: "the shared lease keeps a ghost alive for ever",
		edits:   []edit{{old: "if len(ghosts) > 0 {", new: "if len(ghosts) < 0 {"}},
		pkg:     "etcdbackend", test: "TestGhostIsRemovedWithTheNextRenewal",
	},
	{
		guard: "etcd: a lock has one request in a batch", file: "etcdbackend/batch.go",
		without: "two requests of a batch find the same lock free: two holders",
		edits:   []edit{{old: "case f.txn != nil || c.txn != nil:", new: "case false:"}},
		pkg:     "etcdbackend", test: "TestBatchOnAServer",
	},
	{
		guard: "etcd: the calls of a batch do not add up", file: "etcdbackend/batch.go",
		without: "64 requests wait for as many round trips, and all of them for one that hangs",
		edits: []edit{{
			old: "singles.Go(func() { answer(i, d.sendSingly(ctx, calls[i])) })",
			new: "answer(i, d.sendSingly(ctx, calls[i]))",
		}},
		pkg: "etcdbackend", test: "TestCallsOfABatchDoNotAddUp",
	},
	{
		guard: "etcd: a panic in a batch ends no process", file: "etcdbackend/batch.go",
		without: "an interceptor of a lent client that panics ends the process",
		edits:   []edit{{old: "\tdefer batch.Rescue(&a.Err)\n", new: ""}},
		pkg:     "etcdbackend", test: "TestSingleCallOfABatchFails",
	},
	{
		guard: "etcd: a former place grants nothing", file: "etcdbackend/wait.go",
		without: "a waiter that lost its place while its watch lagged is granted: two holders",
		edits: []edit{{
			old: "return e.created == a.created && e.owner == a.owner",
			new: "return e.owner == a.owner",
		}},
		pkg: "etcdbackend", test: "TestLostPlaceGrantsNothing",
	},
	{
		guard: "etcd: a process that only waits removes its ghosts", file: "etcdbackend/sweep.go",
		without: "a process that only waits keeps its own ghost alive: the lock is taken for ever",
		edits:   []edit{{old: "\tif l.state != doubtful {\n", new: "\tif true {\n"}},
		pkg:     "etcdbackend", test: "TestGhostOfAWaitingProcessIsRemoved",
	},
	{
		guard: "etcd: an unknown request makes its lease doubtful", file: "etcdbackend/driver.go",
		without: "a process that only waits keeps its own ghost alive: the lock is taken for ever",
		edits:   []edit{{old: "\t\ta.lease.doubt()\n", new: ""}},
		pkg:     "etcdbackend", test: "TestGhostOfAWaitingProcessIsRemoved",
	},
	{
		guard: "etcd: known keys are no ghosts", file: "etcdbackend/sweep.go",
		without: "a live key is removed: two holders",
		edits: []edit{{
			old: "len(resp.Kvs) == 0 || d.isKnown(ownerIn(resp.Kvs[0])) ||",
			new: "len(resp.Kvs) == 0 ||",
		}},
		pkg: "etcdbackend", test: "TestGhostHuntSparesLaterKeys",
	},
	{
		guard: "etcd: a silent stream is replaced", file: "etcdbackend/keepalive.go",
		without: "a renewal fails because its stream does not answer",
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
		guard: "etcd: Close keeps held locks", file: "etcdbackend/lease.go",
		without: "Close ends a lock-delay: the next holder enters too early",
		edits:   []edit{{old: "l != nil && !used[l] {", new: "l != nil {"}},
		pkg:     "etcdbackend", test: "TestCloseFreesNothing",
	},
	{
		guard: "etcd: roots are kept apart", file: "etcdbackend/options.go",
		without: "the keys of a lock can be among the keys of another root's lock",
		edits:   []edit{{old: "i >= 0 {", new: "i >= 9 {"}},
		pkg:     "etcdbackend", test: "TestRootsAreKeptApart",
	},
	{
		guard: "etcd: a renewal checks the grant's own key", file: "etcdbackend/renew.go",
		without: "a late request creates a broken lock's key again: two holders",
		edits:   []edit{{old: "return a != nil && a.mayHaveGhost", new: "return a == nil"}},
		pkg:     "etcdbackend", test: "TestRemadeKeyProvesNothing",
	},
	{
		guard: "etcd: a key created again is not the grant's", file: "etcdbackend/renew.go",
		without: "a late request creates a broken lock's key again: two holders",
		edits: []edit{{
			old: "g.Fence > 0 && kv.CreateRevision",
			new: "g.Fence == 0 && kv.CreateRevision",
		}},
		pkg: "etcdbackend", test: "TestRemadeKeyProvesNothing",
	},
	{
		guard: "etcd: a grant wakes the owner's Wait", file: "etcdbackend/driver.go",
		without: "a waiter whose late request was granted waits for another third of its term",
		edits: []edit{{
			old: "			a.signal() // a concurrent Wait is in no queue from now on\n",
			new: "",
		}},
		pkg: "etcdbackend", test: "TestGrantWakesAConcurrentWait",
	},
	{
		guard: "etcd: an answer is bounded", file: "etcdbackend/open.go",
		without: "a hostile server fills 2 GB of memory",
		edits:   []edit{{old: "maxMessage = 16 << 20", new: "maxMessage = 1<<31 - 1"}},
		pkg:     "etcdbackend", test: "TestHostileServer",
	},
	{
		guard: "etcd: requests require a leader", file: "etcdbackend/request.go",
		without: "a member without a leader keeps requests until their timeout",
		edits: []edit{{
			old: "ctx.Value(wantsLeader{}) != nil",
			new: "ctx.Value(wantsLeader{}) == false",
		}},
		pkg: "etcdbackend", test: "TestRequestsRequireALeader",
	},
	{
		guard: "etcd: a lent client's KV is used", file: "etcdbackend/driver.go",
		without: "the locks of a client with a namespace are outside of the namespace",
		edits:   []edit{{old: "kv: lentKV{client}", new: "kv: newOwnKV(client)"}},
		pkg:     "etcdbackend", test: "TestLentClientWithANamespace",
	},
	{
		guard: "etcd: an older removal hides no newer one", file: "etcdbackend/acquisition.go",
		without: "an owner whose key an operator has removed is granted the lock",
		edits: []edit{{
			old: "a.removed = max(a.removed, revision)", new: "a.removed = revision",
		}},
		pkg: "etcdbackend", test: "TestRemovalsInAnyOrder",
	},
	{
		guard: "etcd: a conflict is no proof that nothing is late", file: "etcdbackend/driver.go",
		without: "a late key of the holder proves its lease although its own key is gone: two " +
			"holders",
		edits: []edit{{
			old: "case !a.mayHaveGhost && (a.created == 0 || errors.Is(err, backend.ErrConflict)):",
			new: "case errors.Is(err, backend.ErrConflict), !a.mayHaveGhost && a.created == 0:",
		}},
		pkg: "etcdbackend", test: "TestConflictAfterALateAttempt",
	},
	{
		guard: "etcd: only the first key is a conflict", file: "etcdbackend/driver.go",
		without: "an attempt of another kind ends the attempts behind it, too",
		edits:   []edit{{old: "err == nil && len(ans.entries) == 0 {", new: "err == nil {"}},
		pkg:     "etcdbackend", test: "TestConflictIsOfTheFirstKey",
	},
	{
		guard: "etcd: an observer requires a leader", file: "etcdbackend/watch.go",
		without: "Observe is silent on a member without a leader",
		edits: []edit{{
			old: "context.WithCancel(d.life)", new: "context.WithCancel(context.Background())",
		}},
		pkg: "etcdbackend", test: "TestWatchRequiresALeader",
	},
	{
		guard: "etcd: a downgrade forgets a lost grant", file: "etcdbackend/move.go",
		without: "each loss that a Downgrade finds stays in memory",
		edits: []edit{{
			old: "\t\td.forgetIfLost(g.Owner, err)\n\t\treturn nil, err\n",
			new: "\t\treturn nil, err\n",
		}},
		pkg: "etcdbackend", test: "TestDowngradeForgetsALostGrant",
	},
	{
		guard: "etcd: a waiter needs its key in the copy", file: "etcdbackend/wait.go",
		without: "a waiter whose key was removed while the watch failed sleeps for a third of " +
			"its term",
		edits: []edit{{
			old: "q.revision < a.created || q.index(a) >= 0", new: "true",
		}},
		pkg: "etcdbackend", test: "TestKeyMissingInTheCopy",
	},
	{
		guard: "etcd: a request that was sent once is not unsent", file: "etcdbackend/request.go",
		without: "a cancelled attempt leaves a ghost, which keeps the lock until the next renewal",
		edits:   []edit{{old: "sent = r.sent.Load()", new: "_ = r.sent.Load()"}},
		pkg:     "etcdbackend", test: "TestRepeatedRequestIsNotUnsent",
	},
	{
		guard: "etcd: ReleaseAll finds no adopted key by its name", file: "etcdbackend/combine.go",
		without: "a late release of the former owner frees the lock of the adopter: two holders",
		edits: []edit{{
			old: "\t\t\treturn nil, errAlone\n",
			new: "\t\t\ta = &acquisition{keys: newKeys(d.root, g.Key, g.Owner)}\n",
		}},
		pkg: "etcdbackend", test: "TestAllOfAMovedGrant",
	},
	{
		guard: "etcd: ReleaseAll sends all releases at once", file: "etcdbackend/combine.go",
		without: "an unknown grant delays the releases of the other locks, each by a round trip",
		edits: []edit{{
			old: "requests.Go(func() { errs[i] = d.ReleaseAll(ctx, gs[i:i+1])[0] })",
			new: "errs[i] = d.ReleaseAll(ctx, gs[i:i+1])[0]",
		}},
		pkg: "etcdbackend", test: "TestLocksAreReleasedAtOnce",
	},
	{
		guard: "etcd: the timeout of ReleaseAll ends no context", file: "etcdbackend/combine.go",
		without: "Unlock reports the end of a context that the caller does not have",
		edits: []edit{{
			old: "\treturn removed, interpretError(ctx, err)\n", new: "\treturn removed, err\n",
		}},
		pkg: "etcdbackend", test: "TestReleaseAllAfterItsTimeout",
	},
	{
		guard: "etcd: a late AcquireAll removes no adopted key", file: "etcdbackend/combine.go",
		without: "a late request of the former owner frees the lock of the adopter: two holders",
		edits: []edit{{
			old: "answers[i].lease != clientv3.NoLease {",
			new: "answers[i].lease != clientv3.NoLease-1 {",
		}},
		pkg: "etcdbackend", test: "TestAllOfAMovedGrant",
	},
	{
		guard: "etcd: all locks or none", file: "etcdbackend/combine.go",
		without: "AcquireAll creates entries behind the holders of its locks",
		edits: []edit{{
			old: "\t\ttxn.Compare = append(txn.Compare, compare)\n",
			new: "\t\tif i == 0 {\n\t\t\ttxn.Compare = append(txn.Compare, compare)\n\t\t}\n",
		}},
		pkg: "etcdbackend", test: "TestConformance/OneTakenLeavesNone",
	},
	{
		guard: "etcd: AcquireAll is idempotent", file: "etcdbackend/combine.go",
		without: "after a lost reply, LockAll waits for itself until the end of the term",
		edits: []edit{{
			old: "if err == nil && !answers[i].first {", new: "if err == nil {",
		}},
		pkg: "etcdbackend", test: "TestConformance/RepeatedAcquireAllIsTheSame",
	},
	{
		guard: "etcd: a late move changes nothing", file: "etcdbackend/move.go",
		without: "a request of the former owner takes the key from the adopter: two holders",
		edits: []edit{{
			old: "ifUnchanged([]byte(key), r.modified, op)",
			new: "&pb.TxnRequest{Success: []*pb.RequestOp{op}}",
		}},
		pkg: "etcdbackend", test: "TestLateMoves",
	},
	{
		guard: "etcd: an exported key leaves its lease", file: "etcdbackend/move.go",
		without: "the end of the exporter's lease frees the lock before it is adopted",
		edits:   []edit{{old: "r.encode(), last.ID)", new: "r.encode(), a.lease.id+0*last.ID)"}},
		pkg:     "etcdbackend", test: "TestLeasesOfAMove",
	},
	{
		guard: "etcd: Adopt revokes the lease in between", file: "etcdbackend/move.go",
		without: "a lease without a key stays for its term after each adoption",
		edits:   []edit{{old: "if r.secret != \"\" { // otherwise", new: "if false { //"}},
		pkg:     "etcdbackend", test: "TestLeasesOfAMove",
	},
	{
		guard: "etcd: Adopt revokes no shared lease", file: "etcdbackend/move.go",
		without: "a repeated Adopt with another TTL ends other locks of its client",
		edits: []edit{{
			old: "if r.secret != \"\" { // otherwise",
			new: "if clientv3.LeaseID(r.lease) != l.id { //",
		}},
		pkg: "etcdbackend", test: "TestRepeatedAdoptRevokesNothing",
	},
	{
		guard: "etcd: a ticket needs its secret", file: "etcdbackend/move.go",
		without: "a client adopts an exported lock with its owner alone",
		edits: []edit{{
			old: "!isMine && r.secret != secret ||", new: "!isMine && r.secret == \"\" ||",
		}},
		pkg: "etcdbackend", test: "TestConformance/ForgedHandleIsRefused",
	},
	{
		guard: "etcd: an exported key is no ghost", file: "etcdbackend/sweep.go",
		without: "the exporter removes the key that it has exported: two holders",
		edits: []edit{{
			old: " ||\n			resp.Kvs[0].Lease != int64(l.id) {", new: " {",
		}},
		pkg: "etcdbackend", test: "TestSweepSparesAMovedKey",
	},
	{
		guard: "etcd: an adopted key is no ghost", file: "etcdbackend/sweep.go",
		without: "the adopter removes its own key: two holders",
		edits: []edit{{
			old: "d.isKnown(ownerIn(resp.Kvs[0]))",
			new: "d.isKnown(creatorOf(resp.Kvs[0].Key))",
		}},
		pkg: "etcdbackend", test: "TestSweepSparesAMovedKey",
	},
	{
		guard: "etcd: a former owner renews nothing", file: "etcdbackend/renew.go",
		without: "a former owner believes that it holds the lock of the adopter",
		edits: []edit{{
			old: "if ownerIn(kv) == owner {", new: "if creatorOf(kv.Key) == owner {",
		}},
		pkg: "etcdbackend", test: "TestFormerOwnerHasNothing",
	},
	{
		guard: "etcd: a former owner releases nothing", file: "etcdbackend/kv.go",
		without: "a late release of the former owner frees the lock of the adopter: two holders",
		edits: []edit{{
			old: "Key: key, Target: pb.Compare_VERSION,\n",
			new: "Key: key, Target: pb.Compare_VERSION, Result: pb.Compare_GREATER,\n",
		}, {
			old: "pb.Compare_Version{Version: 1}", new: "pb.Compare_Version{Version: 0}",
		}},
		pkg: "etcdbackend", test: "TestFormerOwnerHasNothing",
	},
	{
		guard: "etcd: a former owner is granted nothing", file: "etcdbackend/driver.go",
		without: "a late request of the former owner finds its key: two holders",
		edits:   []edit{{old: "if ownerIn(kv) == a.owner {", new: "if true {"}},
		pkg:     "etcdbackend", test: "TestFormerOwnerHasNothing",
	},
	{
		guard: "etcd: Break removes only what it has read", file: "etcdbackend/inspect.go",
		without: "a Break of the exporter removes the lock of the adopter",
		edits: []edit{{
			old: "clientv3.Compare(clientv3.ModRevision(key), \"=\", r.modified)",
			new: "clientv3.Compare(clientv3.CreateRevision(key), \"=\", r.created)",
		}},
		pkg: "etcdbackend", test: "TestFormerOwnerHasNothing",
	},
	{
		guard: "etcd: the copy of a queue has the owners", file: "etcdbackend/wait.go",
		without: "the holder of an adopted lock learns of its loss a third of a term later",
		edits: []edit{{
			old: "entry{creatorOf(kv.Key), ownerIn(kv), kv.CreateRevision",
			new: "entry{creatorOf(kv.Key), creatorOf(kv.Key), kv.CreateRevision",
		}},
		pkg: "etcdbackend", test: "TestLossOfAnAdoptedGrant",
	},
	{
		guard: "etcd: a full server can break a lock", file: "etcdbackend/inspect.go",
		without: "no operator can break the lock of a process that hangs",
		edits: []edit{{
			old: "if isFull(err) {",
			new: "if false {",
		}},
		pkg: "etcdbackend", test: "TestQuotaExceeded",
	},
	{
		guard: "etcd: a full server can be opened", file: "etcdbackend/open.go",
		without: "an operator can neither list nor break the locks on a full server",
		edits: []edit{{
			old: "\tif isFull(err) {\n\t\terr = d",
			new: "\tif false {\n\t\terr = d",
		}},
		pkg: "etcdbackend", test: "TestQuotaExceeded",
	},
	{
		guard: "etcd: a full server may have executed a request", file: "etcdbackend/errors.go",
		without: "a lock stays taken after a TryLock, and a Downgrade leaves two holders",
		edits: []edit{{
			old: "rpctypes.ErrTooManyRequests, ",
			new: "rpctypes.ErrTooManyRequests, rpctypes.ErrNoSpace, ",
		}},
		pkg: "etcdbackend", test: "TestFullServerMayHaveGranted",
	},
	{
		guard:   "etcd: a batch that a full server may have executed is not repeated",
		file:    "etcdbackend/errors.go",
		without: "Unlock returns ErrNotHeld for a lock that it has freed",
		edits: []edit{{
			old: "return isLeaseGone(err) || isDenied(err) ||",
			new: "return isLeaseGone(err) || isDenied(err) || isFull(err) ||",
		}},
		pkg: "etcdbackend", test: "TestBatchWithoutAnAnswer",
	},
	{
		guard: "etcd: a closed port is ErrUnavailable", file: "etcdbackend/errors.go",
		without: "the error of Open does not say that the server cannot be reached",
		edits: []edit{
			{
				old: "case isUnsent(err), isLeaseGone(err), isRefusal(err):",
				new: "case isLeaseGone(err), isRefusal(err):",
			},
			{
				old: "fmt.Errorf(\"%w: %w\", backend.ErrUnavailable, err)\n}\n\n// isDefinite",
				new: "err\n}\n\n// isDefinite",
			},
		},
		pkg: "etcdbackend", test: "TestConformance/OpeningAClosedPortIsUnavailable",
	},
	{
		guard: "etcd: a client needs a connection", file: "etcdbackend/open.go",
		without: "the first renewal ends the process",
		edits:   []edit{{old: "if client.ActiveConnection() == nil {", new: "if false {"}},
		pkg:     "etcdbackend", test: "TestClientWithoutConnection",
	},
	{
		guard: "etcd: a proof without a header ends no process",
		file:  "etcdbackend/keepalive.go", without: "one answer ends the process at a renewal",
		edits: []edit{{old: "resp.Header.GetRaftTerm() !=", new: "resp.Header.RaftTerm !="}},
		pkg:   "etcdbackend", test: "TestHollowAnswersEndNoProcess",
	},
	{
		guard: "etcd: an answer has the parts that are read", file: "etcdbackend/answers.go",
		without: "one answer ends the process at a batch",
		edits:   []edit{{old: "resp.Header == nil || !fits(req, resp)", new: "false"}},
		pkg:     "etcdbackend", test: "TestHollowAnswersEndNoProcess",
	},
	{
		guard: "etcd: an answer has parts of the right types", file: "etcdbackend/answers.go",
		without: "one answer ends the process at a batch",
		edits: []edit{{
			old: "return txn != nil && fits(r.RequestTxn, txn)",
			new: "return txn != nil || r == nil",
		}},
		pkg: "etcdbackend", test: "TestMissingPartsAreDetected",
	},
	{
		guard: "etcd: a lease lapses by the margin of the clocks", file: "etcdbackend/lease.go",
		without: "two holders if the clock of the server is faster than that of the client",
		edits:   []edit{{old: "l.age() >= l.ttl-margin(l.ttl)", new: "l.age() >= l.ttl"}},
		pkg:     "etcdbackend", test: "TestLeaseLapsesBeforeItsEnd",
	},
	{
		guard: "etcd: a key that may be removed is not granted", file: "etcdbackend/acquisition.go",
		without: "two holders if a removal in an attempt is executed late",
		edits:   []edit{{old: "a.removed > created || a.mayBeRemoved", new: "a.removed > created"}},
		pkg:     "etcdbackend", test: "TestLateRemovalFreesNoGrant",
	},
	{
		guard: "etcd: a late removal of all is expected", file: "etcdbackend/combine.go",
		without: "two holders if a removal in a LockAll is executed late",
		edits:   []edit{{old: "\t\t\t\td.expectRemoval(a)\n", new: "\t\t\t\t_ = a\n"}},
		pkg:     "etcdbackend", test: "TestLateRemovalOfAllFreesNoGrant",
	},
	{
		guard: "etcd: a refused watch is opened on another stream", file: "etcdbackend/watch.go",
		without: "with a password, waiters of each newly contended lock poll",
		edits: []edit{{
			old: "d.watchStream.CompareAndSwap(stream, stream+1)", new: "_ = stream",
		}},
		pkg: "etcdbackend", test: "TestWatchAfterTheTokenHasExpired",
	},
	{
		guard: "etcd: a silent stream of watches is replaced", file: "etcdbackend/watch.go",
		without: "with a short TTL, a Lock fails because one member is stopped",
		edits: []edit{{
			old: "case <-time.After(patience):", new: "case <-time.After(patience + time.Hour):",
		}},
		pkg: "etcdbackend", test: "TestSilentStreamOfWatchesIsReplaced",
	},
	{
		guard: "etcd: a watch that is not used ends", file: "etcdbackend/watch.go",
		without: "each stopped member costs a stream for ever",
		edits:   []edit{{old: "case <-ctx.Done():\n\t\tend()\n", new: "case <-ctx.Done():\n"}},
		pkg:     "etcdbackend", test: "TestSilentStreamOfWatchesIsReplaced",
	},
	{
		guard:   "etcd: a silent member gets a part of the time for a queue",
		file:    "etcdbackend/wait.go",
		without: "with a short TTL, a Lock fails because one member is stopped",
		edits: []edit{{
			old: "if err != nil && first.Err() != nil && ctx.Err() == nil {", new: "if false {",
		}},
		pkg: "etcdbackend", test: "TestSilentMemberDelaysNoCopy",
	},
	{
		guard: "etcd: a refused removal is uncertain", file: "etcdbackend/driver.go",
		without: "an attempt that does not wait leaves a key that blocks the lock",
		edits: []edit{{
			old: "return answer{}, uncertain(err)", new: "return answer{}, err",
		}},
		pkg: "etcdbackend", test: "TestRefusedRemovalIsUncertain",
	},
	{
		guard: "etcd: any number of keys of a lease can be read", file: "etcdbackend/lease.go",
		without: "a client with 10,600 locks of the longest names loses all of them",
		edits: []edit{{
			old: "maxMessage + len(d.acquisitions)*(len(d.root)+maxEntry)",
			new: "maxMessage",
		}},
		pkg: "etcdbackend", test: "TestManyKeysOfALease",
	},
	{
		guard: "etcd: a silent member costs no renewal", file: "etcdbackend/lease.go",
		without: "one silent member of three costs leases with short terms",
		edits: []edit{{
			old: "if err != nil && half.Err() != nil && ctx.Err() == nil {",
			new: "if false {",
		}},
		pkg: "etcdbackend", test: "TestSilentMemberCostsNoRenewal",
	},
	{
		guard: "etcd: a silent member is left out", file: "etcdbackend/balance.go",
		without: "each third request waits for a member that is stopped, and a Lock can fail",
		edits: []edit{{
			old: "turn == maxTurns || !one.isSilent()",
			new: "turn > 0 || !one.isSilent()",
		}},
		pkg: "etcdbackend", test: "TestFailover/SilentMemberIsLeftOut",
	},
	{
		guard: "etcd: the client uses the policy", file: "etcdbackend/balance.go",
		without: "each third request waits for a member that is stopped, and a Lock can fail",
		edits: []edit{{
			old: "\t\tgrpc.WithDisableServiceConfig(),\n",
			new: "",
		}},
		pkg: "etcdbackend", test: "TestFailover/SilentMemberIsLeftOut",
	},
	{
		guard: "etcd: an answer ends the silence of a member", file: "etcdbackend/balance.go",
		without: "a member that answers is left out",
		edits: []edit{{
			old: "\t\tm.silent.Store(0)\n",
			new: "",
		}},
		pkg: "etcdbackend", test: "TestMemberIsSilent",
	},
	{
		guard: "etcd: a cancelled request is no silence", file: "etcdbackend/balance.go",
		without: "a caller that cancels its requests leaves out members that answer",
		edits: []edit{{
			old: "status.Code(info.Err) == codes.DeadlineExceeded:",
			new: "status.Code(info.Err) != codes.OK:",
		}},
		pkg: "etcdbackend", test: "TestMemberIsSilent",
	},
	{
		guard: "etcd: a silent member gets another chance", file: "etcdbackend/balance.go",
		without: "a member that was stopped once is left out until no member answers",
		edits: []edit{{
			old: "since != 0 && time.Now().UnixNano()-since < int64(pingTime+pingTimeout)",
			new: "since != 0",
		}},
		pkg: "etcdbackend", test: "TestMemberIsSilent",
	},
}
