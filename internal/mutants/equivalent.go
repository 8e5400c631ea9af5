package main

import "strings"

// equivalent is a family of mutants that no test can tell from the original.
type equivalent struct {
	file     string // ends the mutant's file; "" is any
	operator string // "" is any
	line     string // the line on which the mutant begins contains it
	why      string
}

const oneNanosecond = "a duration of one nanosecond is no bound that anything could keep"

// equivalents are known by their text, so the list survives changes elsewhere in a file.
var equivalents = []equivalent{
	{file: "acquire.sql", operator: "swap operator", line: "token + 0 * LAST_INSERT_ID(", why: "nothing is added or subtracted"},
	{file: "acquire.lua", operator: "one more", line: "0, 0, 'WITHSCORES'", why: "of two entries the script takes the first"},
	{file: "queue.lua", operator: "one more", line: "KEYS[3], 0, 0)[1]", why: "of two entries the script takes the first"},
	{operator: "one more", line: "MaxHold > 0 &&", why: oneNanosecond},
	{file: "options.go", operator: "one more", line: "caps.MaxTTL > 0", why: oneNanosecond},
	{file: "options.go", operator: "one more", line: "limit > 0 &&", why: oneNanosecond},
	{file: "options.go", operator: "one more", line: "s.PollInterval <= 0", why: oneNanosecond},
	{file: "options.go", operator: "always", line: "name, err := os.Hostname(); err == nil", why: "the host of a test has a name"},
	{file: "observe.go", operator: "always", line: "c.logger != nil", why: "the panic of a logger that is nil is contained as any other"},
	{file: "observe.go", operator: "one more", line: "make([]slog.Attr, 0, 4)", why: "a capacity saves an allocation at most"},
	{file: "do.go", operator: "drop operand", line: "ended == nil && errors.Is(unlockErr, ErrLost)", why: "both are the reason of the loss"},
	{file: "mutex.go", operator: "never", line: "len(opts) == 0", why: "without it a mutex has a copy of the client's settings"},
	{operator: "one more", line: "make(chan ", why: "a channel for one value, or for wake-ups that count as one, is never filled further"},
	{
		file: "backend/key/key.go", operator: "one more", line: "b.Grow(",
		why: "a buffer with more room than needed holds the same key after the same one allocation",
	},
	{file: "scheduler.go", operator: "one more", line: "wake, slack = end, 0", why: oneNanosecond},
	{file: "notify.go", operator: "always", line: "e.notes.handles(Ended)", why: "a mutex is locked for a note that nothing handles"},
	{file: "clock.go", line: "if d <= 0 {", why: "a timer for a pause of 0 fires at once"},
	{operator: "swap operator", line: "> minSuspend", why: "a lead of exactly 10 ms, to the nanosecond, may count as a suspend or not"},
}

// reasonOf returns why no test can notice a mutant, "" if a test should.
func reasonOf(c change) string {
	for _, e := range equivalents {
		if strings.HasSuffix(c.file, e.file) && (e.operator == "" || e.operator == c.operator) &&
			strings.Contains(c.source, e.line) {
			return e.why
		}
	}
	return ""
}
