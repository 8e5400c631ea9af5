package raw

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
)

const (
	// Login is a user with a wrong password, for a URL. Both contain characters that a URL encodes.
	Login = "u:" + Secret + "%40t%2F@"
	// Secret is the beginning of each wrong password in the URLs of tests. No encoding changes it,
	// and no error may contain it.
	Secret = "s3cr"
)

// Target parses a URL with the function parseTarget of a driver, which must take all parameters.
func Target[T any](tb testenv.TB, parse func(*backend.URL) (T, error), url string) T {
	tb.Helper()
	u, err := backend.ParseURL(url)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	target, err := parse(u)
	if err != nil {
		tb.Fatalf("%s: %v", url, err)
	}
	if unknown := u.Untaken(); len(unknown) > 0 {
		tb.Errorf("%s: parseTarget does not take the parameters %q", url, unknown)
	}
	return target
}

// BadURLs checks that a client refuses each URL before it connects, with an error that contains the
// URL's text in the map and not [Secret].
//
// The context of Open has ended already. So an Open that connects returns another error, and the
// check does not depend on time.
func BadURLs(tb testenv.TB, urls map[string]string) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	cancel()
	for url, want := range urls {
		c, err := dlock.Open(ctx, url)
		if err == nil {
			_ = c.Close()
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, backend.ErrUnavailable) {
			tb.Errorf("%s: Open connects: %v", url, err)
		}
		checkRefusal(tb, url, want, err)
	}
}

// Refused opens a URL with its driver and returns the error. Open must fail within 30 s, with an
// error that contains want and not [Secret].
func Refused(tb testenv.TB, url, want string) error {
	tb.Helper()
	begun := time.Now()
	d, err := testenv.Open(tb.Context(), url)
	if took := time.Since(begun); took > patience {
		tb.Errorf("%s: Open took %v", url, took)
	}
	if err == nil {
		_ = d.Close()
	}
	checkRefusal(tb, url, want, err)
	return err
}

// checkRefusal checks the error of an Open that must fail.
func checkRefusal(tb testenv.TB, url, want string, err error) {
	tb.Helper()
	if err == nil {
		tb.Errorf("%s: opened", url)
		return
	}
	text := fmt.Sprintf("%v %+v", err, err)
	if !strings.Contains(text, want) {
		tb.Errorf("%s: %v, want an error that contains %q", url, err, want)
	}
	if strings.Contains(text, Secret) {
		tb.Errorf("%s: the error contains the password: %v", url, err)
	}
}
