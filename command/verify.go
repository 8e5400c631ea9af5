package command

import (
	"context"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/conformance"
)

const (
	// maxPrefix is the maximum length of a prefix in bytes. It leaves room for the longest names.
	maxPrefix = 100
	// sweepTimeout limits the removal of leftover locks.
	sweepTimeout = 10 * time.Second
)

type verifyFlags struct {
	sources
	pattern, prefix string
	parallel        int
	faults, json    bool
}

func newVerify(a *app) *cobra.Command {
	f := &verifyFlags{}
	cmd := &cobra.Command{
		Use:   "verify [flags] URL…",
		Short: "Run the conformance suite against your own server",
		Long: `Checks the promises of dlock on the server of each URL, or of DLOCK_URL. It prints
one line per promise; for a broken promise it adds the failures. All locks have
their own prefix, and nothing else is touched. Cases that would stop the server do
not run. The server keeps what it keeps of every lock: on some servers the counters
of fences, for a day or two.

An observation that fails while this machine or the server stood still, for more
than a tenth of a term in use, is void: the case repeats it with longer terms,
five times at most. The last line counts such observations; a second holder is
never void. So a slow or distant server raises no false alarm.

A case is several clients, each with its own connections: by default some 80 at
a time. --parallel 1 is gentler to a server that other programs use, and takes
longer.

The exit code is 1 if a promise is broken, 64 for a bad URL, and 69 if a server
cannot be reached. The other URLs are verified in any case.`,
		DisableFlagsInUseLine: true,
		Args:                  cobra.ArbitraryArgs,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return f.run(ctx, a, args)
		}),
	}
	flags := cmd.Flags()
	f.register(flags)
	flags.StringVar(&f.pattern, "run", "", "run the cases whose names match `REGEXP`")
	flags.Var((*textValue)(&f.prefix), "prefix",
		"put all locks under `PREFIX`, where there must be none yet "+
			"(default dlock-verify/ and a random word)")
	flags.IntVar(&f.parallel, "parallel", 8, "run `N` cases at a time")
	flags.BoolVar(&f.faults, "faults", false,
		"also lose replies and cut the network, by a proxy in this process")
	flags.BoolVar(&f.json, "json", false, "one JSON object per case")
	return cmd
}

func (f *verifyFlags) run(ctx context.Context, a *app, urls []string) error {
	urls, err := f.all(ctx, a, "verify", urls)
	switch {
	case err != nil:
		return err
	case f.parallel < 1:
		return usagef("--parallel %d: it must be 1 or more", f.parallel)
	case len(f.prefix) > maxPrefix:
		return usagef("--prefix has %d bytes, more than %d", len(f.prefix), maxPrefix)
	}
	cases, err := f.cases()
	if err != nil {
		return err
	}
	r := newReport(a, f.json)
	var unverified error // the first error of a URL
	for i, url := range urls {
		if err := f.verify(ctx, r, url, cases); err != nil && ctx.Err() == nil {
			a.say("%s: %s", urlName(url, i), message(err))
			if unverified == nil {
				unverified = &exitError{code: exitCode(err)} // the message is already written
			}
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r.err != nil:
		return r.err
	case r.broken > 0:
		return &exitError{code: exitNo}
	}
	return unverified
}

// cases returns the cases that --run chooses.
func (f *verifyFlags) cases() ([]conformance.Case, error) {
	chosen, err := regexp.Compile(f.pattern)
	if err != nil {
		return nil, unquoted("--run", f.pattern, usagef("--run: %w", err))
	}
	cases := slices.DeleteFunc(conformance.Cases(), func(c conformance.Case) bool {
		return !chosen.MatchString(c.Name)
	})
	if len(cases) == 0 {
		err := usagef("--run %q: no case has such a name", f.pattern)
		return nil, unquoted("--run", f.pattern, err)
	}
	return cases, nil
}

// verify runs the cases against one server. Its error concerns the URL, not a promise.
func (f *verifyFlags) verify(
	ctx context.Context, r *report, url string, cases []conformance.Case,
) error {
	s, err := newServer(url, f.prefix, f.faults)
	if err != nil {
		return err
	}
	client, err := dlock.Open(ctx, withParameter(url, "prefix", s.prefix))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := refuseForeign(ctx, client, s.prefix); err != nil {
		return err
	}
	defer sweep(ctx, client)
	r.begin(s, len(cases))
	defer r.end()
	f.runAll(cases, func(c conformance.Case) { check(ctx, r, s, c) })
	return nil
}

// runAll calls run for each case, f.parallel of them at a time, and returns when all have ended.
func (f *verifyFlags) runAll(cases []conformance.Case, run func(conformance.Case)) {
	var running sync.WaitGroup
	places := make(chan struct{}, f.parallel)
	for _, c := range cases {
		places <- struct{}{}
		running.Go(func() {
			run(c)
			<-places
		})
	}
	running.Wait()
}

// check runs one case, or skips it, and reports the finding.
func check(ctx context.Context, r *report, s *server, c conformance.Case) {
	begun := time.Now()
	found := &finding{
		URL: s.name, Case: c.Name, Promise: c.Promise, Outcome: skipped, Void: []string{},
	}
	if reason := s.skips(c); reason != "" {
		found.Seen = []string{reason}
	} else if ctx.Err() == nil {
		r.started(c.Name)
		t := try(ctx, c, s.harness)
		found.Outcome, found.Seen = t.outcome()
		found.Void = t.voids()
	}
	// An interrupted case proves nothing about its promise.
	if ctx.Err() != nil && found.Outcome != passed {
		found.Outcome, found.Seen = skipped, []string{"interrupted"}
	}
	found.Duration = time.Since(begun).Milliseconds()
	r.add(found)
}

// refuseForeign returns an error if there are already locks under the prefix of client. If the
// backend cannot list locks, only the random word of the prefix keeps them apart.
func refuseForeign(ctx context.Context, client *dlock.Client, prefix string) error {
	if !client.Capabilities().List {
		return nil
	}
	for info, err := range client.List(ctx, "") {
		if err != nil {
			return err
		}
		return usagef("the prefix %q has a lock already, %q: choose another prefix",
			prefix, prefix+info.Key)
	}
	return nil
}

// sweep breaks the locks that failed or interrupted cases have left. If the backend cannot list or
// break locks, they expire.
func sweep(ctx context.Context, client *dlock.Client) {
	if caps := client.Capabilities(); !caps.List || !caps.Break {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTimeout)
	defer cancel()
	left, _ := sorted(client.List(ctx, ""))
	for _, info := range left {
		for _, holder := range info.Holders {
			_ = client.Break(ctx, info.Key, holder.Owner)
		}
	}
}
