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
		guard: "file: Close has a time limit", file: "filebackend/driver.go",
		without: "Close blocks for as long as the disk hangs",
		edits: []edit{{
			old: "case <-time.After(closeTimeout):\n\t\treturn errHangs\n\t",
			new: "",
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
		guard: "file: a reservation is synced before it counts", file: "filebackend/record.go",
		without: "a process that is killed before a power failure sets the fence back",
		edits: []edit{{
			old: "last.reservation && !r.reservation {",
			new: "last.reservation && false {",
		}},
		pkg: "filebackend", test: "TestReservationThatWasNotSynced",
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
		edits:   []edit{{old: "if wasHeld && d.opts.Inherit {", new: "if false {"}},
		pkg:     "filebackend", test: "TestReleaseOfAnInheritedLock",
	},
	{
		guard: "file: a woken waiter retries soon", file: "filebackend/wait.go",
		without: "after kill -9 of the holder a waiter sleeps for up to 3 s",
		edits:   []edit{{old: "(unchanged || holder == nil)", new: "unchanged"}},
		pkg:     "filebackend", test: "TestKillBetweenMarkAndLock",
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
			old: "		if alive {\n			count++",
			new: "		if alive || true {\n			count++",
		}},
		pkg: "filebackend", test: "TestDeadMembersBlockNoOther",
	},
	{
		guard: "file: a dead member is no conflict", file: "filebackend/members.go",
		without: "a name that was once a semaphore is none for ever",
		edits:   []edit{{old: "err != nil || alive {", new: "err != nil || alive || true {"}},
		pkg:     "filebackend", test: "TestDeadMembersBlockNoOther",
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
		guard:   "file: a member that has to wait frees the lock file",
		file:    "filebackend/members.go",
		without: "a mutex that finds members in front of it keeps them from their lock",
		edits:   []edit{{old: "		a.file.yield()\n", new: ""}},
		pkg:     "filebackend", test: "TestMutexThatWaitsGivesWay",
	},
	{
		guard: "file: the file of a member is checked", file: "filebackend/members.go",
		without: "a reader whose entry was removed holds the lock together with a permit",
		edits:   []edit{{old: "current && a.member != nil {", new: "current && false {"}},
		pkg:     "filebackend", test: "TestRemovedMemberIsLost",
	},
	{
		guard: "file: a stopped process does not stop others", file: "filebackend/members.go",
		without: "a request hangs for as long as another process is stopped",
		edits: []edit{{
			old: "maxGate); time.Now().Before(end);", new: "maxGate); !end.IsZero();",
		}},
		pkg: "filebackend", test: "TestStoppedGate",
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
		guard: "file: a downgrade waits for mutexes that give way", file: "filebackend/move.go",
		without: "a writer loses its lock when it becomes a reader",
		edits: []edit{{
			old: "err != nil || time.Now().After(end) {",
			new: "err != nil || true || end.IsZero() {",
		}},
		pkg: "filebackend", test: "TestDowngradeIsSeenByMutexes",
	},
}
