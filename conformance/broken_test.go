package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/conformance/broken"
	"github.com/dlock-go/dlock/internal/memnet"
)

// TestNoticesBugs runs each case of the table with a broken driver, and fails if the case passes.
func TestNoticesBugs(t *testing.T) {
	broken.Test(t, func(
		t conformance.TB, wrap func(backend.Driver) backend.Driver,
	) conformance.Harness {
		h := memnet.New(t)
		h.Wrap = wrap
		return h
	})
}

// TestEachCaseHasABug prints the table of cases and bugs. It fails for a case that has neither a
// bug in the table nor a reason to have none.
func TestEachCaseHasABug(t *testing.T) {
	t.Parallel()
	bugs := map[string][]string{}
	used := map[string]bool{}
	for _, row := range broken.Table() {
		bugs[row.Case] = append(bugs[row.Case], row.Bug.Name)
		used[row.Bug.Name] = true
	}
	unbroken := broken.Unbroken()
	var table strings.Builder
	for _, c := range conformance.Cases() {
		reason, excused := unbroken[c.Name]
		fmt.Fprintf(&table, "\n%-42s %s%s", c.Name, strings.Join(bugs[c.Name], " "), reason)
		if excused == (len(bugs[c.Name]) > 0) {
			t.Errorf("case %s has %d bugs in the table, and its reason to have none is %q: "+
				"add a row to conformance/broken/table.go", c.Name, len(bugs[c.Name]), reason)
		}
		delete(bugs, c.Name)
		delete(unbroken, c.Name)
	}
	for name := range bugs {
		t.Errorf("there is no case %s", name)
	}
	for name := range unbroken {
		t.Errorf("there is no case %s", name)
	}
	for _, bug := range broken.Bugs() {
		if !used[bug.Name] {
			t.Errorf("no case of the table detects the bug %s", bug.Name)
		}
	}
	t.Logf("%s", table.String())
}

// opening is a Harness with an opener that fails or discloses the password.
type opening struct {
	*memnet.Harness
	url string
}

func (o opening) URL() string    { return o.url }
func (o opening) Secret() string { return "pa55w0rd" }

func (o opening) Driver(ctx context.Context) (backend.Driver, error) {
	if cut := o.url == ""; cut {
		return nil, errors.New("the network is dead")
	}
	return o.Harness.Driver(ctx)
}

// TestNoticesABrokenOpener checks the cases that fail before a driver is open.
func TestNoticesABrokenOpener(t *testing.T) {
	t.Parallel()
	backend.Register("leaky", func(_ context.Context, u *backend.URL) (backend.Driver, error) {
		return nil, fmt.Errorf("no server for %s with %s", u.User, u.Password)
	})
	for name, url := range map[string]string{
		"SecretsStayOutOfErrors":          "leaky://user:pa55w0rd@127.0.0.1:1/x",
		"OpeningAClosedPortIsUnavailable": "leaky://user:pa55w0rd@127.0.0.1:1/x",
		"OpeningReturnsFromABlackHole":    "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken.MustNotice(t, name, func(t conformance.TB) conformance.Harness {
				return opening{memnet.New(t), url}
			})
		})
	}
}

// disclosing is a driver whose errors of one method have the password in their text.
type disclosing struct {
	backend.Driver
	backend.Inspector
	method string
}

func (d disclosing) disclose(method string, err error) error {
	if err == nil || d.method != method {
		return err
	}
	return fmt.Errorf("as user:pa55w0rd: %w", err)
}

func (d disclosing) Acquire(
	ctx context.Context, req *backend.Request,
) (*backend.Grant, error) {
	g, err := d.Driver.Acquire(ctx, req)
	return g, d.disclose("Acquire", err)
}

func (d disclosing) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	term, err := d.Driver.Renew(ctx, g)
	return term, d.disclose("Renew", err)
}

func (d disclosing) Release(ctx context.Context, g *backend.Grant) error {
	return d.disclose("Release", d.Driver.Release(ctx, g))
}

func (d disclosing) Inspect(ctx context.Context, key string) (*backend.Info, error) {
	info, err := d.Inspector.Inspect(ctx, key)
	return info, d.disclose("Inspect", err)
}

// TestNoticesRequestsThatDisclose checks that the case of the passwords notices each request whose
// error has the password, although no error of Open has it.
func TestNoticesRequestsThatDisclose(t *testing.T) {
	t.Parallel()
	backend.Register("discreet", func(context.Context, *backend.URL) (backend.Driver, error) {
		return nil, backend.ErrUnavailable
	})
	for _, method := range []string{"Acquire", "Renew", "Release", "Inspect"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			mk := func(t conformance.TB) conformance.Harness {
				h := memnet.New(t)
				h.Wrap = func(d backend.Driver) backend.Driver {
					return disclosing{d, d.(backend.Inspector), method}
				}
				return opening{h, "discreet://user:pa55w0rd@127.0.0.1:1/x"}
			}
			broken.MustNotice(t, "SecretsStayOutOfErrors", mk)
		})
	}
}
