package main

// fileMutants are the guards of filebackend.
var fileMutants = []mutant{
	{
		guard: "file: a foreign file is a conflict", file: "filebackend/record.go",
		without: "dlock overwrites the file of another program",
		edits: []edit{{
			old: "if c.latest == nil && !isUnfinished(file) || len(file) > fileSize {",
			new: "if len(file) > fileSize {",
		}},
		pkg: "filebackend", test: "TestConformance/ForeignValueIsAConflict",
	},
	{
		guard: "file: a read-only file system supports no lock", file: "filebackend/errors.go",
		without: "dlock repeats an attempt on a read-only file system for ever",
		edits:   []edit{{old: "if errors.Is(err, unix.EROFS) {", new: "if false {"}},
		pkg:     "filebackend", test: "TestInterpretError",
	},
	{
		guard: "file: a relative path is reported", file: "filebackend/options.go",
		without: "dlock run --url file:locks complains about parameters that the user did not set",
		edits: []edit{{
			old: "\tt := &target{}\n",
			new: "\tt := &target{}\n\tif _, err := parseDir(u); err != nil {\n" +
				"\t\treturn nil, err\n\t}\n",
		}},
		pkg: "filebackend", test: "TestBadURLs",
	},
	{
		guard: "file: Close has a time limit", file: "filebackend/driver.go",
		without: "Close blocks for as long as the disk hangs",
		edits: []edit{{
			old: "case <-time.After(closeTimeout):", new: "case <-(chan int)(nil):",
		}},
		pkg: "filebackend", test: "TestDiskThatHangs",
	},
	{
		guard: "file: Close waits for a slow disk", file: "filebackend/driver.go",
		without: "Close returns an error if the disk is slow",
		edits:   []edit{{old: "closeTimeout = 4 * time.Second", new: "closeTimeout = 0"}},
		pkg:     "filebackend", test: "TestCloseWaitsForASlowDisk",
	},
	{
		guard: "file: a hanging disk delays no events", file: "filebackend/loss.go",
		without: "one attempt that hangs delays the events of all locks",
		edits:   []edit{{old: "go d.recheck(a)", new: "d.recheck(a)"}},
		pkg:     "filebackend", test: "TestDiskThatHangs",
	},
	{
		guard: "file: fences in memory are volatile", file: "filebackend/driver.go",
		without: "require=fence-durable accepts a directory that a restart of the machine removes",
		edits:   []edit{{old: "d.memory = inMemory(dir)", new: "d.memory = false"}},
		pkg:     "filebackend", test: "TestFencesInMemoryAreVolatile",
	},
	{
		guard: "file: the longest names fit", file: "filebackend/record.go",
		without: "a name of 512 bytes with a prefix of 512 bytes cannot be locked",
		edits:   []edit{{old: "maxTexts = 64 + 1024 + 64", new: "maxTexts = 1024"}},
		pkg:     "filebackend", test: "TestLongestNames",
	},
	{
		guard: "file: few requests hang at a time", file: "filebackend/driver.go",
		without: "a loop of Lock with timeouts on a frozen disk uses up the threads of the process",
		edits: []edit{{
			old: "if err := d.requests.take(ctx); err != nil {",
			new: "if err := d.requests.take(ctx); err != nil && false {",
		}},
		pkg: "filebackend", test: "TestRequestsThatHangAreLimited",
	},
	{
		guard: "file: an abandoned request keeps its slot", file: "filebackend/slots.go",
		without: "a loop of Lock with timeouts on a frozen disk uses up the threads of the process",
		edits: []edit{{
			old: "		if !claimed.Swap(true) {\n			<-s\n",
			new: "		if claimed.Swap(true) {\n			<-s\n",
		}},
		pkg: "filebackend", test: "TestAbandonedCallsKeepTheirSlots",
	},
	{
		guard: "file: a request without time keeps no slot", file: "filebackend/slots.go",
		without: "a driver refuses all requests after 256 of them have come too late",
		edits: []edit{{
			old: "		if !claimed.Swap(true) {\n			<-s\n		}\n",
			new: "		claimed.Store(true)\n",
		}},
		pkg: "filebackend", test: "TestCallWithoutTimeKeepsNoSlot",
	},
	{
		guard: "file: upkeep has its own slots", file: "filebackend/slots.go",
		without: "requests that hang on the disk keep held locks from their renewal and release",
		edits: []edit{
			{old: "	d.upkeep <- struct{}{}\n", new: "	d.requests <- struct{}{}\n"},
			{old: "	<-d.upkeep\n", new: "	<-d.requests\n"},
		},
		pkg: "filebackend", test: "TestRequestsThatHangAreLimited",
	},
	{
		guard: "file: a reservation is synced before it counts", file: "filebackend/record.go",
		without: "a process that is killed before a power failure sets the fence back",
		edits: []edit{{
			old: "last.reservation && !c.confirmed {",
			new: "last.reservation && !c.confirmed && false {",
		}},
		pkg: "filebackend", test: "TestReservationThatWasNotSynced",
	},
	{
		guard: "file: the only certain reservation is kept", file: "filebackend/record.go",
		without: "a process that is killed and a power failure set the fence back",
		edits: []edit{{
			old: "last.reservation && !c.confirmed {",
			new: "last.reservation && !c.confirmed && !r.reservation {",
		}},
		pkg: "filebackend", test: "TestCertainReservationIsKept",
	},
	{
		guard: "file: a ceiling follows the clock", file: "filebackend/record.go",
		without: "two boot IDs on one machine drive the fences away from the clock",
		edits: []edit{{
			old: "max(clock+ahead, r.fence+minAhead)", new: "r.fence + ahead + 0*minAhead",
		}},
		pkg: "filebackend", test: "TestBootsThatTakeTurns",
	},
	{
		guard: "file: a reservation is confirmed", file: "filebackend/lockfile.go",
		without: "a lock that is rarely used waits for the disk twice at each grant",
		edits:   []edit{{old: "	f.confirm(r.slot, b)\n", new: ""}},
		pkg:     "filebackend", test: "TestReservationsAreConfirmed",
	},
	{
		guard: "file: a sweep leaves a replaced file", file: "filebackend/measure.go",
		without: "a sweep removes the file of a held lock",
		edits:   []edit{{old: "err == nil && current {", new: "err == nil && (current || true) {"}},
		pkg:     "filebackend", test: "TestSweepLeavesForeignFiles",
	},
	{
		guard: "file: a signal costs a waiter no place", file: "filebackend/system_linux.go",
		without: "a signal puts a waiter at the end of the kernel's queue",
		edits:   []edit{{old: "blocked.Val[0] = 1<<31 - 1", new: "blocked.Val[0] = 0"}},
		pkg:     "filebackend", test: "TestBlockedWaiterKeepsItsPlace",
	},
	{
		guard: "file: a release wakes despite children", file: "filebackend/acquisition.go",
		without: "with inherit=1 a waiter sleeps for seconds while the lock is free",
		edits:   []edit{{old: "if wasHeld && d.opts.Inherit {", new: "if wasHeld && false {"}},
		pkg:     "filebackend", test: "TestReleaseOfAnInheritedLock",
	},
	{
		guard: "file: a woken waiter retries soon", file: "filebackend/wait.go",
		without: "after kill -9 of the holder a waiter sleeps for up to 3 s",
		edits:   []edit{{old: "case changed && holder != nil:", new: "case changed:"}},
		pkg:     "filebackend", test: "TestKillBetweenMarkAndLock",
	},
	{
		guard: "file: a woken waiter retries more than once", file: "filebackend/wait.go",
		without: "after kill -9 on a busy machine a waiter sleeps for up to 24 s on a free lock",
		edits:   []edit{{old: "a.retry = 4 * last", new: "a.retry = 0"}},
		pkg:     "filebackend", test: "TestKillBetweenMarkAndLock",
	},
	{
		guard: "file: events lengthen no pause", file: "filebackend/wait.go",
		without: "after some foreign closes a waiter sleeps for 24 s if it misses the release",
		edits:   []edit{{old: "case last == 0: //", new: "default: //"}},
		pkg:     "filebackend", test: "TestEventsLengthenNoPause",
	},
	{
		guard: "file: a refusal has the fence", file: "filebackend/driver.go",
		without: "without inotify, waiters of a contended lock poll less and less",
		edits:   []edit{{old: "busy.Fence = holder.fence", new: "busy.Fence = 0"}},
		pkg:     "filebackend", test: "TestRefusalHasTheFence",
	},
	{
		guard: "file: a failed attempt is free at once", file: "filebackend/acquisition.go",
		without: "a lock stays taken until a child process has started",
		edits: []edit{{
			old: "	a.file.unlock() // an attempt",
			new: "	if wasHeld {\n		a.file.unlock()\n	}\n	// an attempt",
		}},
		pkg: "filebackend", test: "TestFailedAttemptIsFreeDespiteChildren",
	},
	{
		guard: "file: a renewal needs the server of the network", file: "filebackend/loss.go",
		without: "after an outage of NFS, a holder renews a lock that another host has",
		edits:   []edit{{old: "if d.network {", new: "if d.network && false {"}},
		pkg:     "filebackend", test: "TestDroppedByTheServer",
	},
	{
		guard: "file: only a dropped lock fails for good", file: "filebackend/loss.go",
		without: "a lease on a network file system ends when the disk is full for a moment",
		edits:   []edit{{old: "case errors.Is(err, unix.EIO) ||", new: "case true ||"}},
		pkg:     "filebackend", test: "TestDroppedByTheServer",
	},
	{
		guard: "file: few releases hang at a time", file: "filebackend/acquisition.go",
		without: "the releases that the client repeats on a frozen disk fill the memory",
		edits:   []edit{{old: "releases: make(slots, 1),", new: "releases: make(slots, 1000),"}},
		pkg:     "filebackend", test: "TestReleasesThatHangAreLimited",
	},
	{
		guard: "file: a waiter does not remove its own file", file: "filebackend/members.go",
		without: "a waiter that was stopped gets a permit that other members do not count",
		edits:   []edit{{old: "	m.prune(front)\n", new: "	m.prune(m.all)\n"}},
		pkg:     "filebackend", test: "TestStoppedWaiterKeepsItsOwnFile",
	},
	{
		guard: "file: a permit of a mutex leaves at once", file: "filebackend/members.go",
		without: "one program that takes a mutex for a semaphore makes Lock fail in others",
		edits:   []edit{{old: "		a.leave() // now: a", new: "		// a.leave() a"}},
		pkg:     "filebackend", test: "TestPermitOfAMutexDisturbsNoOther",
	},
	{
		guard: "file: a permit joins only with the lock file", file: "filebackend/members.go",
		without: "one program that takes a mutex for a semaphore makes Lock fail in others",
		edits: []edit{{
			old: "(req.Mode == backend.Permit || !isQueued(err))", new: "!isQueued(err)",
		}},
		pkg: "filebackend", test: "TestPermitOfAMutexDisturbsNoOther",
	},
	{
		guard: "file: a permit has no thread in flock", file: "filebackend/wait.go",
		without: "with block=1 a permit locks the file for itself alone",
		edits: []edit{{
			old: "if req.Mode == backend.Exclusive { // a permit", new: "{ // a permit",
		}},
		pkg: "filebackend", test: "TestPermitBlocksInNoFlock",
	},
	{
		guard: "file: locks are checked with block=1", file: "filebackend/driver.go",
		without: "a holder notices that its file was removed only a third of its TTL later",
		edits:   []edit{{old: "d.opts.Endless || d.opts.Block {", new: "d.opts.Endless {"}},
		pkg:     "filebackend", test: "TestBlockingIsChecked",
	},
	{
		guard: "file: Wait does not wait for the disk", file: "filebackend/wait.go",
		without: "a waiter outlasts its context for as long as the disk hangs",
		edits: []edit{{
			old: "if !d.opts.Block || !a.mu.TryLock() {\n\t\treturn\n\t}",
			new: "a.mu.Lock()",
		}},
		pkg: "filebackend", test: "TestWaitEndsWhileTheDiskHangs",
	},
	{
		guard: "file: few threads of waiters that left", file: "filebackend/wait.go",
		without: "a loop of Lock with a timeout uses up the threads of the process",
		edits:   []edit{{old: "if d.leftThreads.Load() >= maxLeftThreads {", new: "if false {"}},
		pkg:     "filebackend", test: "TestThreadsOfWaitersThatLeft",
	},
	{
		guard: "file: a thread that ended is not counted", file: "filebackend/wait.go",
		without: "after 32 waiters have given up, all waiters of a driver poll for ever",
		edits:   []edit{{old: "d.leftThreads.Add(-1)", new: "d.leftThreads.Add(0)"}},
		pkg:     "filebackend", test: "TestThreadsOfWaitersThatLeft",
	},
	{
		guard: "file: a mutex gives way to members", file: "filebackend/driver.go",
		without: "a reader that waits is overtaken again and again, and a permit never comes back",
		edits:   []edit{{old: "if among, err = a.hasMembers(); err != nil {", new: "if false {"}},
		pkg:     "filebackend", test: "TestMutexGivesWayToMembers",
	},
	{
		guard: "file: a dead member excludes no other", file: "filebackend/members.go",
		without: "a reader that was killed excludes writers for ever",
		edits: []edit{{
			old: "case isAlive && stat.Size > 0:", new: "case stat.Size > 0:",
		}},
		pkg: "filebackend", test: "TestDeadMembersBlockNoOther",
	},
	{
		guard: "file: a dead member is no conflict", file: "filebackend/members.go",
		without: "a name that was once a semaphore is none for ever",
		edits:   []edit{{old: "err != nil || c != left {", new: "err != nil || c|1 != left {"}},
		pkg:     "filebackend", test: "TestDeadMembersBlockNoOther",
	},
	{
		guard: "file: dead readers are removed", file: "filebackend/members.go",
		without: "the files of killed readers add up for as long as only readers come",
		edits:   []edit{{old: "pruned = 2", new: "pruned = 0"}},
		pkg:     "filebackend", test: "TestDeadReadersAreRemoved",
	},
	{
		guard: "file: readers stand behind a waiting writer", file: "filebackend/members.go",
		without: "a stream of readers keeps writers waiting for ever",
		edits: []edit{{
			old: "range kind.Blockers(word, front) {",
			new: "range kind.Blockers(word, front[:0]) {",
		}},
		pkg: "filebackend", test: "TestConformance/WaitingWriterIsNotOvertaken",
	},
	{
		guard: "file: a stopped waiter loses its place", file: "filebackend/members.go",
		without: "a waiter that is stopped keeps the waiters behind it from the lock for ever",
		edits: []edit{{
			old: "case isAlive && !isStale(time.Unix(stat.Mtim.Unix())):", new: "case isAlive:",
		}},
		pkg: "filebackend", test: "TestPlacesOfWaiters",
	},
	{
		guard:   "file: a place from before the clock was set back is stale",
		file:    "filebackend/members.go",
		without: "a stopped waiter is passed only when the clock has come to its time again",
		edits:   []edit{{old: ".Abs() > waiterTerm", new: " > waiterTerm"}},
		pkg:     "filebackend", test: "TestPlacesOfWaiters",
	},
	{
		guard: "file: each attempt keeps a waiter's place", file: "filebackend/members.go",
		without: "a waiter is passed again and again after 3 s",
		edits:   []edit{{old: "a.member.touch() //", new: "//"}},
		pkg:     "filebackend", test: "TestPlacesOfWaiters",
	},
	{
		guard: "file: members make attempts all the time", file: "filebackend/wait.go",
		without: "a waiter that is not stopped is passed, because it pauses for too long",
		edits: []edit{{
			old: "	case a.member != nil:\n		return pauseMember, pauseMember\n", new: "",
		}},
		pkg: "filebackend", test: "TestMembersCheckEverySecond",
	},
	{
		guard: "file: members make attempts if the core polls", file: "filebackend/members.go",
		without: "a waiter without inotify is passed, because the poll interval is long",
		edits:   []edit{{old: "busy.Queued && !d.notifies() {", new: "busy.Queued && false {"}},
		pkg:     "filebackend", test: "TestPollersKeepTheirPlaces",
	},
	{
		guard: "file: a blocked writer joins readers", file: "filebackend/loss.go",
		without: "readers pass a writer for up to 90 s after the Downgrade of a holder",
		edits:   []edit{{old: "	d.wakeBlocked(a)\n", new: ""}},
		pkg:     "filebackend", test: "TestBlockedWriterJoinsReaders",
	},
	{
		guard: "file: a blocked waiter notices a new lock file", file: "filebackend/loss.go",
		without: "a waiter waits for a file that was removed for longer than it had waited",
		edits: []edit{{
			old: "err == nil && !current {\n\t\ta.signal()",
			new: "err == nil && !current && false {\n\t\ta.signal()",
		}},
		pkg: "filebackend", test: "TestReplacedBehindAStoppedProcess",
	},
	{
		guard: "file: a failed flock wakes its waiter", file: "filebackend/wait.go",
		without: "a waiter without a thread waits for minutes for a free lock",
		edits: []edit{{
			old: "	if waits {\n\t\ta.signal()", new: "	if waits {\n\t\t_ = a.signal",
		}},
		pkg: "filebackend", test: "TestThreadThatFails",
	},
	{
		guard: "file: a failed flock is not repeated", file: "filebackend/wait.go",
		without: "on a file system that refuses a flock that blocks, a waiter uses a processor",
		edits:   []edit{{old: "a.isBlocked() || a.polls ||", new: "a.isBlocked() ||"}},
		pkg:     "filebackend", test: "TestThreadThatFails",
	},
	{
		guard: "file: only a blocked waiter needs no other attempt", file: "filebackend/driver.go",
		without: "a lock that is freed without an event stays free for up to 24 s",
		edits: []edit{{
			old: "busy.Reliable = a.isBlocked() && !d.network", new: "busy.Reliable = true",
		}},
		pkg: "filebackend", test: "TestThreadThatFails",
	},
	{
		guard: "file: waiters are checked with block=1", file: "filebackend/wait.go",
		without: "readers pass a writer for up to 90 s after the Downgrade of a holder",
		edits:   []edit{{old: "	d.startPeriodicChecks()\n", new: ""}},
		pkg:     "filebackend", test: "TestBlockedWriterJoinsReaders",
	},
	{
		guard: "file: only lock files are replaced", file: "filebackend/watcher_linux.go",
		without: "the last reader of a name makes each process scan all of its locks",
		edits:   []edit{{old: "name != \"\" && !strings", new: "false && !strings"}},
		pkg:     "filebackend", test: "TestReadersCauseNoScans",
	},
	{
		guard: "file: a stopped holder keeps its lock", file: "filebackend/members.go",
		without: "while a holder is stopped, a second one gets the lock",
		edits:   []edit{{old: "isAlive && stat.Size > 0:", new: "isAlive && stat.Size < 0:"}},
		pkg:     "filebackend", test: "TestPlacesOfWaiters",
	},
	{
		guard: "file: a waiter without its file queues again", file: "filebackend/members.go",
		without: "a waiter that was passed gets a permit that other members do not count",
		edits: []edit{{
			old: "	if !current || at < 0 {\n		a.member.close()\n		a.member = nil\n",
			new: "	if !current || at < 0 {\n",
		}},
		pkg: "filebackend", test: "TestWaiterWithoutItsFileQueuesAgain",
	},
	{
		guard: "file: another file is no waiter's", file: "filebackend/members.go",
		without: "a waiter whose file was replaced gets a permit that other members do not count",
		edits:   []edit{{old: "!current || at < 0 {", new: "!current && false || at < 0 {"}},
		pkg:     "filebackend", test: "TestReplacedFileOfAWaiter",
	},
	{
		guard:   "file: a member that has to wait frees the lock file",
		file:    "filebackend/driver.go",
		without: "a mutex that finds members in front of it keeps them from their lock",
		edits: []edit{{
			old: "		a.file.yield() // first, because enter may wait for another process\n",
			new: "",
		}},
		pkg: "filebackend", test: "TestMutexThatWaitsGivesWay",
	},
	{
		guard:   "file: a mutex frees the lock file before it enters",
		file:    "filebackend/driver.go",
		without: "a mutex and a downgrade wait for each other, and the lock is lost",
		edits: []edit{{
			old: "		a.file.yield() // first, because enter may wait for another process\n" +
				"		return d.enter(a, req)\n",
			new: "		err := d.enter(a, req)\n" +
				"		if err != nil {\n			a.file.yield()\n		}\n" +
				"		return err\n",
		}},
		pkg: "filebackend", test: "TestMutexYieldsBeforeItWaits",
	},
	{
		guard: "file: a reader polls an unknown holder less and less", file: "filebackend/wait.go",
		without: "a reader polls every 2 ms for as long as another program has locked the file",
		edits:   []edit{{old: "pauseWoken, pauseMember", new: "pauseWoken, pauseWoken"}},
		pkg:     "filebackend", test: "TestUnknownHolderIsPolledLess",
	},
	{
		guard: "file: the file of a member is checked", file: "filebackend/members.go",
		without: "a reader whose entry was removed holds the lock together with a permit",
		edits:   []edit{{old: "current && a.member != nil {", new: "current && false {"}},
		pkg:     "filebackend", test: "TestRemovedMemberIsLost",
	},
	{
		guard: "file: a stopped process does not stop other processes", file: "filebackend/gate.go",
		without: "a request hangs for as long as another process is stopped",
		edits: []edit{{
			old: "case time.Now().After(end):", new: "case time.Now().IsZero():",
		}},
		pkg: "filebackend", test: "TestStoppedGate",
	},
	{
		guard: "file: a locked directory costs no place", file: "filebackend/driver.go",
		without: "a process that is stopped for a second changes the order of all waiters",
		edits:   []edit{{old: "waited && errors.Is(err, errGate)", new: "waited && false"}},
		pkg:     "filebackend", test: "TestStoppedGateCostsNoPlace",
	},
	{
		guard: "file: a request that fails leaves nothing", file: "filebackend/driver.go",
		without: "requests that were not executed keep their files open for ever",
		edits: []edit{{
			old: "waited && errors.Is(err, errGate)",
			new: "(waited || errors.Is(err, errGate))",
		}},
		pkg: "filebackend", test: "TestStoppedGateCostsNoPlace",
	},
	{
		guard:   "file: an attempt at a locked directory keeps a place",
		file:    "filebackend/members.go",
		without: "waiters are passed because another process was stopped",
		edits: []edit{
			{old: "		a.member.touch() // first: the directory may be locked\n", new: ""},
			{
				old: "	if busy, ok := errors.AsType[*backend.Busy](err); ok && busy.Queued",
				new: "	if err == nil && a.member != nil {\n		a.member.touch()\n	}\n" +
					"	if busy, ok := errors.AsType[*backend.Busy](err); ok && busy.Queued",
			},
		},
		pkg: "filebackend", test: "TestStoppedGateCostsNoPlace",
	},
	{
		guard: "file: Inspect does not wait for a stopped process", file: "filebackend/inspect.go",
		without: "one process that is stopped ends List of all names",
		edits: []edit{{
			old: "		m, err := openMembers(path)\n		if errors.Is",
			new: "		m, err := tryMembers(path)\n		if errors.Is",
		}},
		pkg: "filebackend", test: "TestInspectDuringAStoppedAttempt",
	},
	{
		guard: "file: a member that leaves does not end Inspect", file: "filebackend/inspect.go",
		without: "List ends with an error whenever a reader leaves",
		edits: []edit{{
			old: "if errors.Is(err, unix.ENOENT) {\n		return nil, false, nil",
			new: "if false {\n		return nil, false, nil",
		}},
		pkg: "filebackend", test: "TestInspectOfAChangingLock",
	},
	{
		guard: "file: a child keeps no directory locked", file: "filebackend/gate.go",
		without: "requests wait for a process that is being started",
		edits: []edit{{
			old: "	_ = unix.Flock(int(m.dir.Fd()), unix.LOCK_UN)\n", new: "",
		}},
		pkg: "filebackend", test: "TestClosedGateIsOpenDespiteChildren",
	},
	{
		guard: "file: the last member removes the directory", file: "filebackend/members.go",
		without: "each lock that ever had readers is slow for ever",
		edits: []edit{{
			old: "	_ = unix.Rmdir(filepath.Dir(a.member.path))\n",
			new: "	_ = filepath.Dir(\"\")\n",
		}},
		pkg: "filebackend", test: "TestMembersLeaveNothing",
	},
	{
		guard: "file: a removed directory is made again", file: "filebackend/gate.go",
		without: "a request fails when the last member leaves at the same time",
		edits: []edit{{
			old: "!errors.Is(err, errSetRemoved) ||",
			new: "!errors.Is(err, errSetRemoved) || true ||",
		}},
		pkg: "filebackend", test: "TestRemovedDirectoryIsMadeAgain",
	},
	{
		guard: "file: a downgrade is finished", file: "filebackend/move.go",
		without: "after a Downgrade that failed halfway, the reader excludes readers",
		edits: []edit{{
			old: "	if err := d.becomeReader(m, a, g); err != nil {",
			new: "	if a.place.word == kind.Reader {\n		return nil\n	}\n" +
				"	if err := d.becomeReader(m, a, g); err != nil {",
		}},
		pkg: "filebackend", test: "TestDowngradeIsFinished",
	},
	{
		guard: "file: a failed downgrade leaves no waiter's file", file: "filebackend/move.go",
		without: "a writer loses its lock because waiters take it for a stopped waiter",
		edits:   []edit{{old: "if err != nil && isNew {", new: "if false {"}},
		pkg:     "filebackend", test: "TestDowngradeThatFailsLeavesNoWaiter",
	},
	{
		guard: "file: a failed downgrade leaves the writer", file: "filebackend/move.go",
		without: "a Downgrade that was not executed, as it says, lets readers in",
		edits: []edit{
			{
				old: "	err = a.member.sign(a.id, g.Meta, a.fence)\n",
				new: "	if a.place.word == kind.Writer {\n" +
					"		err = a.rename(m, first)\n	}\n" +
					"	err = a.member.sign(a.id, g.Meta, a.fence)\n",
			},
		},
		pkg: "filebackend", test: "TestDowngradeThatFailsLeavesTheWriter",
	},
	{
		guard:   "file: a waiter that cannot be removed is not passed",
		file:    "filebackend/members.go",
		without: "on a disk with an error, three holders have two permits",
		edits:   []edit{{old: "if isAlive && err != nil &&", new: "if false &&"}},
		pkg:     "filebackend", test: "TestWaiterThatCannotBeRemovedIsNotPassed",
	},
	{
		guard:   "file: a dead member that cannot be removed has left",
		file:    "filebackend/members.go",
		without: "one file that cannot be removed makes a name unusable",
		edits:   []edit{{old: "if isAlive && err != nil &&", new: "if err != nil &&"}},
		pkg:     "filebackend", test: "TestWaiterThatCannotBeRemovedIsNotPassed",
	},
	{
		guard: "file: a downgrade waits for mutexes that give way", file: "filebackend/move.go",
		without: "a writer loses its lock when it becomes a reader",
		edits: []edit{{
			old: "err != nil || time.Now().After(end) {",
			new: "err != nil || true || end.IsZero() {",
		}},
		pkg: "filebackend", test: "TestDowngradeWaitsForMutexes",
	},
	{
		guard: "file: mutexes only on a network file system", file: "filebackend/driver.go",
		without: "on NFS a semaphore has more holders than its limit",
		edits: []edit{{
			old: "case d.network && req.Mode != backend.Exclusive:", new: "case false:",
		}},
		pkg: "filebackend", test: "TestNetworkHasMutexesOnly",
	},
	{
		guard: "file: a directory can be removed while it is read", file: "filebackend/inspect.go",
		without: "List fails because another process has freed a lock",
		edits: []edit{{
			old: "if err := m.read(); errors.Is(err, fs.ErrNotExist) {",
			new: "if err := m.read(); errors.Is(err, fs.ErrExist) {",
		}},
		pkg: "filebackend", test: "TestDirectoryIsRemovedWhileItIsRead",
	},
}
