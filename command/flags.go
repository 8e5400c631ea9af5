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
		return errors.New("a duration is written 5, 1.5s or 2m30s")
	}
	*d = durationValue(parsed)
	return nil
}

func (d *durationValue) String() string { return time.Duration(*d).String() }

// Type returns the name that pflag uses for a duration.
func (d *durationValue) Type() string { return "duration" }

// explain returns the error of a flag that cannot be parsed. It suggests the flag
// that was probably meant.
func explain(cmd *cobra.Command, err error) error {
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return usagef("%w", err)
	}
	name, hint := missing.GetSpecifiedName(), "see dlock help "+cmd.Name()
	if like := likelyFlag(cmd.Flags(), name); like != "" {
		hint = "did you mean --" + like + "?"
	} else if cmd.Annotations[startsCommand] != "" {
		hint = "flags of COMMAND stand behind --"
	}
	return usagef("%w: %s", err, hint)
}

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
		return usagef("unknown command with : or @: a URL stands behind --url, or in DLOCK_URL")
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
