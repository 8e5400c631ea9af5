package main

// commandMutants are the guards of the command, and some guards of the packages that it uses.
var commandMutants = []mutant{
	{
		guard: "command: --ttl is the TTL of the URL", file: "command/holder.go",
		without: "the session of a killed job outlasts --ttl, and so does its lock",
		edits: []edit{{
			old: "\t\traw = withParameter(raw, \"ttl\", h.flags.ttl.String())\n",
			new: "\t\t_ = 0\n",
		}},
		pkg: "command", test: "TestTTLOfTheFlagReachesTheOpener",
	},
	{
		guard:   "command: the whole process group is signalled",
		file:    "command/internal/guard/job_unix.go",
		without: "children of the command miss the signal, and get SIGKILL later",
		edits: []edit{{
			old: "err := syscall.Kill(-j.pid, sig)",
			new: "err := syscall.Kill(j.pid, sig)",
		}},
		pkg: "command", test: "TestSignalReachesTheGroup",
	},
	{
		guard:   "command: SIGUSR1 is for the command alone",
		file:    "command/internal/guard/job_unix.go",
		without: "the signal ends children of the command that have no handler",
		edits: []edit{{
			old: "\t\t\t_ = syscall.Kill(j.pid, sig)\n",
			new: "\t\t\t_ = syscall.Kill(-j.pid, sig)\n",
		}},
		pkg: "command", test: "TestUserSignalReachesTheCommandAlone",
	},
	{
		guard:   "command: processes that left the group are ended",
		file:    "command/internal/guard/job_unix.go",
		without: "a child in another session outlives a lost lock",
		edits: []edit{{
			old: "\t\t\t_ = process.Signal(sig)\n",
			new: "\t\t\t_, _ = process, sig\n",
		}},
		pkg: "command", test: "TestGuardEndsEverything",
	},
	{
		guard:   "command: no number spares a process that was left",
		file:    "command/internal/guard/job_unix.go",
		without: "a process that gets the number of the ended command is never ended",
		edits:   []edit{{old: "(group != j.pid || j.empty)", new: "group != j.pid"}},
		pkg:     "command", test: "TestNumbersAreUsedAgain",
	},
	{
		guard:   "command: a nested job gets the terminal",
		file:    "command/internal/guard/job_unix.go",
		without: "a job of a dlock under a dlock with a pipe hangs when it reads from the terminal",
		edits:   []edit{{old: "!j.isInFront() && !j.lacksTerminal():", new: "!j.isInFront():"}},
		pkg:     "command", test: "TestShells",
	},
	{
		guard:   "command: a key ends no nested job",
		file:    "command/internal/guard/job_unix.go",
		without: "Ctrl-Z over ssh -t sends SIGHUP to the job of a dlock under a dlock",
		edits: []edit{{
			old: "case orphaned && sig == syscall.SIGSTOP && j.isInFront():", new: "case false:",
		}},
		pkg: "command", test: "TestShells",
	},
	{
		guard:   "command: a key stops no command that stops after its child",
		file:    "command/internal/guard/job_unix.go",
		without: "after Ctrl-Z over ssh -t, runuser under dlock stays stopped",
		edits:   []edit{{old: " || j.isFrontStopped() {", new: " {"}},
		pkg:     "command", test: "TestShells",
	},
	{
		guard:   "command: a key stops no child that stops after its command",
		file:    "command/internal/guard/job_unix.go",
		without: "after Ctrl-Z over ssh -t, a pager under dlock stays stopped",
		edits: []edit{{
			old: "\t\tif sig == syscall.SIGTSTP {\n\t\t\tj.settle()",
			new: "\t\tif false {\n\t\t\tj.settle()",
		}},
		pkg: "command", test: "TestShells",
	},
	{
		guard:   "command: a job that is being ended does not stop dlock",
		file:    "command/internal/guard/job_unix.go",
		without: "Ctrl-Z in the grace of a command that has lost its lock: nothing sends SIGKILL",
		edits:   []edit{{old: "case j.state == jobEnding:", new: "case false:"}},
		pkg:     "command", test: "TestStopOfAnEndingCommand",
	},
	{
		guard:   "command: a job that lends the terminal is no stopped job",
		file:    "command/internal/guard/job_unix.go",
		without: "two processes under a dlock under a dlock read from the terminal, and both hang",
		edits: []edit{{
			old: "	if j.state == jobLending {\n		showAs(askingName)",
			new: "	if false {\n		showAs(askingName)",
		}},
		pkg: "command", test: "TestShells",
	},
	{
		guard:   "command: a stop of a stopped command is for its whole group",
		file:    "command/internal/guard/job_unix.go",
		without: "Ctrl-Z leaves processes of the job running if its first one is stopped already",
		edits: []edit{{
			old: "		j.signalGroup(syscall.SIGTSTP)\n\t\tif was",
			new: "		if !wasStopped {\n\t\t\tj.signalGroup(syscall.SIGTSTP)\n\t\t}\n" +
				"\t\tif was",
		}},
		pkg: "command", test: "TestStopOfAStoppedCommand",
	},
	{
		guard:   "command: dlock stops with a command that is stopped already",
		file:    "command/internal/guard/job_unix.go",
		without: "dlock goes on after Ctrl-Z, and the shell waits",
		edits:   []edit{{old: "		if wasStopped {", new: "		if false && wasStopped {"}},
		pkg:     "command", test: "TestStopOfAStoppedCommand",
	},
	{
		guard:   "command: a killed guard leaves the modes of the terminal",
		file:    "command/internal/guard/guard_unix.go",
		without: "the echo stays off after a password prompt whose guard was killed",
		edits:   []edit{{old: "\t\tt.restore()\n", new: ""}},
		pkg:     "command", test: "TestShells",
	},
	{
		guard:   "command: the guard does not show the command",
		file:    "command/internal/guard/guard_unix.go",
		without: "pkill -9 -f with a word of the job kills its guard, too",
		edits: []edit{{
			old: "\t\tos.Args[0], Name,\n", new: "\t\tstrings.Join(c.Args, \" \"), Name,\n",
		}},
		pkg: "command", test: "TestGuardDoesNotShowTheCommand",
	},
	{
		guard: "command: a signal that ends the job ends a minimum hold", file: "command/holder.go",
		without: "after SIGTERM dlock stays until the end of --min-hold",
		edits: []edit{{
			old: "if h.flags.minHold > 0 && (key", new: "if h.flags.minHold < 0 && (key",
		}},
		pkg: "command", test: "TestMinHoldIsInterrupted",
	},
	{
		guard: "command: a signal counts more than the code of the job", file: "command/run.go",
		without: "a loop around dlock goes on after SIGTERM during --min-hold",
		edits: []edit{{
			old: "return ok && exit.err == nil", new: "return !ok && exit.err == nil",
		}},
		pkg: "command", test: "TestMinHoldIsInterrupted",
	},
	{
		guard: "command: orphans are adopted", file: "command/internal/guard/job_linux.go",
		without: "a process that has forked twice outlives a lost lock",
		edits: []edit{{
			old: "_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, value, 0, 0, 0)",
			new: "_ = unix.PR_SET_CHILD_SUBREAPER; _ = value",
		}},
		pkg: "command", test: "TestLossEndsProcessesOutsideTheGroup",
	},
	{
		guard: "command: no process is left when the lock is free", file: "command/supervise.go",
		without: "processes that the command leaves behind run together with the next holder",
		edits: []edit{{
			old: "if s.leave && !s.process.Abandoned() || !s.process.Alive() {",
			new: "if true {",
		}},
		pkg: "command", test: "TestSuperviseEndsLeftProcesses",
	},
	{
		guard: "command: -o spares no job of a killed guard", file: "command/supervise.go",
		without: "with -o, the processes of a command whose guard was killed run together with " +
			"the next holder",
		edits: []edit{{old: "s.leave && !s.process.Abandoned()", new: "s.leave"}},
		pkg:   "command", test: "TestSuperviseEndsTheJobOfAKilledGuard",
	},
	{
		guard: "command: a kept job is continued", file: "command/supervise.go",
		without: "Ctrl-Z for a TTL, then fg, with --on-lost continue: the command stays stopped",
		edits:   []edit{{old: "case err == nil || s.keep:", new: "case err == nil:"}},
		pkg:     "command", test: "TestSuperviseContinuesAKeptCommand",
	},
	{
		guard: "command: a signal that continues a lost command ends dlock",
		file:  "command/supervise.go",
		without: "kill and fg after a stop for longer than the TTL: dlock elect drops the signal " +
			"and stands again",
		edits: []edit{{
			old: "case slices.Contains(guard.Interrupts, sig):\n\t\t\t\ts.interrupt = sig",
			new: "case false:",
		}},
		pkg: "command", test: "TestSuperviseSignalAfterALoss",
	},
	{
		guard: "command: a stopped job is not continued", file: "command/supervise.go",
		without: "a stopped job runs again after the end of its lease",
		edits:   []edit{{old: "if time.Now().Before(killAt) {", new: "if true {"}},
		pkg:     "command", test: "TestSuperviseWakesTooLate",
	},
	{
		guard:   "command: the command is in the foreground",
		file:    "command/internal/guard/job_unix.go",
		without: "a command on a terminal finds itself in the background",
		edits: []edit{{
			old: "attr.Sys.Foreground, attr.Sys.Ctty = true, j.terminal.fd",
			new: "",
		}},
		pkg: "command", test: "TestShells/bash/the_command_is_in_the_foreground",
	},
	{
		guard: "command: the terminal is given back", file: "command/internal/guard/job_unix.go",
		without: "a script cannot read after its dlock has ended",
		edits: []edit{{
			old: "\t\tj.terminal.take()\n\t}\n\tif j.status",
			new: "\t}\n\tif j.status",
		}},
		pkg:  "command",
		test: "TestShells/bash/a_command_with_a_pipe_on_standard_input_reads_from_the_terminal",
	},
	{
		guard: "command: dlock stops with its command", file: "command/internal/guard/job_unix.go",
		without: "the shell waits for a stopped command",
		edits:   []edit{{old: "\t\tj.signalDlocksGroup(syscall.SIGSTOP)\n", new: ""}},
		pkg:     "command", test: "TestShells/bash/a_key_stops_the_command,_fg_continues_it",
	},
	{
		guard: "command: the terminal follows fg", file: "command/internal/guard/job_unix.go",
		without: "a continued command is stopped when it reads",
		edits:   []edit{{old: "\t\tj.terminal.give(j.pid)", new: ""}},
		pkg:     "command", test: "TestShells/bash/a_key_stops_the_command,_fg_continues_it",
	},
	{
		guard:   "command: an orphaned group is not stopped",
		file:    "command/internal/guard/job_unix.go",
		without: "a key stops a dlock that no shell can continue",
		edits:   []edit{{old: "case sig == syscall.SIGTSTP && orphaned, sig", new: "case sig"}},
		pkg:     "command", test: "TestShells/bash/a_key_stops_nothing_in_an_orphaned_group",
	},
	{
		guard: "command: a pager gets the terminal", file: "command/internal/guard/job_unix.go",
		without: "a pager after a pipe is stopped for ever",
		edits: []edit{{
			old: "\tcase j.isInFront():\n\t\tj.terminal.take()",
			new: "\tcase j.terminal.has(j.pid):",
		}},
		pkg: "command", test: "TestShells/bash/a_pager_takes_the_terminal_from_the_command",
	},
	{
		guard: "command: dlock ends by the command's signal", file: "command/main.go",
		without: "a loop around dlock goes on after Ctrl-C",
		edits:   []edit{{old: "endBySignal(exit.signal, exit.key)", new: ""}},
		pkg:     "command", test: "TestShells/bash/a_key_ends_the_command_and_the_loop_around_it",
	},
	{
		guard: "command: messages block nothing", file: "command/notes.go",
		without: "an unread standard error lets the command run after the end of its lock",
		edits: []edit{
			{
				old: "case n.lines <- bytes.Clone(line):\n\tdefault:\n",
				new: "case n.lines <- bytes.Clone(line):\n",
			},
			{old: "make(chan []byte, maxNotes)", new: "make(chan []byte)"},
		},
		pkg: "command", test: "TestBlockedMessagesDelayNothing",
	},
	{
		guard: "command: a signal between two terms ends dlock elect", file: "command/elect.go",
		without: "a dlock elect that was stopped ignores the signal that should end it",
		edits: []edit{{
			old: "if sig := in.end(); sig != nil && err == nil {",
			new: "if sig := in.end(); false && sig != nil {",
		}},
		pkg: "command", test: "TestSignalAtTheEndOfAPause",
	},
	{
		guard: "command: dlock elect under its own lock fails", file: "command/elect.go",
		without: "a nested dlock elect stands for ever",
		edits:   []edit{{old: "errors.Is(err, errNested) ||", new: ""}},
		pkg:     "command", test: "TestExitCodes",
	},
	{
		guard: "command: a signal ends dlock elect after a loss", file: "command/supervise.go",
		without: "dlock elect --on-lost continue ignores a signal after a loss",
		edits: []edit{{
			old: "case sig := <-s.signals:\n\t\t\ts.forward(sig)\n\t\t}\n\t}\n}",
			new: "case sig := <-s.signals:\n\t\t\ts.process.Forward(sig)\n\t\t}\n\t}\n}",
		}},
		pkg: "command", test: "TestSuperviseKeepsCommandAfterLoss",
	},
	{
		guard: "command: a key ends dlock elect", file: "command/elect.go",
		without: "Ctrl-C and a closed terminal restart the command of dlock elect",
		edits:   []edit{{old: "return exit.key", new: "return false"}},
		pkg:     "command", test: "TestKeyEndsElect",
	},
	{
		guard: "command: break goes on after a holder that has gone", file: "command/break.go",
		without: "readers keep a lock that dlock break had to take from them",
		edits: []edit{{
			old: "\t\treturn false, nil\n\t}\n\tif err == nil {",
			new: "\t\treturn false, err\n\t}\n\tif err == nil {",
		}},
		pkg: "command", test: "TestBreakGoesOnToTheNextHolder",
	},
	{
		guard: "command: an error after the first term may pass", file: "command/elect.go",
		without: "an upgrade of its command ends dlock elect for good",
		edits:   []edit{{old: "err == nil || hasRun || ok", new: "err == nil || ok"}},
		pkg:     "command", test: "TestFinalErrors",
	},
	{
		guard: "command: a machine without free processes may recover", file: "command/elect.go",
		without: "a fork that fails for a moment ends dlock elect for good",
		edits:   []edit{{old: "ok && failed.IsPassing", new: "ok && failed == nil"}},
		pkg:     "command", test: "TestFinalErrors",
	},
	{
		guard: "command: a wrong flag is a usage error", file: "command/holder.go",
		without: "a wrong --meta or --limit exits with 69, as a server that is down does",
		edits:   []edit{{old: "return &exitError{code: exitUsage, err: err}", new: "return err"}},
		pkg:     "command", test: "TestExitCodes",
	},
	{
		guard: "command: a closed standard error ends nothing", file: "command/notes.go",
		without: "a message to a closed standard error ends dlock",
		edits:   []edit{{old: "if !signal.Ignored(syscall.SIGPIPE) {", new: "if false {"}},
		pkg:     "command", test: "TestClosedStandardError",
	},
	{
		guard:   "command: the job of a killed dlock is ended",
		file:    "command/internal/guard/process_unix.go",
		without: "processes that the command has started outlive a killed dlock",
		edits:   []edit{{old: "at once\n\t\t\t\tp.kill()", new: "at once"}},
		pkg:     "command", test: "TestKilledDlockTakesItsJob",
	},
	{
		guard:   "command: no process hides from the guard",
		file:    "command/internal/guard/job_unix.go",
		without: "a process without group, session and environment outlives a killed dlock",
		edits:   []edit{{old: "\tsetAdopting(true)\n\treturn j", new: "\treturn j"}},
		pkg:     "command", test: "TestKilledDlockTakesHiddenProcesses",
	},
	{
		guard:   "command: the job of a stopped dlock is ended",
		file:    "command/internal/guard/process_unix.go",
		without: "the job of a stopped dlock outlives its lease",
		edits: []edit{{
			old: "return p.deadline != 0 && uptime() >= p.deadline-p.lead",
			new: "return false",
		}},
		pkg: "command", test: "TestStoppedDlockLosesItsJob",
	},
	{
		guard:   "command: a large job is ended earlier",
		file:    "command/internal/guard/process_unix.go",
		without: "a job of thousands of processes outlives the lease of a stopped dlock",
		edits: []edit{{
			old: "return p.deadline != 0 && uptime() >= p.deadline-p.lead",
			new: "return p.deadline != 0 && uptime() >= p.deadline",
		}},
		pkg: "command/internal/guard", test: "TestLeadFollowsTheSizeOfTheJob",
	},
	{
		guard:   "command: the guard rehearses the end of the job",
		file:    "command/internal/guard/process_unix.go",
		without: "the guard does not find out how long the end of a large job takes",
		edits:   []edit{{old: "\t\tp.rehearse()\n", new: ""}},
		pkg:     "command/internal/guard", test: "TestLeadFollowsTheSizeOfTheJob",
	},
	{
		guard:   "command: the group stands still while SIGTERM goes out",
		file:    "command/internal/guard/job_unix.go",
		without: "a script begins its next step when a process outside of its group ends",
		edits: []edit{{
			old: "j.signalGroup(syscall.SIGSTOP)\n",
			new: "",
		}},
		pkg: "command/internal/guard", test: "TestStraysAreTerminatedFirst",
	},
	{
		guard:   "command: a process that stops after SIGTERM goes on",
		file:    "command/internal/guard/process_unix.go",
		without: "su stops itself after its child, and has no grace before SIGKILL",
		edits:   []edit{{old: "\t\tp.continueJob()\n", new: ""}},
		pkg:     "command", test: "TestProcessThatStopsLateHasItsGrace",
	},
	{
		guard:   "command: a stop before the command runs stops no fork",
		file:    "command/internal/guard/fork_linux.go",
		without: "Ctrl-Z during the start of the command keeps the lock for ever",
		edits:   []edit{{old: "\t\t\t_ = syscall.Kill(child, syscall.SIGCONT)\n", new: ""}},
		pkg:     "command/internal/guard", test: "TestStopInAFork",
	},
	{
		guard:   "command: one processor watches a fork",
		file:    "command/internal/guard/guard_unix.go",
		without: "on a machine with one processor, Ctrl-Z can keep the lock for ever",
		edits:   []edit{{old: "{\"GOMAXPROCS\", ", new: "{"}},
		pkg:     "command/internal/guard", test: "TestGuardForksWithoutACollection",
	},
	{
		guard:   "command: the fork of the command is watched",
		file:    "command/internal/guard/job_unix.go",
		without: "Ctrl-Z during the start of the command keeps the lock for ever",
		edits: []edit{{
			old: "	wasHalted, err := watchFork(func() (err error) {\n" +
				"		j.pid, err = syscall.ForkExec(path, args, attr)\n" +
				"		return err\n" +
				"	})\n",
			new: "	var wasHalted bool\n	var err error\n" +
				"	j.pid, err = syscall.ForkExec(path, args, attr)\n",
		}},
		pkg: "command/internal/guard", test: "TestStopBeforeTheCommandRuns",
	},
	{
		guard:   "command: a key before the command runs is for the command",
		file:    "command/internal/guard/job_unix.go",
		without: "Ctrl-Z during the start of the command has no effect",
		edits:   []edit{{old: "\tif j.wasHalted {", new: "\tif j.wasHalted && false {"}},
		pkg:     "command/internal/guard", test: "TestStopBeforeTheCommandRuns",
	},
	{
		guard:   "command: a key before a script runs is for its shell",
		file:    "command/internal/guard/job_unix.go",
		without: "Ctrl-Z during the start of a script has no effect",
		edits: []edit{{
			old: "j.wasHalted = j.wasHalted || wasHalted", new: "j.wasHalted = wasHalted",
		}},
		pkg: "command/internal/guard", test: "TestStopBeforeAScriptRuns",
	},
	{
		guard:   "command: a guard forks without a collection of garbage",
		file:    "command/internal/guard/guard_unix.go",
		without: "Ctrl-Z during the start of a command with many words keeps the lock for ever",
		edits:   []edit{{old: "\"GOGC=off\", ", new: ""}},
		pkg:     "command/internal/guard", test: "TestGuardForksWithoutACollection",
	},
	{
		guard:   "command: the limits of the user's memory are not the guard's",
		file:    "command/internal/guard/guard_unix.go",
		without: "a small GOMEMLIMIT keeps the lock for ever after Ctrl-Z",
		edits: []edit{{
			old: ", \"GOMEMLIMIT\"}", new: "}",
		}},
		pkg: "command/internal/guard", test: "TestGuardForksWithoutACollection",
	},
	{
		guard:   "command: the command has its own environment",
		file:    "command/internal/guard/job_unix.go",
		without: "the command collects no garbage, or too much",
		edits:   []edit{{old: "Env: j.command.Env, Files", new: "Env: os.Environ(), Files"}},
		pkg:     "command/internal/guard", test: "TestGuardForksWithoutACollection",
	},
	{
		guard:   "command: no stopped process goes on after the deadline",
		file:    "command/internal/guard/process_unix.go",
		without: "a process that dlock ends runs after its lock",
		edits: []edit{{
			old: "		if p.mustEnd() {\n			return\n		}\n" +
				"		_ = process.Signal(syscall.SIGCONT)",
			new: "		_ = process.Signal(syscall.SIGCONT)",
		}},
		pkg: "command/internal/guard", test: "TestStoppedProcessesRestAfterTheDeadline",
	},
	{
		guard:   "command: no stopped group goes on after the deadline",
		file:    "command/internal/guard/process_unix.go",
		without: "a command that dlock ends runs after its lock",
		edits:   []edit{{old: "	if !p.mustEnd() {", new: "	if p.read(); true {"}},
		pkg:     "command/internal/guard", test: "TestStoppedProcessesRestAfterTheDeadline",
	},
	{
		guard:   "command: no key stops a guard that starts",
		file:    "command/internal/guard/guard_unix.go",
		without: "Ctrl-Z during the start of the guard keeps the lock for ever",
		edits:   []edit{{old: "blocked := blockStops()", new: "blocked := int64(0)"}},
		pkg:     "command/internal/guard", test: "TestStopBeforeTheGuardRuns",
	},
	{
		guard:   "command: the command does not inherit the guard's blocked signals",
		file:    "command/internal/guard/process_unix.go",
		without: "Ctrl-Z has no effect on the command",
		edits:   []edit{{old: "\tunblock(p.blocked)", new: "\t_ = unblock"}},
		pkg:     "command", test: "TestCommandInheritsBlockedSignals",
	},
	{
		guard:   "command: the command inherits dlock's blocked signals",
		file:    "command/internal/guard/fork_linux.go",
		without: "a signal that was blocked at the start of dlock stops the command",
		edits: []edit{{
			old: "stops.Val[0] &^ before.Val[0])", new: "stops.Val[0])",
		}},
		pkg: "command", test: "TestCommandInheritsBlockedSignals",
	},
	{
		guard:   "command: a rehearsal counts the group",
		file:    "command/internal/guard/process_unix.go",
		without: "the walk over a large group delays the end of a job",
		edits: []edit{{
			old: "for process := range handlesOf(func(int) bool { return false }) {",
			new: "for process := range p.job.strays() {",
		}},
		pkg: "command/internal/guard", test: "TestRehearsalCountsTheGroup",
	},
	{
		guard:   "command: each term has its rehearsal",
		file:    "command/internal/guard/process_unix.go",
		without: "with a short TTL, a job with many processes outlives a lost lease",
		edits: []edit{{
			old: "p.term, p.lead, p.rehearsed = max(p.deadline-uptime(), 0), 0, 0",
			new: "p.term, p.lead = max(p.deadline-uptime(), 0), 0",
		}},
		pkg: "command/internal/guard", test: "TestRehearsalCountsTheGroup",
	},
	{
		guard:   "command: the guard rests during a long hold",
		file:    "command/internal/guard/process_unix.go",
		without: "with --max-hold, the guard finds all processes of a job on file: every second",
		edits:   []edit{{old: "min(p.term/8*5, rehearseTime)", new: "p.term / 8 * 5"}},
		pkg:     "command/internal/guard", test: "TestRehearsalsBeginLate",
	},
	{
		guard:   "command: the guard rests while the lease is renewed",
		file:    "command/internal/guard/process_unix.go",
		without: "the guard of a large job looks for its processes every second",
		edits:   []edit{{old: "min(p.term/8*5, rehearseTime)", new: "min(p.term, rehearseTime)"}},
		pkg:     "command/internal/guard", test: "TestRehearsalsBeginLate",
	},
	{
		guard:   "command: a renewal begins a new lead",
		file:    "command/internal/guard/process_unix.go",
		without: "a job that was large once loses half of each later term",
		edits: []edit{{
			old: "p.term, p.lead, p.rehearsed = max(p.deadline-uptime(), 0), 0, 0",
			new: "p.term, p.rehearsed = max(p.deadline-uptime(), 0), 0",
		}},
		pkg: "command/internal/guard", test: "TestLeadFollowsTheSizeOfTheJob",
	},
	{
		guard:   "command: the end of a job takes longer than its rehearsal",
		file:    "command/internal/guard/process_unix.go",
		without: "a job of thousands of processes outlives the lease of a stopped dlock",
		edits:   []edit{{old: "min(leadFactor*walk, term/2)", new: "min(walk, term/2)"}},
		pkg:     "command/internal/guard", test: "TestLeadFor",
	},
	{
		guard:   "command: a large job has half of its term",
		file:    "command/internal/guard/process_unix.go",
		without: "a job of thousands of processes is ended before a renewal is late",
		edits: []edit{{
			old: "{ return min(leadFactor*walk, term/2) }", new: "{ return leadFactor * walk }",
		}},
		pkg: "command/internal/guard", test: "TestLeadFor",
	},
	{
		guard:   "command: a handle is for a child",
		file:    "command/internal/guard/job_unix.go",
		without: "a program that has the number of an ended process of the job is killed",
		edits: []edit{{
			old: "\t\treturn !isGone(parent)\n\t}\n\treturn false\n",
			new: "\t\treturn !isGone(parent)\n\t}\n\treturn true\n",
		}},
		pkg: "command/internal/guard", test: "TestHandlesAreForDescendants",
	},
	{
		guard:   "command: a handle is for no child of a newer process",
		file:    "command/internal/guard/job_unix.go",
		without: "a child of a program that has the number of an ended process is killed",
		edits:   []edit{{old: "return !isGone(parent)", new: "return true"}},
		pkg:     "command/internal/guard", test: "TestHandlesAreForDescendants",
	},
	{
		guard:   "command: a busy guard answers",
		file:    "command/internal/guard/job_unix.go",
		without: "dlock kills its guard while the guard ends thousands of processes",
		edits:   []edit{{old: "\t\t\t\tj.progress(begun)\n", new: "\t\t\t\t_ = begun\n"}},
		pkg:     "command/internal/guard", test: "TestBusyGuardAnswers",
	},
	{
		guard: "command: no command starts late", file: "command/internal/guard/process_unix.go",
		without: "a dlock that was stopped before the start runs its command without the lock",
		edits:   []edit{{old: "\tcase p.isLate():\n", new: "\tcase false:\n"}},
		pkg:     "command", test: "TestGuardStartsNothingLate",
	},
	{
		guard:   "command: orders come before the clock",
		file:    "command/internal/guard/process_unix.go",
		without: "a guard that was stopped kills a job whose lease was renewed",
		edits: []edit{{
			old: "if p.read(); p.isLate() && !p.isKiller {",
			new: "if p.isLate() && !p.isKiller {",
		}},
		pkg: "command/internal/guard", test: "TestOrdersComeBeforeTheClock",
	},
	{
		guard:   "command: the end of a command is one answer",
		file:    "command/internal/guard/process_unix.go",
		without: "dlock ends processes that do not exist, and each run takes longer",
		edits:   []edit{{old: "isLeft := p.job.alive()", new: "isLeft := true"}},
		pkg:     "command", test: "TestGuardAnswersOnce",
	},
	{
		guard:   "command: a child without a signal is a child",
		file:    "command/internal/guard/job_linux.go",
		without: "dlock ends a child from before its start, and never frees the lock",
		edits:   []edit{{old: "const anyChild = unix.WALL", new: "const anyChild = 0"}},
		pkg:     "command/internal/guard", test: "TestSilentChildIsAChild",
	},
	{
		guard:   "command: a guard that does not answer is replaced",
		file:    "command/internal/guard/guard_unix.go",
		without: "a guard that a debugger has stopped keeps the job running after its lease",
		edits: []edit{{
			old: "case calls > takeOverSilent, " +
				"calls > takeOverHalted && isHalted(g.process.Pid):",
			new: "case calls < 0:",
		}},
		pkg: "command", test: "TestDlockTakesOver/traced",
	},
	{
		guard:   "command: no debugger hides the end of a guard",
		file:    "command/internal/guard/guard_unix.go",
		without: "processes outside of the group outlive the lease while a debugger has the guard",
		edits:   []edit{{old: "if g.now() != guardStarts {", new: "if false {"}},
		pkg:     "command", test: "TestDlockTakesOver/traced",
	},
	{
		guard:   "command: SIGTERM reaches processes outside of the group first",
		file:    "command/internal/guard/job_unix.go",
		without: "a process outside of the group often gets SIGKILL without SIGTERM",
		edits: []edit{{
			old: "	j.signalStrays(syscall.SIGTERM, syscall.SIGCONT)\n" +
				"	j.signalGroup(syscall.SIGTERM)\n",
			new: "	j.signalGroup(syscall.SIGTERM)\n" +
				"	j.signalStrays(syscall.SIGTERM, syscall.SIGCONT)\n",
		}},
		pkg: "command/internal/guard", test: "TestStraysAreTerminatedFirst",
	},
	{
		guard: "command: a stopped guard goes on when its dlock is killed",
		file:  "command/internal/guard/guard_unix.go",
		without: "if the guard of a nested dlock is stopped, kill -9 of this dlock leaves " +
			"the job running without its lock",
		edits: []edit{{
			old: "Sys: attributes(syscall.SIGCONT),", new: "Sys: attributes(0),",
		}},
		pkg: "command", test: "TestStoppedGuardOutlivesItsDlock",
	},
	{
		guard:   "command: a stopped guard goes on",
		file:    "command/internal/guard/guard_unix.go",
		without: "kill -STOP of the guard keeps the lock for ever, and the job after a loss",
		edits:   []edit{{old: "\t\t_ = g.process.Signal(syscall.SIGCONT)\n", new: ""}},
		pkg:     "command", test: "TestStoppedGuardGoesOn",
	},
	{
		guard:   "command: a killed guard leaves no process",
		file:    "command/internal/guard/guard_unix.go",
		without: "processes of a killed guard run together with the next holder",
		edits:   []edit{{old: "\t\t\tg.phase = guardLost\n", new: "\t\t\tg.phase = guardGone\n"}},
		pkg:     "command", test: "TestDlockTakesOver/killed",
	},
	{
		guard:   "command: a killed guard leaves no group",
		file:    "command/internal/guard/guard_unix.go",
		without: "on BSD the group of a killed guard runs together with the next holder",
		edits:   []edit{{old: "|| hasGroup ||", new: "|| hasGroup && false ||"}},
		pkg:     "command/internal/guard", test: "TestGroupOfALostGuardIsEnded",
	},
	{
		guard:   "command: an empty group is not signalled",
		file:    "command/internal/guard/job_unix.go",
		without: "the guard ends the group of another program, which has the number now",
		edits: []edit{{
			old: "\thasGroup := j.signalGroup(0)\n\treturn hasGroup || !j.childless\n",
			new: "\treturn !j.childless || j.signalGroup(0)\n",
		}},
		pkg: "command", test: "TestNumbersAreUsedAgain/the_group,_in_the_grace_time",
	},
	{
		guard:   "command: dlock learns that a group is empty",
		file:    "command/internal/guard/process_unix.go",
		without: "dlock ends the group of another program when its guard is killed",
		edits:   []edit{{old: "\t\tp.answer(answerEmpty)\n", new: ""}},
		pkg:     "command", test: "TestNumbersAreUsedAgain/the_group,_of_a_killed_guard",
	},
	{
		guard:   "command: dlock detects that a group is empty",
		file:    "command/internal/guard/guard_unix.go",
		without: "after the loss of its guard, dlock ends the group of another program",
		edits: []edit{
			{
				old: "hasOrphan, hasGroup := g.hasOrphan(), g.signalGroup(0)",
				new: "hasOrphan := g.hasOrphan()",
			},
			{old: "|| hasGroup ||", new: "|| g.signalGroup(0) ||"},
		},
		pkg: "command", test: "TestNumbersAreUsedAgain/the_group,_after_the_guard_was_killed",
	},
	{
		guard:   "command: a number from before the start may be used again",
		file:    "command/internal/guard/guard_unix.go",
		without: "a process of a killed guard runs together with the next holder",
		edits: []edit{{
			old: "p.Pid == pid && !isGone(p)",
			new: "p.Pid == pid",
		}},
		pkg: "command", test: "TestNumbersAreUsedAgain/a_process_from_before_the_start",
	},
	{
		guard:   "command: a command ends with its guard",
		file:    "command/internal/guard/guard_unix.go",
		without: "on BSD a command with -o goes on without its lock when its guard is killed",
		edits:   []edit{{old: "\t\t\t_ = syscall.Kill(g.pid, syscall.SIGKILL)\n", new: ""}},
		pkg:     "command/internal/guard", test: "TestCommandEndsWithItsGuard",
	},
	{
		guard:   "command: a guard has the number of dlock's parent",
		file:    "command/internal/guard/job_unix.go",
		without: "on BSD a key never stops a command",
		edits:   []edit{{old: "\treturn j.parent\n", new: "\treturn 0\n"}},
		pkg:     "command/internal/guard", test: "TestParentOfDlockIsKnown",
	},
	{
		guard:   "command: a signal of the group ends both",
		file:    "command/internal/guard/guard_unix.go",
		without: "a Ctrl-C while dlock starts ends dlock with exit code 137",
		edits: []edit{{
			old: "if g.own.Signaled() && " +
				"slices.Contains(Interrupts, os.Signal(g.own.Signal())) {",
			new: "if false {",
		}},
		pkg: "command/internal/guard", test: "TestGuardEndedBySignalOfTheGroup",
	},
	{
		guard: "command: a request under way is no silent server", file: "command/holder.go",
		without: "a taken lock is sometimes reported as a server that is down",
		edits: []edit{{
			old: "if failed != nil && errors.Is(err, dlock.ErrUncertain) {",
			new: "if _ = failed; errors.Is(err, dlock.ErrUncertain) {",
		}},
		pkg: "command", test: "TestRequestUnderWayIsNoSilentServer",
	},
	{
		guard: "command: the guard is the running program", file: "command/job.go",
		without: "an upgrade of the program leaves dlock without its guard",
		edits: []edit{{
			old: "const program = \"/proc/self/exe\"",
			new: "program, _ := os.Executable()",
		}},
		pkg: "command", test: "TestReplacedProgramHasAGuard",
	},
	{
		guard:   "command: the modes of the terminal are restored",
		file:    "command/internal/guard/job_unix.go",
		without: "a killed editor leaves a terminal without echo",
		edits:   []edit{{old: "\t\tj.terminal.restore()\n", new: ""}},
		pkg:     "command",
		test:    "TestShells/bash/a_killed_command_leaves_the_modes_of_the_terminal_as_they_were",
	},
	{
		guard:   "command: a terminal without a group is taken back",
		file:    "command/internal/guard/job_unix.go",
		without: "a script cannot read after dlock failed to execute its command",
		edits:   []edit{{old: "if j.terminal.isWith(j.pid) {", new: "if j.terminal.has(j.pid) {"}},
		pkg:     "command",
		test: "TestShells/bash/" +
			"after_a_command_that_cannot_be_executed_the_script_reads_from_the_terminal",
	},
	{
		guard:   "command: a script without an interpreter gets the terminal",
		file:    "command/internal/guard/job_unix.go",
		without: "a script that sh runs is stopped when it reads",
		edits: []edit{{
			old: "\t\tj.giveTerminalBack() // otherwise sh",
			new: "\t\t// otherwise sh",
		}},
		pkg:  "command",
		test: "TestShells/bash/a_script_without_an_interpreter_reads_from_the_terminal",
	},
	{
		guard:   "command: a group of ended processes keeps no terminal",
		file:    "command/internal/guard/guard_unix.go",
		without: "after a loss, a script cannot read if the guard of its command was killed",
		edits: []edit{{
			old: "if isJobs || g.pid != 0 && g.pid == front || t.isWith(0) {",
			new: "if isJobs && false || t.isWith(0) {",
		}},
		pkg: "command", test: "TestKilledGuardLeavesTheTerminal",
	},
	{
		guard:   "command: a command that stops itself stops dlock",
		file:    "command/internal/guard/job_unix.go",
		without: "a terminal hangs when its command stops itself",
		edits: []edit{{
			old: "sig == syscall.SIGSTOP && !j.isInFront() && !j.lacksTerminal():",
			new: "sig == syscall.SIGSTOP:",
		}},
		pkg: "command", test: "TestShells/bash/a_command_that_stops_itself",
	},
	{
		guard:   "command: a command that can never get the terminal is hung up",
		file:    "command/internal/guard/job_unix.go",
		without: "a command uses a whole processor to request a terminal that it cannot get",
		edits: []edit{{
			old: "\tcase orphaned:\n\t\tj.hangUp()",
			new: "\tcase orphaned:\n\t\tj.resume()",
		}},
		pkg:  "command",
		test: "TestShells/bash/a_command_that_can_never_have_the_terminal_is_hung_up",
	},
	{
		guard:   "command: a command that can never get the terminal ends",
		file:    "command/internal/guard/job_unix.go",
		without: "nohup dlock run of a command that reads from the terminal keeps the lock",
		edits:   []edit{{old: "\tj.hangUps++\n", new: ""}},
		pkg:     "command",
		test: "TestShells/bash/" +
			"a_command_that_can_never_have_the_terminal_is_ended_if_it_ignores_SIGHUP",
	},
	{
		guard:   "command: a command in the background leaves the terminal alone",
		file:    "command/internal/guard/job_unix.go",
		without: "a script cannot read while its dlock runs in the background",
		edits: []edit{{
			old: " && term.IsTerminal(0) && term.IsTerminal(1)" +
				" &&\n\t\t!signal.Ignored(syscall.SIGINT)",
			new: " && (term.IsTerminal(0) || true)",
		}},
		pkg:  "command",
		test: "TestShells/bash/a_script_reads_while_its_dlock_runs_in_the_background",
	},
	{
		guard:   "command: a key cannot stop an orphaned dlock",
		file:    "command/internal/guard/job_unix.go",
		without: "a key stops a dlock that no shell can continue",
		edits: []edit{{
			old: "if j.terminal == nil || !isOrphaned(j.group, j.parentOf) {",
			new: "if true {",
		}},
		pkg:  "command",
		test: "TestShells/bash/a_key_stops_nothing_in_an_orphaned_group_in_front_of_its_command",
	},
	{
		guard: "command: the first process exits with a code", file: "command/end_unix.go",
		without: "a container always ends with code 2, whatever signal ended it",
		edits:   []edit{{old: "case os.Getpid() == 1, signal.Ignored(sig):", new: "case false:"}},
		pkg:     "command", test: "TestFirstProcessExitsWithTheSignal",
	},
	{
		guard: "command: a signal during --min-hold is not forgotten", file: "command/run.go",
		without: "a loop around dlock goes on after Ctrl-C",
		edits: []edit{{
			old: "if h.interrupt != nil &&\n\t\t(err", new: "if false &&\n\t\t(err",
		}},
		pkg: "command", test: "TestMinHoldIsInterrupted",
	},
	{
		guard:   "command: sh runs a script without an interpreter",
		file:    "command/internal/guard/job_unix.go",
		without: "a script that every shell runs cannot be executed",
		edits:   []edit{{old: "if errors.Is(err, syscall.ENOEXEC) {", new: "if false {"}},
		pkg:     "command", test: "TestExitCodes",
	},
	{
		guard: "command: a TTL above the server's maximum is refused", file: "command/holder.go",
		without: "a lock ends before the --ttl that the user wrote",
		edits: []edit{{
			old: `if h.flags.flags.Changed("ttl") {`, new: `if h.flags.flags.Changed("none") {`,
		}},
		pkg: "command", test: "TestTTLAboveTheServersMost",
	},
	{
		guard: "command: a full disk is no lock of another holder", file: "command/holder.go",
		without: "a script takes a full disk for a lock that is held, and skips its job",
		edits: []edit{{
			old: "if errors.Is(err, dlock.ErrUnavailable) || !isOver &&",
			new: "if !isOver &&",
		}},
		pkg: "command", test: "TestDisk",
	},
	{
		guard: "command: an output replaces the old file when it is complete",
		file:  "command/sources.go", without: "a bench that fails leaves an empty page",
		edits: []edit{
			{old: `filepath.Dir(path), "."+`, new: `filepath.Dir(path), rand.Text()[:0]+`},
			{old: `filepath.Base(path)+"."+rand.Text())`, new: "filepath.Base(path))"},
			{old: "os.O_WRONLY|os.O_CREATE|os.O_EXCL", new: "os.O_WRONLY|os.O_CREATE|os.O_TRUNC"},
		},
		pkg: "command", test: "TestBenchKeepsTheOldPage",
	},
	{
		guard: "command: processes of bench get their URL by the environment",
		file:  "command/bench.go", without: "ps shows the password of a URL",
		edits: []edit{{
			old: `cmd.Env = append(slices.Clone(a.env), "DLOCK_URL="+url)`,
			new: `cmd.Env, cmd.Args = slices.Clone(a.env), append(cmd.Args, "--url", url)`,
		}},
		pkg: "command", test: "TestBenchShowsNoPassword",
	},
	{
		guard: "bench: a percentile has a sample beyond it", file: "bench/result.go",
		without: "a P99.9 of 365 samples is the longest of them",
		edits: []edit{{
			old: "float64(count)*beyond >= 100-1e-6", new: "count > 0",
		}},
		pkg: "bench", test: "TestPercentilesNeedSamples",
	},
	{
		guard: "bench: a phone shows the page at its own width", file: "bench/page.html",
		without: "a phone shows the page of dlock bench at a third of its size",
		edits: []edit{{
			old: "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
			new: "",
		}},
		pkg: "bench", test: "TestHTML",
	},
	{
		guard: "bench: a wide table scrolls alone", file: "bench/page.html",
		without: "a wide table moves the text of the page out of a phone's screen",
		edits:   []edit{{old: ".wide { overflow-x: auto }\n", new: ""}},
		pkg:     "bench", test: "TestHTML",
	},
	{
		guard: "bench: the text of a plot can be read on a phone", file: "bench/plot.go",
		without: "the text of the plots has 6 pixels on a phone",
		edits:   []edit{{old: "plotWidth   = 400", new: "plotWidth   = 640"}},
		pkg:     "bench", test: "TestPlotsOnAPhone",
	},
	{
		guard: "command: the most similar name is suggested", file: "command/flags.go",
		without: "dlock suggests run to a user that meant try",
		edits:   []edit{{old: "likely, nearest = name, d\n", new: "return name\n"}},
		pkg:     "command", test: "TestErrorsShowTheRightForm",
	},
	{
		guard: "command: an unknown command shows no password", file: "command/flags.go",
		without: "a URL in the place of a command shows its password on standard error",
		edits:   []edit{{old: "if strings.ContainsAny(word, \":@\") {", new: "if false {"}},
		pkg:     "command", test: "TestErrorsShowTheRightForm",
	},
	{
		guard: "command: dlock elect names its lock once", file: "command/elect.go",
		without: "each message of dlock elect after a loss has the name of the lock twice",
		edits: []edit{{
			old: "if strings.Contains(text, fmt.Sprintf(\"%q\", name)) ||",
			new: "if false ||",
		}},
		pkg: "command", test: "TestElectNamesTheLockOnce",
	},
	{
		guard: "command: dlock elect names a lock with a long name once", file: "command/elect.go",
		without: "a message of dlock elect about a silent server has a long name twice",
		edits:   []edit{{old: "fmt.Sprintf(\"%.64q\", name)) {", new: "\"\\x00\") {"}},
		pkg:     "command", test: "TestElectNamesTheLockOnce",
	},
	{
		guard: "command: a nested dlock fails at once", file: "command/holder.go",
		without: "a dlock under its own lock waits for ever",
		edits: []edit{{
			old: "return slices.Contains(owners, b.Owner)", new: "return len(owners) == 0",
		}},
		pkg: "command", test: "TestNestedDlockFails",
	},
	{
		guard: "command: a nested reader does not wait", file: "command/holder.go",
		without: "a reader, a writer and a nested reader wait for each other for ever",
		edits: []edit{{
			old: "h.flags.locker(h.client, h.name, h.outer != nil)",
			new: "h.flags.locker(h.client, h.name, false)",
		}},
		pkg: "command", test: "TestNestedReaders",
	},
	{
		guard: "command: a nested dlock needs the answer of Inspect", file: "command/holder.go",
		without: "a nested dlock waits for itself for ever after one failed request",
		edits: []edit{{
			old: "if errors.Is(err, dlock.ErrUnsupported) {\n\t\treturn nil",
			new: "if err != nil {\n\t\treturn nil",
		}},
		pkg: "command", test: "TestNestedNeedsAnAnswer",
	},
	{
		guard: "lock: an error names the cause", file: "internal/engine/contend.go",
		without: "a Lock that ends with its context does not report that the server is unreachable",
		edits: []edit{{
			old: "} else if errors.Is(a.failure, backend.ErrUnavailable) {",
			new: "} else if false {",
		}},
		pkg: ".", test: "TestLockReportsWhyTheServerDidNotAnswer",
	},
	{
		guard: "file: a job keeps its lock while it is stopped", file: "command/holder.go",
		without: "a job that was stopped for a TTL is ended, although the kernel kept its lock",
		edits:   []edit{{old: "raw = withParameter(raw, \"endless\", \"1\")", new: ""}},
		pkg:     "command", test: "TestStoppedBeyondTTL",
	},
	{
		guard: "file: the kernel wakes a waiting dlock", file: "command/holder.go",
		without: "a waiting dlock polls, and the order of arrival is lost",
		edits:   []edit{{old: "raw = withParameter(raw, \"block\", \"1\")", new: ""}},
		pkg:     "command", test: "TestParametersOfFiles",
	},
	{
		guard: "file: a job inherits its lock", file: "command/holder.go",
		without: "if dlock and its guard are killed at once, a process of the job runs " +
			"together with the next holder",
		edits: []edit{{old: "raw = withParameter(raw, \"inherit\", \"1\")", new: ""}},
		pkg:   "command", test: "TestJobInheritsTheLockFile",
	},
	{
		guard: "file: a link that another user can change is refused", file: "filebackend/dir.go",
		without: "two processes lock in two different directories",
		edits: []edit{{
			old: "\tif err := checkPath(dir); err != nil {\n\t\treturn err\n\t}\n",
			new: "",
		}},
		pkg: "filebackend", test: "TestChangeableLinksAreRefused",
	},
	{
		guard:   "memcached: all clients have one list of servers",
		file:    "memcachedbackend/driver.go",
		without: "processes with different lists exclude each other for some names only",
		edits:   []edit{{old: "case r.list != d.list:", new: "case false:"}},
		pkg:     "memcachedbackend", test: "TestOtherListOfServers",
	},
	{
		guard:   "command: SIGKILL is repeated until no process is left",
		file:    "command/supervise.go",
		without: "a process that starts during the killing runs together with the next holder",
		edits: []edit{{
			old: "\treturn s.gone(time.Now().Add(killWait), s.process.Kill)",
			new: "\treturn s.gone(time.Now().Add(killWait), nil)",
		}},
		pkg: "command", test: "TestSuperviseKillsAgain",
	},
	{
		guard: "command: no signal interrupts the killing", file: "command/supervise.go",
		without: "after a second signal, a job outlives its lost lock",
		edits:   []edit{{old: "if again == nil { // else", new: "if true { // else"}},
		pkg:     "command", test: "TestSuperviseIsNotInterruptedWhileItKills",
	},
	{
		guard: "command: a signal ends the wait for a stuck process", file: "command/supervise.go",
		without: "a process that cannot be killed makes dlock ignore Ctrl-C",
		edits: []edit{{
			old: "if slices.Contains(guard.Interrupts, sig) {\n\t\t\t\ts.interrupt",
			new: "if slices.Contains(guard.Interrupts, sig) && s.keep {\n\t\t\t\ts.interrupt",
		}},
		pkg: "command", test: "TestSuperviseKeepsTheLockForStuckProcesses",
	},
	{
		guard: "command: --wait limits connecting", file: "command/holder.go",
		without: "a server that accepts a connection and is silent blocks dlock beyond --wait",
		edits: []edit{{
			old: "if wait := h.flags.wait; wait > 0 {",
			new: "if wait := h.flags.wait; false {",
		}},
		pkg: "command", test: "TestWaitBoundsConnecting",
	},
	{
		guard: "command: a poll has a limit", file: "command/list.go",
		without: "while the server does not answer, ls --watch shows an old table as new",
		edits: []edit{{
			old: "context.WithTimeout(ctx, pollLimit)",
			new: "context.WithTimeout(ctx, time.Hour)",
		}},
		pkg: "command", test: "TestWatchOutlivesAFailedPoll",
	},
	{
		guard: "file: the pauses of long waiters grow", file: "filebackend/wait.go",
		without: "a thousand processes that wait for hours use a whole processor",
		edits:   []edit{{old: "a.pause *= 2", new: "a.pause *= 1"}},
		pkg:     "filebackend", test: "TestLongWaitersRest",
	},
	{
		guard: "file: the checks of waiters get rarer", file: "filebackend/loss.go",
		without: "a thousand dlocks that wait use a sixth of a processor",
		edits:   []edit{{old: "min(2*last, maxPauseBlocked)", new: "checkInterval"}},
		pkg:     "filebackend", test: "TestBlockedWaitersRest",
	},
	{
		guard: "file: a grant ends the rest of the checks", file: "filebackend/loss.go",
		without: "the loss of an endless lock is detected after 4 min",
		edits:   []edit{{old: "case d.sooner <- struct{}{}:", new: "case d.stop <- struct{}{}:"}},
		pkg:     "filebackend", test: "TestBlockedWaitersRest",
	},
	{
		guard: "file: holders are always checked", file: "filebackend/loss.go",
		without: "the loss of an endless lock is detected after 4 min",
		edits:   []edit{{old: "return a.state == queued\n}", new: "return true\n}"}},
		pkg:     "filebackend", test: "TestBlockedWaitersRest",
	},
	{
		guard: "file: endless locks are checked", file: "filebackend/driver.go",
		without: "dlock does not detect that the directory of an endless lock was moved away",
		edits:   []edit{{old: "\t\td.startPeriodicChecks()\n", new: ""}},
		pkg:     "filebackend", test: "TestEndlessIsChecked",
	},
	{
		guard: "file: a blocked waiter does not overtake", file: "filebackend/driver.go",
		without: "waiters of a lock file get it out of order, whenever their timers fire",
		edits:   []edit{{old: "a.member != nil || a.isBlocked() {", new: "a.member != nil {"}},
		pkg:     "filebackend", test: "TestBlockedWaiterDoesNotOvertake",
	},
	{
		guard: "file: a waiter that has left frees a late lock", file: "filebackend/wait.go",
		without: "the thread of a cancelled waiter takes the lock for ever",
		edits: []edit{
			{old: "		_ = unix.Flock(fd, unix.LOCK_UN) // a child", new: "		// a child"},
			{old: "	_ = unix.Close(fd)\n", new: "	_ = fd\n"},
		},
		pkg: "filebackend", test: "TestBlockedWaiters",
	},
	{
		guard: "memcached: a silent server is dead", file: "memcachedbackend/open.go",
		without: "one silent server in a list of several makes every Open fail",
		edits: []edit{{
			old: `[]string{"dial", "write", "read"}`, new: `[]string{"dial"}`,
		}},
		pkg: "memcachedbackend", test: "TestSilentServerOfSeveral",
	},
	{
		guard: "command: a signal before the wait for a minimum hold", file: "command/holder.go",
		without: "dlock ignores a SIGTERM that comes just before it waits for the minimum hold",
		edits: []edit{{
			old: "if h.drain(); h.interrupt != nil || !h.held {", new: "if h.drain(); !h.held {",
		}},
		pkg: "command", test: "TestSignalBeforeTheMinimumHold",
	},
	{
		guard: "command: a signal after the end of the command", file: "command/supervise.go",
		without: "dlock ignores a SIGTERM that comes before it notices the end of its command",
		edits:   []edit{{old: "case isInterrupt && s.process.Ended():", new: "case false:"}},
		pkg:     "command", test: "TestSuperviseSignalAfterTheEnd",
	},
	{
		guard: "command: a dlock that waits ends by its signal", file: "command/main.go",
		without: "a loop around a dlock that waits goes on after Ctrl-C",
		edits:   []edit{{old: "endBySignal(signal.signal, false)", new: "_ = signal"}},
		pkg:     "command",
		test:    "TestShells/bash/a_key_ends_a_wait_for_the_lock_and_the_loop_around_it",
	},
	{
		guard: "command: a wall clock gives a job no time", file: "command/supervise.go",
		without: "a job outlives its lease when the wall clock is set back",
		edits: []edit{{
			old: "time.Until(s.lease.Deadline()) - s.grace",
			new: "time.Until(s.lease.Deadline().Round(0)) - s.grace",
		}},
		pkg: "command", test: "TestSuperviseClockThatIsSet",
	},
	{
		guard: "command: a result that cannot be written is an error", file: "command/list.go",
		without: "a script takes a list that a full disk has cut for the whole list",
		edits: []edit{{
			old: "\treturn table.Flush()",
			new: "\t_ = table.Flush()\n\treturn nil",
		}},
		pkg: "command", test: "TestClosedStandardOutput",
	},
	{
		guard:   "command: a hang-up reaches a job behind a pipe",
		file:    "command/internal/guard/job_unix.go",
		without: "a job goes on with its lock after its terminal went away",
		edits: []edit{{
			old: "sig == syscall.SIGINT\n\t\tj.signalGroup(sig)",
			new: "sig == syscall.SIGINT\n\t\tif sig != syscall.SIGHUP {\n" +
				"\t\t\tj.signalGroup(sig)\n\t\t}",
		}},
		pkg: "command", test: "TestTerminalOfAShellGoesAway/bash/standard_output",
	},
	{
		guard: "command: the error of a value quotes no URL", file: "command/flags.go",
		without: "dlock run -w redis://:secret@host/ writes the password into a log",
		edits:   []edit{{old: "if isURL(err.GetValue()) {", new: "if false {"}},
		pkg:     "command", test: "TestErrorsShowTheRightForm",
	},
	{
		guard: "command: the error of a flag quotes no URL", file: "command/flags.go",
		without: "dlock run -uredis://:secret@host/ writes the password into a log",
		edits:   []edit{{old: "case isURL(err.Error()):", new: "case false:"}},
		pkg:     "command", test: "TestErrorsShowTheRightForm",
	},
	{
		guard: "command: the error of --url-file quotes no URL", file: "command/connect.go",
		without: "dlock run --url-file redis://:secret@host/ writes the password into a log",
		edits:   []edit{{old: "case err != nil && isURL(path):", new: "case false:"}},
		pkg:     "command", test: "TestErrorsShowTheRightForm",
	},
	{
		guard: "command: a terminal may have no size", file: "command/list.go",
		without: "dlock ls --watch shows nothing on a serial line",
		edits:   []edit{{old: "if width <= 0 {", new: "if false {"}},
		pkg:     "command", test: "TestTerminalWithoutASize",
	},
	{
		guard: "command: a terminal may have no rows", file: "command/list.go",
		without: "dlock ls --watch shows one lock on a terminal that reports its columns only",
		edits:   []edit{{old: "if height <= 0 {", new: "if false {"}},
		pkg:     "command", test: "TestTerminalWithoutASize",
	},
	{
		guard: "command: the columns of a terminal without rows count", file: "command/list.go",
		without: "lines of dlock ls --watch wrap on a terminal that reports its columns only",
		edits: []edit{{
			old: "if height <= 0 {\n\t\theight = 24",
			new: "if height <= 0 {\n\t\twidth, height = 80, 24",
		}},
		pkg: "command", test: "TestTerminalWithoutASize",
	},
	{
		guard: "command: a missing interpreter is named", file: "command/internal/guard/guard.go",
		without: "dlock run says that a script is missing that exists",
		edits:   []edit{{old: "ok && exists(executed", new: "ok && !exists(executed"}},
		pkg:     "command", test: "TestNotFoundFreesLock",
	},
	{
		guard:   "command: a missing loader is named",
		file:    "command/internal/guard/guard.go",
		without: "dlock run says that a program names a missing program behind #!",
		edits:   []edit{{old: "err == nil && string(begin) != mark", new: "false"}},
		pkg:     "command", test: "TestMissingLoader",
	},
	{
		guard:   "command: a script has no loader",
		file:    "command/internal/guard/guard.go",
		without: "dlock run says of a script whose interpreter is missing that it needs a loader",
		edits:   []edit{{old: "err == nil && string(begin) != mark", new: "err == nil"}},
		pkg:     "command", test: "TestNotFoundFreesLock",
	},
	{
		guard: "command: a password is no name", file: "command/password.go",
		without: "dlock status redis://:secret@host/ sends the password to another server",
		edits: []edit{{
			old: "strings.Contains(word, \"@\") && urlWithUser().MatchString(word)", new: "false",
		}},
		pkg: "command", test: "TestErrorsShowTheRightForm",
	},
	{
		guard: "command: a word without a slash is a good name", file: "command/password.go",
		without: "dlock status redis:flush:alice@web1 cannot show a lock that exists",
		edits: []edit{{
			old: "`/+[^\\s/:@[]+:",
			new: "`/*[^\\s/:@[]+:",
		}},
		pkg: "command", test: "TestNameMayBeAURL",
	},
	{
		guard: "command: a URL has no space", file: "command/password.go",
		without: "dlock run --meta refuses a text with an address",
		edits: []edit{{
			old: "([^\\s/@0-9][^\\s@]*)?@`",
			new: "([^/@0-9][^@]*)?@`",
		}},
		pkg: "command", test: "TestNameMayBeAURL",
	},
	{
		guard: "command: a URL of file: has no user", file: "command/password.go",
		without: "dlock status file:/backup:root@db1 cannot show a lock that exists",
		edits: []edit{{
			old: "scheme == \"file\" || ",
			new: "",
		}},
		pkg: "command", test: "TestNameMayBeAURL",
	},
	{
		guard: "command: a URL is no prefix of ls", file: "command/list.go",
		without: "dlock ls redis://:secret@host/ sends the password to another server",
		edits: []edit{{
			old: "checkWord(\"PREFIX\", args[0])",
			new: "error(nil)",
		}},
		pkg: "command", test: "TestErrorsShowTheRightForm",
	},
	{
		guard: "command: no message shows a password", file: "command/root.go",
		without: "dlock break redis:u:secret@host writes the password into a log",
		edits: []edit{{
			old: "redactor{a.messages}",
			new: "a.messages",
		}},
		pkg: "command", test: "TestNoMessageShowsAMisplacedPassword",
	},
	{
		guard: "command: --verbose shows no password", file: "command/connect.go",
		without: "dlock run -v redis:u:secret@host writes the password into a log",
		edits: []edit{{
			old: "redactor{a.messages}",
			new: "a.messages",
		}},
		pkg: "command", test: "TestVerboseShowsNoPassword",
	},
	{
		guard: "command: ls --watch shows no password", file: "command/list.go",
		without: "the error above the table of ls --watch shows a password",
		edits: []edit{{
			old: "redact(message(old))",
			new: "message(old)",
		}},
		pkg: "command", test: "TestWatchShowsNoPassword",
	},
	{
		guard: "command: errors quote no part of a password", file: "command/password.go",
		without: "dlock verify --run redis://u:[secret@host writes the password into a log",
		edits: []edit{{
			old: "if isURL(value) {",
			new: "if false {",
		}},
		pkg: "command", test: "TestNoMessageShowsAMisplacedPassword",
	},
	{
		guard: "command: the error of a command quotes no URL", file: "command/password.go",
		without: "dlock run x -- redis://u:secret writes the password into a log",
		edits: []edit{{
			old: "if isURL(word) {",
			new: "if false {",
		}},
		pkg: "command", test: "TestNoMessageShowsAMisplacedPassword",
	},
	{
		guard: "command: a URL without a host and slashes is a URL", file: "command/password.go",
		without: "dlock run -w redis:u:secret writes the password into a log",
		edits: []edit{{
			old: "serverScheme().MatchString(text)",
			new: "false",
		}},
		pkg: "command", test: "TestNoMessageShowsAMisplacedPassword",
	},
	{
		guard: "command: dlock completion quotes no URL", file: "command/root.go",
		without: "dlock completion bash redis:u:secret writes the password into a log",
		edits: []edit{{
			old: "		shell.Args = exactly()",
			new: "		_ = shell",
		}},
		pkg: "command", test: "TestNoMessageShowsAMisplacedPassword",
	},
	{
		guard: "command: a key stops dlock without a job", file: "command/holder.go",
		without: "after its first job Ctrl-Z does not stop dlock, and a message burns a processor",
		edits: []edit{{
			old: "\tdefer h.stopper.resume() // after", new: "\t// after",
		}},
		pkg: "command", test: "TestKeyStopsElect",
	},
	{
		guard: "command: a late SIGTTOU stops nothing", file: "command/stop_unix.go",
		without: "after fg, dlock elect stops again",
		edits:   []edit{{old: "return !guard.IsForeground()", new: "return true"}},
		pkg:     "command", test: "TestLateSignalStopsNoElect",
	},
	{
		guard:   "command: without a job, an orphaned group is not stopped",
		file:    "command/stop_unix.go",
		without: "Ctrl-Z over ssh -t stops dlock elect for ever",
		edits:   []edit{{old: "return !guard.IsOrphaned()", new: "return true"}},
		pkg:     "command", test: "TestKeyStopsNoOrphan",
	},
	{
		guard: "command: the guard decides about the stop of a job", file: "command/stop_unix.go",
		without: "a message in a second term of dlock elect stops dlock and not its job",
		edits:   []edit{{old: "!s.hasJob.Load() && ", new: ""}},
		pkg:     "command", test: "TestLateSignalStopsNoElect",
	},
	{
		guard: "command: the error of a silent server names --wait", file: "command/holder.go",
		without: "dlock run -w 1 fails with: context canceled",
		edits:   []edit{{old: "|| !hasEnd ||", new: "|| hasEnd ||"}},
		pkg:     "command", test: "TestWaitBoundsConnecting",
	},
	{
		guard: "command: --wait is no cause of a wrong URL", file: "command/holder.go",
		without: "dlock run -w with a wrong URL says that the lock was not acquired in time",
		edits: []edit{{
			old: "if hasCode || exitCode(err) != exitUnavailable ||", new: "if hasCode ||",
		}},
		pkg: "command", test: "TestWaitIsNoCauseOfAWrongURL",
	},
	{
		guard: "command: messages of the start delay nothing", file: "command/run.go",
		without: "without a URL, a job does not run if nothing reads its standard error",
		edits:   []edit{{old: "defer a.takeNotes()()", new: ""}},
		pkg:     "command", test: "TestUnreadStandardErrorWithoutURL",
	},
	{
		guard: "command: a candidate whose messages nothing reads stands again",
		file:  "command/run.go", without: "no leader arises any more",
		edits: []edit{{old: "defer a.takeNotes()()", new: ""}},
		pkg:   "command", test: "TestElectOutlivesUnreadStandardError",
	},
	{
		guard: "command: elect reports the loss after a signal", file: "command/elect.go",
		without: "a candidate disappears, and its lost lock is not mentioned",
		edits: []edit{{
			old: "if errors.Is(err, dlock.ErrLost) { // or because of the loss, later",
			new: "if false {",
		}},
		pkg: "command", test: "TestElectReportsTheLossAfterASignal",
	},
	{
		guard: "command: a loss during a minimum hold is reported", file: "command/holder.go",
		without: "a job that must run once runs twice, without a message",
		edits:   []edit{{old: "case <-h.lease.Lost():", new: "case <-(chan struct{})(nil):"}},
		pkg:     "command", test: "TestLossDuringAMinimumHoldIsReported",
	},
	{
		guard: "command: a failed start is reported at once", file: "command/holder.go",
		without: "the reason appears after the minimum hold, or never",
		edits: []edit{{
			old: "\tif h.isKept {\n\t\th.say", new: "\tif false {\n\t\th.say",
		}},
		pkg: "command", test: "TestFailedStartIsReportedAtOnce",
	},
	{
		guard: "command: reading the URL ends with a signal", file: "command/connect.go",
		without: "Ctrl-C has no effect while a pipe or a network file system is silent",
		edits: []edit{{
			old: "text, err := backend.Call(ctx, func",
			new: "text, err := backend.Call(context.Background(), func",
		}},
		pkg: "command", test: "TestSignalWhileReadingTheURL",
	},
	{
		guard: "command: a damaged record hides no lock", file: "command/wire.go",
		without: "ls --json ends at a record with a year that JSON cannot show",
		edits:   []edit{{old: "Since: shownTime(h.Since)", new: "Since: h.Since.UTC()"}},
		pkg:     "command", test: "TestStrangeYearsAreShown",
	},
	{
		guard: "command: a script is no option of sh", file: "command/internal/guard/job_unix.go",
		without: "another file is executed than the one that was found",
		edits: []edit{{
			old: "if strings.HasPrefix(path, \"-\") {",
			new: "if strings.HasPrefix(path, \"-\") && false {",
		}},
		pkg: "command", test: "TestCommandIsFoundAsByShells",
	},
}
