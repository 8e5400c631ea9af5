package testenv

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"path"
	"strconv"
	"strings"
)

const memcachedPort = 11211

var memcachedSpec = &spec{
	name: "memcached", port: memcachedPort, program: "memcached", pkg: "memcached",
	command: func(l listen, args []string) []string {
		return append([]string{"memcached", "-u", "nobody", "-l", l.host, "-p", strconv.Itoa(l.port)}, args...)
	},
	url:   func(addr string, _ []string) string { return (&url.URL{Scheme: "memcached", Host: addr}).String() },
	probe: func(ctx context.Context, rawURL string) (string, error) { return memcachedVersion(ctx, rawURL, nil) },
}

// Memcached returns the memcached server that all tests of this process share. [Main] stops it.
func Memcached(tb TB) *Server {
	tb.Helper()
	return memcachedSpec.share(tb)
}

// NewMemcached starts a memcached server for this test alone, with further arguments ("-m", "8", "-M"), and removes it
// when the test ends.
func NewMemcached(tb TB, args ...string) *Server {
	tb.Helper()
	return memcachedSpec.own(tb, args)
}

// NewMemcachedTLS starts a memcached server for this test alone that speaks nothing but TLS, and removes it when the test
// ends.
func NewMemcachedTLS(tb TB, server ServerTLS) *Server {
	tb.Helper()
	sp, config := *memcachedSpec, server.probe(tb)
	sp.files = server.files()
	sp.url = func(addr string, _ []string) string { return "memcached://" + addr + "/?tls=1" }
	sp.command = func(l listen, _ []string) []string {
		options := "ssl_chain_cert=" + path.Join(l.dir, certFile) + ",ssl_key=" + path.Join(l.dir, keyFile)
		if server.Clients != nil {
			options += ",ssl_verify_mode=2,ssl_ca_cert=" + path.Join(l.dir, clientsFile)
		}
		return memcachedSpec.command(l, []string{"--enable-ssl", "-o", options})
	}
	sp.probe = func(ctx context.Context, rawURL string) (string, error) { return memcachedVersion(ctx, rawURL, config) }
	return sp.own(tb, nil)
}

// memcachedVersion asks for the version. A server that wants a password first does not tell it, and is ready all the same.
func memcachedVersion(ctx context.Context, rawURL string, config *tls.Config) (string, error) {
	addr, err := address(rawURL, memcachedPort)
	if err != nil {
		return "", err
	}
	conn, err := dial(ctx, addr, config)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := conn.Write([]byte("version\r\n")); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	if version, ok := strings.CutPrefix(line, "VERSION "); ok {
		return "memcached " + version, nil
	}
	if line == "CLIENT_ERROR unauthenticated" {
		return "memcached (with a password)", nil
	}
	return "", errors.New("not a memcached server")
}
