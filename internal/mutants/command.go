package main

// The guards of the command.
var commandMutants = []mutant{
	{
		guard: "command: all of the group is ended", file: "command/job_unix.go",
		without: "children of the command outlive a lost lock",
		edits:   []edit{{old: "_ = syscall.Kill(-j.pid, sig) }", new: "_ = syscall.Kill(j.pid, sig) }"}},
		pkg:     "command", test: "TestSignalReachesGroup",
	},
	{
		guard: "command: what has left the group is ended", file: "command/job_unix.go",
		without: "a child in a session of its own outlives a lost lock",
		edits:   []edit{{old: "for _, pid := range j.descendants() {", new: "for _, pid := range j.descendants()[:0] {"}},
		pkg:     "command", test: "TestLossEndsWhatLeftTheGroup",
	},
	{
		guard: "command: orphans are dlock's children", file: "command/job_linux.go",
		without: "what has forked twice outlives a lost lock",
		edits:   []edit{{old: "func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }", new: "func adoptOrphans() {}"}},
		pkg:     "command", test: "TestLossEndsWhatLeftTheGroup",
	},
	{
		guard: "command: nothing is left when the lock is free", file: "command/supervise.go",
		without: "what the command has left behind meets the next holder",
		edits:   []edit{{old: "if s.leave || !s.process.alive() {", new: "if true {"}},
		pkg:     "command", test: "TestCommandLeavesProcesses",
	},
	{
		guard: "command: a job that was stopped is not continued", file: "command/supervise.go",
		without: "a stopped job runs once more when its lease is over",
		edits:   []edit{{old: "if time.Now().Before(killAt) {", new: "if true {"}},
		pkg:     "command", test: "TestSuperviseWakesTooLate",
	},
	{
		guard: "command: the command is in the foreground", file: "command/job_unix.go",
		without: "a command on a terminal believes that it is in the background",
		edits:   []edit{{old: "cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, j.terminal.fd", new: ""}},
		pkg:     "command", test: "TestShells/bash/the_command_is_in_the_foreground",
	},
	{
		guard: "command: the terminal is given back", file: "command/job_unix.go",
		without: "a script cannot read after its dlock",
		edits:   []edit{{old: "\t\tj.terminal.take()\n\t}\n\tj.terminal.close()", new: "\t}\n\tj.terminal.close()"}},
		pkg:     "command", test: "TestShells/bash/a_command_with_a_pipe",
	},
	{
		guard: "command: dlock stops with its command", file: "command/job_unix.go",
		without: "the shell waits for a command that is stopped",
		edits:   []edit{{old: "\t\t_ = syscall.Kill(0, sig)\n\t\t_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)", new: ""}},
		pkg:     "command", test: "TestShells/bash/a_key_stops",
	},
	{
		guard: "command: the terminal follows fg", file: "command/job_unix.go",
		without: "a command that was continued is stopped when it reads",
		edits:   []edit{{old: "\t\tj.terminal.give(j.pid)", new: ""}},
		pkg:     "command", test: "TestShells/bash/a_key_stops",
	},
	{
		guard: "command: an orphaned group is not stopped", file: "command/job_unix.go",
		without: "a key stops a dlock that no shell can continue",
		edits:   []edit{{old: "j.terminal.ours(), isOrphaned():", new: "j.terminal.ours():"}},
		pkg:     "command", test: "TestShells/bash/a_key_stops_nothing",
	},
	{
		guard: "command: a pager has the terminal", file: "command/job_unix.go",
		without: "a pager behind a pipe is stopped for ever",
		edits:   []edit{{old: "\tcase j.terminal.has(j.pid):\n\t\tj.terminal.take()", new: "\tcase j.terminal.has(j.pid):"}},
		pkg:     "command", test: "TestShells/bash/a_pager",
	},
	{
		guard: "command: dlock ends by the command's signal", file: "command/main.go",
		without: "a loop around dlock goes on after Ctrl-C",
		edits:   []edit{{old: "endBySignal(exit.signal, exit.key)", new: ""}},
		pkg:     "command", test: "TestShells/bash/a_key_ends",
	},
	{
		guard: "command: messages hold up nothing", file: "command/notes.go",
		without: "an unread standard error keeps the command after its lock",
		edits:   []edit{{old: "case n.lines <- bytes.Clone(line):\n\tdefault:\n", new: "case n.lines <- bytes.Clone(line):\n"}, {old: "make(chan []byte, maxNotes)", new: "make(chan []byte)"}},
		pkg:     "command", test: "TestBlockedMessagesHoldUpNothing",
	},
	{
		guard: "command: a closed standard error ends nothing", file: "command/notes.go",
		without: "a message to a closed standard error ends dlock",
		edits:   []edit{{old: "signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)", new: "signal.Reset(syscall.SIGPIPE)"}},
		pkg:     "command", test: "TestClosedStandardError",
	},
	{
		guard: "command: a killed dlock takes its job along", file: "command/watchdog_unix.go",
		without: "what the command has started outlives a dlock that was killed",
		edits:   []edit{{old: "\t\t\tif !ok { // dlock was killed\n\t\t\t\tg.end()", new: "\t\t\tif !ok {"}},
		pkg:     "command", test: "TestKilledDlockTakesItsJob",
	},
	{
		guard: "command: a stopped dlock loses its job", file: "command/supervise.go",
		without: "the job of a dlock that is stopped outlives its lease",
		edits:   []edit{{old: "\t\ts.process.until(", new: "\t\tfunc(time.Time) {}("}},
		pkg:     "command", test: "TestStoppedDlockLosesItsJob",
	},
	{
		guard: "command: a nested dlock does not wait", file: "command/holder.go",
		without: "a dlock under its own lock waits for ever",
		edits:   []edit{{old: "if slices.Contains(owners, holder.Owner) {", new: "if false {"}},
		pkg:     "command", test: "TestNestedDlockFails",
	},
	{
		guard: "lock: an error names the cause", file: "internal/engine/contend.go",
		without: "a Lock that ends with its context hides that the server is unreachable",
		edits:   []edit{{old: "} else if errors.Is(failure, backend.ErrUnavailable) {", new: "} else if false {"}},
		pkg:     ".", test: "TestLockSaysWhyTheServerDidNotAnswer",
	},
	{
		guard: "file: a job keeps its lock while it is stopped", file: "command/holder.go",
		without: "a job that was stopped for a TTL is ended, though the kernel kept its lock",
		edits:   []edit{{old: "raw = withParameter(raw, \"endless\", \"1\")", new: ""}},
		pkg:     "command", test: "TestStoppedBeyondTTL",
	},
	{
		guard: "file: no link that others can turn", file: "filebackend/dir.go",
		without: "two processes lock in two directories",
		edits:   []edit{{old: "\tif err := steady(dir, maxLinks); err != nil {\n\t\treturn err\n\t}\n", new: ""}},
		pkg:     "filebackend", test: "TestTurnableLinksAreRefused",
	},
	{
		guard: "memcached: one list of servers", file: "memcachedbackend/driver.go",
		without: "processes with different lists exclude each other for some names only",
		edits:   []edit{{old: "case r.list != d.list:", new: "case false:"}},
		pkg:     "memcachedbackend", test: "TestOtherListOfServers",
	},
}
