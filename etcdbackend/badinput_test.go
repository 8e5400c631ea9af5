package etcdbackend

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// openBound is the maximum duration of an Open that fails, without the lag of the machine.
const openBound = 10 * time.Second

// TestBadInput checks that Open reports bad input in time, clearly and without a credential, and
// leaves nothing on the server.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	root := must[*clientv3.Client](t)(clientv3.New(clientv3.Config{
		Endpoints: []string{s.Addr}, Username: "root", Password: "s3cret", Logger: zap.NewNop(),
	}))
	t.Cleanup(func() { _ = root.Close() })
	deaf := testenv.NewProxy(t, s.Addr)
	deaf.Cut(t)
	meter := lag.Start()
	t.Cleanup(meter.Stop)
	before := contents(t, root)
	as := func(user string) string { return "etcd://" + user + "@" + s.Addr }
	unavailable, unsupported := dlock.ErrUnavailable, dlock.ErrUnsupported
	cases := map[string]struct {
		url, want string
		is        error
	}{
		"wrong password": {as("locker:s3cret2"), "authentication failed", unavailable},
		"unknown user":   {as("nobody:s3cret"), "authentication failed", unavailable},
		"no user":        {"etcd://" + s.Addr, "user name is empty", unavailable},
		"another root": {
			as("locker:s3cret") + "/others",
			"permission to read and write under /others/", unavailable,
		},
		"may only read": {
			as("reader:s3cret"),
			"permission to read and write under /dlock/", unavailable,
		},
		"closed port": {"etcd://locker:s3cret@127.0.0.1:1", "refused", unavailable},
		"no such host": {
			"etcd://locker:s3cret@no-such-host.invalid", "no-such-host", unavailable,
		},
		"no answer":            {"etcd://" + deaf.Addr(), "", unavailable},
		"no answer to a login": {"etcd://locker:s3cret@" + deaf.Addr(), "", unavailable},
		"plaintext server":     {"etcds://locker:s3cret@" + s.Addr, "handshake", unavailable},
		"TTL below the bound":  {as("locker:s3cret") + "?ttl=1s", "2s", unsupported},
	}
	t.Run("cases", func(t *testing.T) {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				begun := time.Now()
				client, err := dlock.Open(t.Context(), c.url)
				if took := time.Since(begun) - meter.Worst(begun); took > openBound {
					t.Errorf("Open took %v", took)
				}
				if err == nil {
					_ = client.Close()
					t.Fatal("Open succeeded")
				}
				raw.WantIs(t, "Open", err, c.is)
				text := err.Error()
				if !strings.Contains(text, c.want) || strings.Contains(text, "s3cret") {
					t.Errorf("Open: %v, want %q in it and no password", err, c.want)
				}
			})
		}
	})
	if after := contents(t, root); !slices.Equal(before, after) {
		t.Errorf("the server had %q before and has %q now", before, after)
	}
}

// contents returns the keys and leases of a server.
func contents(t *testing.T, c *clientv3.Client) []string {
	t.Helper()
	all := keysUnder(t, c, "")
	for _, l := range must[*clientv3.LeaseLeasesResponse](t)(c.Leases(t.Context())).Leases {
		all = append(all, fmt.Sprintf("lease %x", l.ID))
	}
	return all
}
