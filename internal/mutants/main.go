// Command mutants removes each guard of the library in turn and runs the test that must detect its
// absence. The tree itself does not change. If no test detects a missing guard, the tests have a
// hole.
//
//	go run ./internal/mutants [-all] [-run REGEXP] [-jobs N]
//	go run ./internal/mutants -random N [-seed S] [-run REGEXP] [-part NAMES] [-jobs N]
//	go run ./internal/mutants -table
//
// With -random it draws random mutants from the code, the scripts and the statements. It runs the
// tests of their part on them and lists the mutants that survive.
//
// Run it from the root of the module. It needs the same servers as the tests. It prints one line
// per mutant and exits with 1 if a mutant survives.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
)

func main() {
	all := flag.Bool("all", false,
		"run the whole suite against each mutant and show every case that fails")
	run := flag.String("run", "", "run only guards or random mutants that match `regexp`")
	asTable := flag.Bool("table", false,
		"write the table of guards into "+document+" and run nothing")
	random := flag.Int("random", 0, "run `n` random mutants of each part instead of the guards")
	seed := flag.Uint64("seed", 1, "the seed for the choice of random mutants")
	only := flag.String("part", "",
		"comma-separated parts to draw from: "+strings.Join(partNames(), ", ")+" (default all)")
	jobs := flag.Int("jobs", 2, "the number of mutants that run at a time")
	flag.Parse()
	if *random > 0 {
		os.Exit(runRandom(*only, regexp.MustCompile(*run), *random, *seed, *jobs))
	}
	if *asTable {
		if err := writeTable(); err != nil {
			fmt.Fprintln(os.Stderr, "mutants:", err)
			os.Exit(2)
		}
		return
	}
	survivors, err := hunt(regexp.MustCompile(*run), *all, max(*jobs, 1))
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		fmt.Fprintf(os.Stderr, "mutants: %d survived\n", survivors)
		os.Exit(1)
	}
}

// runRandom runs random mutants of the parts and returns the exit code.
func runRandom(only string, wanted *regexp.Regexp, n int, seed uint64, jobs int) int {
	chosen, err := chosenParts(only)
	survivors := 0
	for _, p := range chosen {
		var s score
		if s, err = campaign(p, wanted, n, seed, max(jobs, 1)); err != nil {
			break
		}
		survivors += s.survived
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		return 2
	case survivors > 0:
		return 1
	}
	return 0
}
