package conformance

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

var secretCases = []Case{
	{
		Name: "SecretsStayOutOfErrors",
		Promise: "No error of Open or of a request contains the URL's password: with a wrong " +
			"password, a closed port, a bad parameter or a dead network.",
		run: secretsStayOutOfErrors,
	},
	{
		Name:    "OpeningAClosedPortIsUnavailable",
		Promise: "Opening a closed port returns ErrUnavailable within 10 s.",
		run:     openingAClosedPortIsUnavailable,
	},
}

// madeUpSecret is a password that no server has. It needs no escape in a URL.
const madeUpSecret = "hunter2-s3cr3t-0f-a-t3st"

// withSecret returns raw with a made-up password.
func (f *fixture) withSecret(raw string) string {
	f.Helper()
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		f.inapplicable("the URL has no host")
	}
	authority, path, _ := strings.Cut(rest, "/")
	user := "user"
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, _, _ = strings.Cut(authority[:at], ":")
		authority = authority[at+1:]
	}
	return scheme + "://" + user + ":" + madeUpSecret + "@" + authority + "/" + path
}

// openURL opens a driver as dlock.Open does.
func (f *fixture) openURL(raw string) (backend.Driver, error) {
	u, err := backend.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	open, err := backend.Lookup(u.Scheme)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(f.ctx, 2*prompt)
	defer cancel()
	return open(ctx, u)
}

// silent checks that the text of err has none of the secrets, also in an escaped form.
func (f *fixture) silent(what string, err error, secrets []string) {
	f.Helper()
	if err == nil {
		return
	}
	for _, secret := range secrets {
		for _, text := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret)} {
			if secret != "" && strings.Contains(err.Error(), text) {
				f.Errorf("%s: the error has the password in its text: %s",
					what, strings.ReplaceAll(err.Error(), text, "<the password>"))
			}
		}
	}
}

// badURLs returns URLs with an error, by a description of the error. Some servers accept a
// wrong password.
func (f *fixture) badURLs(raw string) map[string]string {
	f.Helper()
	u, err := backend.ParseURL(raw)
	if err != nil || len(u.Hosts) == 0 {
		f.inapplicable("the URL has no host")
	}
	secret := f.withSecret(raw)
	join := "?"
	if strings.Contains(raw, "?") {
		join = "&"
	}
	closed := secret
	for i, host := range u.Hosts {
		closed = strings.Replace(closed, host, closedPort(i), 1)
	}
	return map[string]string{
		"a wrong password":          secret,
		"a closed port":             closed,
		"an unknown parameter":      secret + join + "nonsense=" + madeUpSecret,
		"a bad timeout":             secret + join + "timeout=" + madeUpSecret,
		"an unescaped password":     strings.Replace(secret, madeUpSecret, "x/"+madeUpSecret, 1),
		"a password with an escape": strings.Replace(secret, madeUpSecret, madeUpSecret+"%zz", 1),
	}
}

// closedPort returns one of 6 addresses on loopback that refuse connections. No service uses their
// ports, and the system assigns no port below 1024 to another test.
func closedPort(i int) string { return fmt.Sprintf("127.0.0.1:%d", 1+i%6) }

func secretsStayOutOfErrors(f *fixture) {
	able := ability[Addressed](f)
	secrets := []string{madeUpSecret, able.Secret()}
	for what, raw := range f.badURLs(able.URL()) {
		d, err := f.openURL(raw)
		f.silent("Open with "+what, err, secrets)
		if err == nil { // the server does not check passwords
			f.requestsAreSilent(d, secrets)
			_ = d.Close()
		}
	}
	d := f.driver()
	f.requestsAreSilent(d, secrets)
}

// requestsAreSilent sends requests that fail, and cuts the network for them if the Harness can. It
// checks their errors.
func (f *fixture) requestsAreSilent(d backend.Driver, secrets []string) {
	f.Helper()
	if f.faults != nil {
		defer f.faults.Cut(f)()
	}
	ctx, cancel := context.WithTimeout(f.ctx, 100*time.Millisecond)
	defer cancel()
	req := f.try(f.short())
	_, err := d.Acquire(ctx, req)
	f.silent("Acquire", err, secrets)
	_, err = d.Renew(ctx, &backend.Grant{Request: *req})
	f.silent("Renew", err, secrets)
	f.silent("Release", d.Release(ctx, &backend.Grant{Request: *req}), secrets)
	if i, ok := d.(backend.Inspector); ok {
		_, err = i.Inspect(ctx, req.Key)
		f.silent("Inspect", err, secrets)
	}
}

// openBound is the maximum time for which an Opener may wait for servers that do not answer.
const openBound = 10 * time.Second

func openingAClosedPortIsUnavailable(f *fixture) {
	f.noteTerm(openBound)
	bad := f.badURLs(ability[Addressed](f).URL())
	var d backend.Driver
	var err error
	begun := time.Now()
	done := async(func() { d, err = f.openURL(bad["a closed port"]) })
	if !f.within(prompt, "opening a closed port returns", done) {
		return
	}
	f.inTimeOf(openBound, 1, "opening a closed port returns", begun, time.Now())
	if err == nil {
		_ = d.Close()
		f.Fatalf("opening a closed port: nil")
	}
	f.isErr("opening a closed port", err, backend.ErrUnavailable)
}
