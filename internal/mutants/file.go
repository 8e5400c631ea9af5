package main

// The guards of filebackend.
var fileMutants = []mutant{
	{
		guard: "file: a foreign file is a conflict", file: "filebackend/record.go",
		without: "the file of another program is overwritten",
		edits:   []edit{{old: "if c.latest == nil && !unfinished(file) || len(file) > fileSize {", new: "if len(file) > fileSize {"}},
		pkg:     "filebackend", test: "TestConformance/ForeignValueIsAConflict",
	},
	{
		guard: "file: Close waits for no disk", file: "filebackend/driver.go",
		without: "Close waits for as long as the disk hangs",
		edits:   []edit{{old: "case <-time.After(closeTimeout):\n\t\treturn errHangs\n\t", new: ""}},
		pkg:     "filebackend", test: "TestDiskThatHangs",
	},
	{
		guard: "file: Close waits for a slow disk", file: "filebackend/driver.go",
		without: "Close returns an error where the disk is slow",
		edits:   []edit{{old: "closeTimeout = 4 * time.Second", new: "closeTimeout = 0"}},
		pkg:     "filebackend", test: "TestCloseWaitsForASlowDisk",
	},
	{
		guard: "file: events wait for no disk", file: "filebackend/driver.go",
		without: "one attempt that hangs holds up the events of all locks",
		edits:   []edit{{old: "go d.recheck(e)", new: "d.recheck(e)"}},
		pkg:     "filebackend", test: "TestDiskThatHangs",
	},
	{
		guard: "file: a reservation is synced before it counts", file: "filebackend/record.go",
		without: "a killed process and a power cut set the fence back",
		edits:   []edit{{old: "last.reservation && !r.reservation {", new: "last.reservation && false {"}},
		pkg:     "filebackend", test: "TestReservationThatWasNotSynced",
	},
	{
		guard: "file: a sweep leaves another's file", file: "filebackend/sweep.go",
		without: "a sweep takes a held lock away",
		edits:   []edit{{old: "err == nil && current {", new: "err == nil && (current || true) {"}},
		pkg:     "filebackend", test: "TestSweepLeavesWhatIsAnothers",
	},
}
