package testenv

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/url"
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
	probe: memcachedVersion,
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

// memcachedVersion asks for the version. A server that wants a password first does not tell it, and is ready all the same.
func memcachedVersion(ctx context.Context, rawURL string) (string, error) {
	addr, err := address(rawURL, memcachedPort)
	if err != nil {
		return "", err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
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
