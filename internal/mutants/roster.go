package main

// rosterMutants are the guards of backend/roster.
var rosterMutants = []mutant{
	{
		guard: "roster: a term never shrinks", file: "backend/roster/roster.go",
		without: "a late renewal ends a lock that its holder believes to have",
		edits: []edit{{
			old: "e.Expires = max(e.Expires, now+Micros(ttl))",
			new: "e.Expires = now + Micros(ttl)",
		}},
		pkg: "backend/roster", test: "TestTerms",
	},
	{
		guard: "roster: a waiter that polls keeps its place", file: "backend/roster/roster.go",
		without: "a client that polls rarely loses its place between two polls, and waits for ever",
		edits: []edit{{
			old: "left = min(left, Place(req.TTL)/3)",
			new: "left = min(left, Place(req.TTL)*3)",
		}},
		pkg: "backend/roster", test: "TestPollersKeepTheirPlaces",
	},
	{
		guard: "roster: a waiter is no holder", file: "backend/roster/roster.go",
		without: "an owner renews, downgrades or exports a lock that it does not hold",
		edits:   []edit{{old: "e != nil && e.Granted {", new: "e != nil {"}},
		pkg:     "backend/roster", test: "TestRules",
	},
	{
		guard: "roster: an attempt counts the entries in front", file: "backend/roster/roster.go",
		without: "a waiter waits for those behind it, and so for ever",
		edits:   []edit{{old: "		front = front[:at]\n", new: "		_ = front\n"}},
		pkg:     "backend/roster", test: "TestRules",
	},
	{
		guard: "roster: a break leaves the waiters", file: "backend/roster/roster.go",
		without: "a break of a lock also empties its queue",
		edits:   []edit{{old: "return e.Granted && (owner", new: "return (owner"}},
		pkg:     "backend/roster", test: "TestRules",
	},
	{
		guard: "roster: an adoption needs the secret", file: "backend/roster/roster.go",
		without: "a client that may inspect a lock can take it",
		edits:   []edit{{old: "e.Secret != secret ||", new: "false ||"}},
		pkg:     "backend/roster", test: "TestRules",
	},
	{
		guard: "roster: only an exported grant is adopted", file: "backend/roster/roster.go",
		without: "the empty secret adopts any lock",
		edits:   []edit{{old: "e.Secret == \"\" ||", new: "false ||"}},
		pkg:     "backend/roster", test: "TestRules",
	},
	{
		guard: "roster: the longest term does not wrap", file: "backend/roster/roster.go",
		without: "a lock with the longest TTL is free at once",
		edits:   []edit{{old: "d = min(d, math.MaxInt64-time.Microsecond)", new: "_ = math.Pi"}},
		pkg:     "backend/roster", test: "TestLongestTerm",
	},
	{
		guard: "roster: a place ends soon", file: "backend/roster/roster.go",
		without: "a dead waiter delays all other waiters for its whole TTL",
		edits:   []edit{{old: "return min(ttl, MaxPlace)", new: "return ttl"}},
		pkg:     "backend/roster", test: "TestTerms",
	},
	{
		guard: "roster: a waiter keeps its place", file: "backend/roster/roster.go",
		without: "a waiter goes to the end of the queue every few seconds",
		edits: []edit{{
			old: "		e.Expires = now + place\n", new: "		e.Expires += 0\n",
		}},
		pkg: "backend/roster", test: "TestPlaces",
	},
	{
		guard: "roster: a clock that is set back keeps no place", file: "backend/roster/roster.go",
		without: "a waiter that has died keeps a free lock taken for the time of the step",
		edits: []edit{{
			old: "e.Expires <= now || !e.Granted && e.Expires > latest",
			new: "e.Expires <= now || latest < 0",
		}},
		pkg: "backend/roster", test: "TestClockThatWasSetBack",
	},
	{
		guard: "roster: a reader is no writer any more", file: "backend/roster/roster.go",
		without: "a late request of a downgraded writer is granted next to other readers",
		edits:   []edit{{old: "if front[at].Word != word {", new: "if false {"}},
		pkg:     "backend/roster", test: "TestRules",
	},
}
