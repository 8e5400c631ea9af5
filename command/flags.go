package command

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// durationValue is the value of a flag: seconds as in flock(1), or a number with a unit.
type durationValue time.Duration

// addDuration adds a flag whose value is a duration.
func addDuration(
	flags *pflag.FlagSet, p *time.Duration, name, short string, value time.Duration, usage string,
) {
	*p = value
	flags.VarP((*durationValue)(p), name, short, usage)
	if value == 0 {
		flags.Lookup(name).DefValue = "" // the usage text says what the default is
	}
}

func (d *durationValue) Set(text string) error {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if math.IsNaN(seconds) || math.Abs(seconds) >= math.MaxInt64/float64(time.Second) {
			return errors.New("the duration is out of range")
		}
		*d = durationValue(seconds * float64(time.Second))
		return nil
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("a duration is written 5, 1.5s or 2m30s, and at most 2562047h")
	}
	*d = durationValue(parsed)
	return nil
}

func (d *durationValue) String() string { return time.Duration(*d).String() }

// Type returns the name that pflag uses for a duration.
func (d *durationValue) Type() string { return "duration" }

// explain returns the error of a flag that cannot be parsed. It suggests the flag that was probably
// meant. It does not quote a word that may be a URL with a password.
func explain(cmd *cobra.Command, err error) error {
	invalid, isInvalid := errors.AsType[*pflag.InvalidValueError](err)
	missing, isMissing := errors.AsType[*pflag.NotExistError](err)
	switch {
	case isInvalid:
		return invalidValue(invalid)
	case isURL(err.Error()): // err quotes the flag
		return usagef("a flag looks like a URL: %s", urlPlace)
	case !isMissing:
		return usagef("%w", err)
	}
	return usagef("%w: %s", err, flagHint(cmd, missing.GetSpecifiedName()))
}

// invalidValue returns the error of a flag with a wrong value. It names the flag as the help does.
func invalidValue(err *pflag.InvalidValueError) error {
	flag := err.GetFlag()
	name := "--" + flag.Name
	if flag.Shorthand != "" {
		name = "-" + flag.Shorthand + ", " + name
	}
	if isURL(err.GetValue()) {
		return usagef("the value of %s looks like a URL: %s", name, urlPlace)
	}
	if number, ok := errors.AsType[*strconv.NumError](err); ok {
		wants := map[string]string{"int": "a number", "bool": "true or false"}[flag.Value.Type()]
		if errors.Is(number, strconv.ErrRange) {
			wants = "a smaller number"
		}
		return usagef("invalid argument %q for %s: it must be %s", err.GetValue(), name, wants)
	}
	return usagef("%w", err)
}

// flagHint returns what the user of an unknown flag may have meant.
func flagHint(cmd *cobra.Command, name string) string {
	isLock := cmd.Annotations[startsCommand] != ""
	if hint := flockHints[name]; hint != "" && isLock {
		return hint
	}
	if like := likelyFlag(cmd.Flags(), name); like != "" {
		return "did you mean --" + like + "?"
	}
	if isLock {
		return "flags of COMMAND stand behind --"
	}
	return "see dlock help " + cmd.Name()
}

// flockHints are the hints for the flags of flock(1) that dlock does not have.
var flockHints = map[string]string{
	"x": exclusiveHint, "e": exclusiveHint, "exclusive": exclusiveHint,
	"s": "dlock run --shared holds NAME together with other readers",
	"u": unlockHint, "unlock": unlockHint,
	"n": tryHint, "nb": tryHint, "nonblock": tryHint, "nonblocking": tryHint,
	"w": waitHint, "wait": waitHint, "timeout": waitHint,
	"c": shellHint, "command": shellHint,
}

const (
	exclusiveHint = "a lock is exclusive without a flag"
	unlockHint    = "dlock frees the lock when COMMAND has ended"
	tryHint       = "dlock try, or dlock run -n, does not wait"
	waitHint      = "dlock run -w waits for a limited time"
	shellHint     = "write -- sh -c 'COMMAND'"
)

// startsCommand is an annotation of subcommands whose command line ends with -- COMMAND.
const startsCommand = "starts a command"

// likelyFlag returns the flag that name probably means, or "".
func likelyFlag(flags *pflag.FlagSet, name string) string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return mostSimilar(names, name)
}

// mostSimilar returns the first name that begins with word, else the name that is most
// similar to word, or "" if none is similar. A single letter resembles nothing.
func mostSimilar(names []string, word string) (likely string) {
	nearest := min(3, len(word))
	for _, name := range names {
		d := distance(name, word)
		if len(word) > 1 && strings.HasPrefix(name, word) {
			d = 0
		}
		if d < nearest {
			likely, nearest = name, d
		}
	}
	return likely
}

// distance returns how many letters must be changed, added or removed to turn
// a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// unknownCommand returns the error of a word that is no command. It suggests the command that was
// probably meant. It does not quote a word that may be a URL with a password.
func unknownCommand(root *cobra.Command, word string) error {
	if strings.ContainsAny(word, ":@") {
		return usagef("unknown command with : or @: %s", urlPlace)
	}
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := "see dlock help"
	if like := mostSimilar(names, word); like != "" {
		hint = fmt.Sprintf("did you mean %s?", like)
	}
	return usagef("unknown command %q: %s", word, hint)
}

// newHelp returns the help command. Unlike cobra's, it fails for a word that is no command.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		ValidArgsFunction: func(
			_ *cobra.Command, args []string, _ string,
		) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			for _, c := range root.Commands() {
				if len(args) == 0 && c.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(root, args[len(args)-max(len(rest), 1)])
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}
