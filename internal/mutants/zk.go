package main

// The guards of zkbackend.
var zkMutants = []mutant{
	{
		guard: "zk: owner of the node is this session", file: "zkbackend/driver.go",
		without: "the node of a former session counts as ours",
		edits:   []edit{{old: "if err == nil && w.stat.EphemeralOwner != s.conn.SessionID() {", new: "if false {"}},
		pkg:     "zkbackend", test: "TestGhostOfAFormerSession",
	},
	{
		guard: "zk: the negotiated timeout", file: "zkbackend/wire.go",
		without: "the lease trusts what was asked for, not what was granted",
		edits:   []edit{{old: "p.timeout = timeout", new: "p.timeout = DefaultSession"}},
		pkg:     "zkbackend", test: "TestNegotiatedTimeout",
	},
	{
		guard: "zk: a lost reply is looked for", file: "zkbackend/driver.go",
		without: "the node of a lost reply stays as a ghost in the queue",
		edits:   []edit{{old: "if e.node == \"\" && e.uncertain {", new: "if false {"}},
		pkg:     "zkbackend", test: "TestLostReplyIsLookedFor",
	},
	{
		guard: "zk: the own node is watched", file: "zkbackend/session.go",
		without: "a broken lock is noticed at the next renewal only",
		edits:   []edit{{old: "if gone != nil && lost != nil {", new: "if false {"}},
		pkg:     "zkbackend", test: "TestBreakIsToldAtOnce",
	},
	{
		guard: "zk: unasked after the first alone", file: "zkbackend/wait.go",
		without: "a waiter is granted past others when its predecessor gives up",
		edits:   []edit{{old: "if len(before) == 1 {", new: "if true {"}},
		pkg:     "zkbackend", test: "TestPredecessorThatQuits",
	},
	{
		guard: "zk: watches are in order on one connection", file: "zkbackend/session.go",
		without: "after a reconnection a waiter is granted whose node is gone: two holders",
		edits:   []edit{{old: "return w.wire != s.wires", new: "return false"}},
		pkg:     "zkbackend", test: "TestReconnectionTellsInAnyOrder",
	},
	{
		guard: "zk: the followed node is not the only one", file: "zkbackend/wait.go",
		without: "a waiter is granted past waiters that the last holder did not see",
		edits:   []edit{{old: "	return w\n}\n\n// waitBehind", new: "	e.ahead = w\n	return w\n}\n\n// waitBehind"}},
		pkg:     "zkbackend", test: "TestNextFollowsWhomTheHolderSaw",
	},
	{
		guard: "zk: requests are bounded in time", file: "zkbackend/wire.go",
		without: "a silent server keeps a request for ever",
		edits:   []edit{{old: "t = w.deadline", new: "t = time.Time{}"}},
		pkg:     "zkbackend", test: "TestSilentServer",
	},
	{
		guard: "zk: the session follows the TTL", file: "zkbackend/options.go",
		without: "a killed holder's lock is taken for 30 s, whatever its TTL",
		edits:   []edit{{old: "User: u.User, Password: u.Password, TTL: max(u.TTL, 0)}", new: "User: u.User, Password: u.Password}"}},
		pkg:     "zkbackend", test: "TestKilledProcess",
	},
	{
		guard: "zk: a proof counts from what the leader knows", file: "zkbackend/wire.go",
		without: "a member dies after a grant, and with it what the leader was to know: two holders for a third of the timeout",
		edits:   []edit{{old: "now.Sub(touch.read) >= report {", new: "i > 0 {"}},
		pkg:     "zkbackend", test: "TestProofCountsFromWhatTheLeaderKnows",
	},
	{
		guard: "zk: a proof counts from what was answered", file: "zkbackend/wire.go",
		without: "after a stall of the network a proof counts from pings that no server has read: two holders for 5 s of 30 s",
		edits: []edit{{
			old: "	case ping:\n		t.pending = append(t.pending, now)\n",
			new: "	case ping:\n		t.times = append(t.times, touch{sent: now, read: now})\n",
		}},
		pkg: "zkbackend", test: "TestProofCountsFromWhatWasAnswered",
	},
	{
		guard: "zk: a proof needs a majority", file: "zkbackend/session.go",
		without: "a leader that the others have left proves sessions for some ticks: two holders",
		edits:   []edit{{old: "if err := s.conn.Delete(s.settings.root+noNode, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {", new: "if _, err := s.conn.Sync(s.settings.root); err != nil {"}},
		pkg:     "zkbackend", test: "TestProofNeedsAMajority",
	},
	{
		guard: "zk: a release removes no foreign node", file: "zkbackend/driver.go",
		without: "on a server without containers a release deletes what has come into the place of the lock's node",
		edits: []edit{{
			old: "		_, _ = s.conn.Multi(\n			&zk.DeleteRequest{Path: parent, Version: -1},\n			&zk.DeleteRequest{Path: strings.TrimSuffix(parent, queueNode), Version: -1})\n",
			new: "		_ = s.conn.Delete(parent, -1)\n		_ = s.conn.Delete(strings.TrimSuffix(parent, queueNode), -1)\n",
		}},
		pkg: "zkbackend", test: "TestReleaseRemovesNoForeignNode",
	},
	{
		guard: "zk: sessions ping", file: "zkbackend/session.go",
		without: "the first term after a pause is short",
		edits:   []edit{{old: "			w.ping()\n", new: ""}},
		pkg:     "zkbackend", test: "TestIdleSessionIsProven",
	},
	{
		guard: "zk: credentials before all else", file: "zkbackend/wire.go",
		without: "no request is made as the user",
		edits:   []edit{{old: "if timeout > 0 && w.session.settings.User != \"\" {", new: "if false {"}},
		pkg:     "zkbackend", test: "TestAuthentication",
	},
	{
		guard: "zk: refused credentials end the session", file: "zkbackend/wire.go",
		without: "a user that the server refuses is tried for ever",
		edits:   []edit{{old: "; code != 0 {", new: "; code == 1 {"}},
		pkg:     "zkbackend", test: "TestCredentialsArePartOfTheHandshake",
	},
	{
		guard: "zk: Close waits for a second", file: "zkbackend/session.go",
		without: "Close waits for as long as the client library does, with many requests pending",
		edits:   []edit{{old: "	if w := s.present(); w == nil || !w.shaken.Load() {\n		s.hangUp() // there is nothing to wait for\n	}\n", new: ""}, {old: "	time.AfterFunc(farewell, s.hangUp) // the library would wait for longer where its requests pile up\n", new: ""}},
		pkg:     "zkbackend", test: "TestCloseWhileCutOff",
	},
	{
		guard: "zk: late nodes are swept", file: "zkbackend/driver.go",
		without: "a create that is executed after it was looked for blocks the lock until its process ends",
		edits:   []edit{{old: "			d.sweepLater(e)\n", new: "			_ = d.sweepLater\n"}},
		pkg:     "zkbackend", test: "TestLateNodeOfTheSameOwner",
	},
	{
		guard: "zk: a foreign node is left alone", file: "zkbackend/driver.go",
		without: "a node that is not dlock's is locked as if it were",
		edits:   []edit{{old: "string(data) != name {", new: "len(data) == 0 {"}},
		pkg:     "zkbackend", test: "TestForeignNodeUnderTheKey",
	},
	{
		guard: "zk: a lost lock keeps its watch", file: "zkbackend/driver.go",
		without: "a renewal beside an attempt that learns of the loss ends the process",
		edits: []edit{{
			old: "	if e.fence.Load() != 0 {\n		return gone\n	}\n	e.node, e.created, e.ahead = \"\", 0, nil\n	e.own.Store(nil)\n",
			new: "	e.node, e.created, e.ahead = \"\", 0, nil\n	e.own.Store(nil)\n	if e.fence.Load() != 0 {\n		return gone\n	}\n",
		}},
		pkg: "zkbackend", test: "TestRenewalDuringALoss",
	},
	{
		guard: "zk: a renewal needs the watch", file: "zkbackend/driver.go",
		without: "a renewal beside another request proves a lock whose node is gone",
		edits:   []edit{{old: "if e.session.stale(e.own.Load()) {", new: "if false {"}},
		pkg:     "zkbackend", test: "TestRenewalWithoutAWatch",
	},
	{
		guard: "zk: an opening dials again", file: "zkbackend/open.go",
		without: "an opening fails where one connection ends at once",
		edits:   []edit{{old: "			d.abandon(err) // the library would pause for a second before it dials again\n", new: "			return err\n"}},
		pkg:     "zkbackend", test: "TestOpenDialsAgain",
	},
}
