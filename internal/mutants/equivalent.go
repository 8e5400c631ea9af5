package main

import "strings"

// equivalent is a family of mutants that no test can distinguish from the original.
type equivalent struct {
	file     string // a suffix of the mutant's file; "" is any file
	operator string // "" is any operator
	line     string // a part of the line on which the mutant begins
	why      string
}

const oneNanosecond = "a limit of one nanosecond cannot be kept"

// equivalents are identified by their text, so that changes elsewhere in a file do not matter.
var equivalents = []equivalent{
	{
		file: "acquire.sql", operator: "swap operator", line: "token + 0 * LAST_INSERT_ID(",
		why: "nothing is added or subtracted",
	},
	{
		file: "acquire.lua", operator: "one more", line: "0, 0, 'WITHSCORES'",
		why: "the script uses only the first of two entries",
	},
	{
		file: "queue.lua", operator: "one more", line: "KEYS[3], 0, 0)[1]",
		why: "the script uses only the first of two entries",
	},
	{operator: "one more", line: "MaxHold > 0 &&", why: oneNanosecond},
	{file: "options.go", operator: "one more", line: "caps.MaxTTL > 0", why: oneNanosecond},
	{file: "options.go", operator: "one more", line: "limit > 0 &&", why: oneNanosecond},
	{file: "options.go", operator: "one more", line: "s.PollInterval <= 0", why: oneNanosecond},
	{
		file: "options.go", operator: "always", line: "name, err := os.Hostname(); err == nil",
		why: "the host of a test has a name",
	},
	{
		file: "observe.go", operator: "always", line: "c.logger != nil",
		why: "the panic of a nil logger is contained like any other panic",
	},
	{
		file: "observe.go", operator: "one more", line: "make([]slog.Attr, 0, 4)",
		why: "a capacity can only save an allocation",
	},
	{
		file: "do.go", operator: "drop operand",
		line: "ended == nil && errors.Is(unlockErr, ErrLost)",
		why:  "both errors are the reason of the loss",
	},
	{
		file: "mutex.go", operator: "never", line: "len(opts) == 0",
		why: "the mutex then has an equal copy of the client's settings",
	},
	{
		operator: "one more", line: "make(chan ",
		why: "a channel for one value, or for wake-ups that are merged, never has a second element",
	},
	{
		file: "backend/key/key.go", operator: "one more", line: "b.Grow(",
		why: "a larger buffer holds the same key after the same single allocation",
	},
	{file: "scheduler.go", operator: "one more", line: "wake, slack = end, 0", why: oneNanosecond},
	{
		file: "notify.go", operator: "always", line: "e.notes.handles(Ended)",
		why: "the only effect is a locked mutex for a note without a handler",
	},
	{file: "clock.go", line: "if d <= 0 {", why: "a timer for a pause of 0 fires at once"},
	{
		operator: "swap operator", line: "> minSuspend",
		why: "a lead of exactly 10 ms, to the nanosecond, may count as a suspend or not",
	},
}

// reasonOf returns the reason if no test can detect a mutant, and "" if a test should detect it.
func reasonOf(c change) string {
	for _, e := range equivalents {
		if strings.HasSuffix(c.file, e.file) && (e.operator == "" || e.operator == c.operator) &&
			strings.Contains(c.source, e.line) {
			return e.why
		}
	}
	return ""
}
