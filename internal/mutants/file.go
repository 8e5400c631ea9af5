package main

// The guards of filebackend.
var fileMutants = []mutant{
	{
		guard: "file: a foreign file is a conflict", file: "filebackend/record.go",
		without: "the file of another program is overwritten",
		edits:   []edit{{old: "if c.latest == nil && !unfinished(file) || len(file) > fileSize {", new: "if len(file) > fileSize {"}},
		pkg:     "filebackend", test: "TestConformance/ForeignValueIsAConflict",
	},
}
