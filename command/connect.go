package command

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/filebackend"
)

// connection has the flags that name a backend.
type connection struct {
	url, urlFile string
	prefix       string
	verbose      bool
	flags        *pflag.FlagSet
}

func (c *connection) register(flags *pflag.FlagSet) {
	c.flags = flags
	flags.StringVar(&c.url, "url", "", "backend `URL`, such as redis://host or file:/dir; "+
		"it shows in ps: put a password into DLOCK_URL or --url-file")
	flags.StringVar(&c.urlFile, "url-file", "", "read the backend URL from `FILE`")
	flags.Var((*textValue)(&c.prefix), "prefix",
		"put `PREFIX` before every name; it replaces the URL parameter prefix")
	flags.BoolVarP(&c.verbose, "verbose", "v", false, "show on standard error what happens")
}

// locate returns the URL of the backend. The URL comes from --url or --url-file, else from
// DLOCK_URL, else it is the default. locate reports the default on standard error.
func (c *connection) locate(ctx context.Context, a *app) (raw string, err error) {
	byFlag, byFile := c.flags.Changed("url"), c.flags.Changed("url-file")
	switch {
	case byFlag && byFile:
		return "", usagef("--url and --url-file exclude each other")
	case byFlag && c.url == "":
		return "", usagef("--url is empty") // an unset variable must not mean the default
	case byFlag:
		raw = c.url
	case byFile:
		raw, err = readURL(ctx, c.urlFile)
	default:
		raw = a.getenv("DLOCK_URL")
	}
	if raw == "" && err == nil {
		raw, err = defaultURL(a)
	}
	if err == nil && c.prefix != "" {
		raw = withParameter(raw, "prefix", c.prefix)
	}
	return raw, err
}

// readURL reads a URL from a file. It ends with ctx, because the writer of a pipe may never come.
// Its error does not quote a URL in the place of the file.
func readURL(ctx context.Context, path string) (string, error) {
	text, err := backend.Call(ctx, func(context.Context) ([]byte, error) {
		return os.ReadFile(path)
	})
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil && isURL(path):
		return "", usagef("--url-file takes a file, not a URL: %s", urlPlace)
	case err != nil:
		return "", usagef("--url-file: %w", err)
	}
	raw := strings.TrimSpace(string(text))
	if raw == "" {
		return "", usagef("--url-file: %s is empty", path)
	}
	return raw, nil
}

func defaultURL(a *app) (string, error) {
	dir, err := filebackend.DefaultDir()
	if err != nil {
		return "", usagef("no --url, no DLOCK_URL, and no default: %w", err)
	}
	a.say("no --url and no DLOCK_URL: the lock is a file in %s, "+
		"local to this user and this machine", dir)
	return "file:", nil
}

// withParameter sets one parameter of a URL, and replaces its old values.
func withParameter(raw, name, value string) string {
	base, query, _ := strings.Cut(raw, "?")
	var pairs []string
	for pair := range strings.SplitSeq(query, "&") {
		if pair != "" && !strings.HasPrefix(pair, name+"=") {
			pairs = append(pairs, pair)
		}
	}
	// As in a path, a space is %20, because "+" is a plus sign.
	pairs = append(pairs, name+"="+strings.ReplaceAll(url.QueryEscape(value), "+", "%20"))
	return base + "?" + strings.Join(pairs, "&")
}

// ttlOf returns the TTL that a URL sets, else fallback.
func ttlOf(raw string, fallback time.Duration) (time.Duration, error) {
	u, err := backend.ParseURL(raw)
	if err != nil {
		return 0, err
	}
	err = u.TakeDuration("ttl", &fallback)
	return fallback, err
}

// open connects to the backend that the flags name.
func (c *connection) open(ctx context.Context, a *app) (*dlock.Client, error) {
	raw, err := c.locate(ctx, a)
	if err != nil {
		return nil, err
	}
	return c.dial(ctx, a, raw)
}

// dial connects to the backend of raw. The library limits the time of the
// connection and of each request.
func (c *connection) dial(
	ctx context.Context, a *app, raw string, opts ...dlock.Option,
) (*dlock.Client, error) {
	if strings.HasPrefix(raw, "mem:") {
		return nil, usagef("mem: is a lock inside one process: a command needs a server, or file:")
	}
	if c.verbose {
		opts = append(opts, dlock.WithLogger(a.logger()))
	}
	return dlock.Open(ctx, raw, opts...)
}

// logger returns the logger of --verbose.
func (a *app) logger() *slog.Logger {
	all := &slog.HandlerOptions{Level: slog.LevelDebug}
	return slog.New(slog.NewTextHandler(redactor{a.messages}, all))
}
