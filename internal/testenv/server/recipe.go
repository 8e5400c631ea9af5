package server

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/internal/testenv/pki"
	"github.com/dlock-go/dlock/internal/testenv/runner"
)

// SourceURL is the source of a server that was given by URL. The other sources are the kinds of
// [runner.Source].
const SourceURL = "url"

// Recipe describes one kind of server. A Recipe does not change after its first use.
type Recipe struct {
	runner.Spec

	// URL is the URL of the server for dlock.Open, with the word ADDRESS in the place of the
	// server's address.
	URL string
	// Probe requests product and version from the server, over the server's protocol. An error
	// means that the server is not ready.
	Probe func(ctx context.Context, t Target) (version string, err error)
	// TLS is the configuration of a server with a certificate; nil: the server has no TLS.
	TLS *pki.ServerTLS
	// Start starts several servers that act as one server. If it is nil, Launch starts one server.
	Start func(r *Recipe) (*Instance, error)
}

// URLVariable returns the environment variable with the URL of a server of that kind.
func URLVariable(name string) string {
	return "DLOCK_TEST_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_URL"
}

// URLVariable returns the environment variable with the URL of such a server.
func (r *Recipe) URLVariable() string { return URLVariable(r.Name) }

// URLOf returns the URL of a server that listens at addr. Of several servers, addr has all
// addresses, separated by commas.
func (r *Recipe) URLOf(addr string) string { return strings.Replace(r.URL, "ADDRESS", addr, 1) }

// Find returns the image or the program of the server. The error describes why there is none, with
// instructions.
func (r *Recipe) Find() (runner.Source, error) {
	source, err := runner.Find(&r.Spec)
	if err != nil {
		err = r.notFound(err)
	}
	return source, err
}

func (r *Recipe) notFound(err error) error {
	return fmt.Errorf(`no %[1]s server for the tests:
  %[2]s is not set
  %[3]w
set %[2]s, or start Docker and run scripts/images.sh %[1]s, or install the package %[4]s;
DLOCK_TEST_ALLOW_SKIP=1 skips the tests that need it`, r.Name, r.URLVariable(), err, r.Package)
}

// given returns the server whose URL is in the environment, or nil.
func (r *Recipe) given() (*Instance, error) {
	raw := os.Getenv(r.URLVariable())
	if raw == "" {
		return nil, nil
	}
	addr, err := address(raw, r.Port)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.URLVariable(), err)
	}
	i := r.At(r.Name, addr, SourceURL)
	i.URL = raw
	i.Version, err = i.Await(GivenTimeout)
	return i, err
}

// address returns the first host of a URL with its port.
func address(raw string, defaultPort int) (string, error) {
	_, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return "", errors.New("not a URL")
	}
	authority, _, _ := strings.Cut(rest, "/")
	hosts := authority[strings.LastIndexByte(authority, '@')+1:]
	first, _, _ := strings.Cut(hosts, ",")
	host, port, err := net.SplitHostPort(first)
	if err != nil {
		host, port = strings.Trim(first, "[]"), ""
	}
	return net.JoinHostPort(host, cmp.Or(port, strconv.Itoa(defaultPort))), nil
}

// Target is what a probe needs to reach a server.
type Target struct {
	URL  string
	Addr string      // host:port of the first server in URL
	TLS  *tls.Config // nil: the server has no TLS
}

// Request sends text over a new connection and returns what read returns. The connection ends with
// the deadline of ctx.
func (t Target) Request(
	ctx context.Context, text string, read func(*bufio.Reader) (string, error),
) (string, error) {
	conn, err := t.dial(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	return read(bufio.NewReader(conn))
}

// dial connects, with TLS if there is a configuration.
func (t Target) dial(ctx context.Context) (net.Conn, error) {
	if t.TLS == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", t.Addr)
	}
	return (&tls.Dialer{Config: t.TLS}).DialContext(ctx, "tcp", t.Addr)
}
