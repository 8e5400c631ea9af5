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

// openBound is how long an opening that fails may take, besides what the machine adds.
const openBound = 10 * time.Second

// Whatever is wrong is told at Open, in time, clearly and without a credential, and leaves nothing on the server.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	root := must[*clientv3.Client](t)(clientv3.New(clientv3.Config{
		Endpoints: []string{s.Addr}, Username: "root", Password: "s3cret", Logger: zap.NewNop(),
	}))
	t.Cleanup(func() { _ = root.Close() })
	must[*clientv3.AuthUserAddResponse](t)(root.UserAdd(t.Context(), "reader", "s3cret"))
	must[*clientv3.AuthRoleAddResponse](t)(root.RoleAdd(t.Context(), "readers"))
	must[*clientv3.AuthRoleGrantPermissionResponse](t)(root.RoleGrantPermission(t.Context(), "readers",
		"/dlock/", clientv3.GetPrefixRangeEnd("/dlock/"), clientv3.PermissionType(clientv3.PermRead)))
	must[*clientv3.AuthUserGrantRoleResponse](t)(root.UserGrantRole(t.Context(), "reader", "readers"))
	deaf := testenv.NewProxy(t, s.Addr)
	deaf.Cut(t)
	meter := lag.Start()
	t.Cleanup(meter.Stop)
	before := contents(t, root)
	t.Run("cases", func(t *testing.T) {
		for name, c := range map[string]struct {
			url, want string
			is        error
		}{
			"wrong password":       {"etcd://locker:s3cret2@" + s.Addr, "authentication failed", dlock.ErrUnavailable},
			"unknown user":         {"etcd://nobody:s3cret@" + s.Addr, "authentication failed", dlock.ErrUnavailable},
			"no user":              {"etcd://" + s.Addr, "user name is empty", dlock.ErrUnavailable},
			"another root":         {"etcd://locker:s3cret@" + s.Addr + "/others", "permission to read and write under /others/", dlock.ErrUnavailable},
			"may only read":        {"etcd://reader:s3cret@" + s.Addr, "permission to read and write under /dlock/", dlock.ErrUnavailable},
			"closed port":          {"etcd://locker:s3cret@127.0.0.1:1", "refused", dlock.ErrUnavailable},
			"no such host":         {"etcd://locker:s3cret@no-such-host.invalid", "no-such-host", dlock.ErrUnavailable},
			"no answer":            {"etcd://" + deaf.Addr(), "", dlock.ErrUnavailable},
			"no answer to a login": {"etcd://locker:s3cret@" + deaf.Addr(), "", dlock.ErrUnavailable},
			"plaintext server":     {"etcds://locker:s3cret@" + s.Addr, "handshake", dlock.ErrUnavailable},
			"TTL below the bound":  {"etcd://locker:s3cret@" + s.Addr + "?ttl=1s", "2s", dlock.ErrUnsupported},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				begun := time.Now()
				client, err := dlock.Open(t.Context(), c.url)
				if took := time.Since(begun) - meter.Worst(begun); took > openBound {
					t.Errorf("it took %v", took)
				}
				if err == nil {
					_ = client.Close()
					t.Fatal("opened")
				}
				raw.WantIs(t, "Open", err, c.is)
				if text := err.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "s3cret") {
					t.Errorf("Open: %v, want %q in it and no password", err, c.want)
				}
			})
		}
	})
	if after := contents(t, root); !slices.Equal(before, after) {
		t.Errorf("on the server there were %q, and are now %q", before, after)
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
