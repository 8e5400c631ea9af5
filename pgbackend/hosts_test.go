package pgbackend

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestSilentHostsArePassed connects outside of the pool while only the last of four hosts answers.
func TestSilentHostsArePassed(t *testing.T) {
	t.Parallel()
	for what, connect := range map[string]func(ctx context.Context, base origin){
		"a session": func(ctx context.Context, base origin) {
			opts := (&Options{Lock: LockSession}).withDefaults()
			_, _ = openSession(ctx, base, opts)
		},
		"the listener": func(ctx context.Context, base origin) {
			l := newListener(base, DefaultTimeout)
			defer l.close()
			_, leave := l.join("key", "owner")
			defer leave()
			_ = l.await(ctx)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				reached := false
				connect(ctx, lastOfFour(t, func(dial context.Context) {
					reached = reached || dial.Err() == nil
					cancel()
				}))
				if !reached {
					t.Error("the last host is not reached")
				}
			})
		})
	}
}

// lastOfFour returns the origin of four hosts. Three do not answer, and the last one calls dialed
// and refuses.
func lastOfFour(t *testing.T, dialed func(context.Context)) origin {
	t.Helper()
	config, err := pgx.ParseConfig("host=192.0.2.1,192.0.2.2,192.0.2.3,192.0.2.4 sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	config.ConnectTimeout = DefaultTimeout
	config.LookupFunc = func(_ context.Context, host string) ([]string, error) {
		return []string{host}, nil
	}
	config.DialFunc = func(ctx context.Context, _, addr string) (net.Conn, error) {
		if host, _, _ := net.SplitHostPort(addr); host == "192.0.2.4" {
			dialed(ctx)
			return nil, errors.New("refused")
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return origin{config: config}
}
