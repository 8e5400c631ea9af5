package recipe

import (
	"bufio"
	"context"
	"errors"
	"path"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/internal/testenv/pki"
	"github.com/dlock-go/dlock/internal/testenv/runner"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// Memcached returns the recipe of a memcached server with further arguments.
func Memcached(args ...string) *server.Recipe {
	return &server.Recipe{
		Spec: runner.Spec{
			Name: "memcached", Port: 11211, Program: "memcached", Package: "memcached",
			Command: memcachedCommand, Args: args,
		},
		URL:   "memcached://ADDRESS",
		Probe: memcachedVersion,
	}
}

// MemcachedTLS returns the recipe of a memcached server that accepts only TLS.
func MemcachedTLS(s pki.ServerTLS) *server.Recipe {
	r := Memcached()
	r.URL, r.TLS = "memcached://ADDRESS/?tls=1", &s
	r.Command = func(l runner.Listen) []string {
		options := "ssl_chain_cert=" + path.Join(l.Dir, pki.CertFile) +
			",ssl_key=" + path.Join(l.Dir, pki.KeyFile)
		if s.Clients != nil {
			options += ",ssl_verify_mode=2,ssl_ca_cert=" + path.Join(l.Dir, pki.ClientsFile)
		}
		return append(memcachedCommand(l), "--enable-ssl", "-o", options)
	}
	return r
}

func memcachedCommand(l runner.Listen) []string {
	return []string{"memcached", "-u", "nobody", "-l", l.Host, "-p", strconv.Itoa(l.Port)}
}

// memcachedVersion returns the server's version. A server that requires a password does not report
// its version, but is ready.
func memcachedVersion(ctx context.Context, t server.Target) (string, error) {
	line, err := t.Request(ctx, "version\r\n", func(r *bufio.Reader) (string, error) {
		return r.ReadString('\n')
	})
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
