package etcdbackend

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// newGuarded starts a server on which the user locker may use only the keys under /dlock/, and the
// user reader may only read them.
func newGuarded(tb testing.TB, args ...string) *testenv.Server {
	tb.Helper()
	s := testenv.NewEtcd(tb, args...)
	ctx, c := tb.Context(), admin(tb, s)
	for user, role := range map[string]string{
		"root": "root", "locker": "locks", "reader": "readers",
	} {
		must[*clientv3.AuthRoleAddResponse](tb)(c.RoleAdd(ctx, role))
		must[*clientv3.AuthUserAddResponse](tb)(c.UserAdd(ctx, user, "s3cret"))
		must[*clientv3.AuthUserGrantRoleResponse](tb)(c.UserGrantRole(ctx, user, role))
	}
	for role, permission := range map[string]clientv3.PermissionType{
		"locks":   clientv3.PermissionType(clientv3.PermReadWrite),
		"readers": clientv3.PermissionType(clientv3.PermRead),
	} {
		must[*clientv3.AuthRoleGrantPermissionResponse](tb)(c.RoleGrantPermission(ctx,
			role, "/dlock/", clientv3.GetPrefixRangeEnd("/dlock/"), permission))
	}
	must[*clientv3.AuthEnableResponse](tb)(c.AuthEnable(ctx))
	return s
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	for raw, want := range map[string]error{
		"etcd://locker:s3cret@" + s.Addr:             nil,
		"etcd://locker:s3cret2@" + s.Addr:            rpctypes.ErrAuthFailed,
		"etcd://nobody:s3cret@" + s.Addr:             rpctypes.ErrAuthFailed,
		"etcd://" + s.Addr:                           rpctypes.ErrUserEmpty,
		"etcd://locker:s3cret@" + s.Addr + "/others": rpctypes.ErrPermissionDenied,
	} {
		d, err := testenv.Open(t.Context(), raw)
		if !errors.Is(err, want) || err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("open %s: %v, want %v", raw, err, want)
		}
		if d != nil {
			if err := d.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	}
	url := "etcd://locker:s3cret@" + s.Addr
	visitAll(t, openURL(t, url), openURL(t, url))
}

// visitAll makes each kind of request once. The server must permit all of them.
func visitAll(t *testing.T, d, other *driver) {
	t.Helper()
	req := newRequest(t)
	lost := lossOf(req)
	g := raw.Acquire(t, d, req)
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	waiter := newRequest(t)
	granted := waiting(t, other, waiter, raw.Busy(t, other, waiter))
	info, err := d.Inspect(t.Context(), req.Key)
	if err != nil || len(info.Holders) != 1 || info.Waiters != 1 {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	for _, err := range d.List(t.Context(), "") {
		if err != nil {
			t.Errorf("List: %v", err)
		}
	}
	if err := other.Break(t.Context(), req.Key, ""); err != nil {
		t.Errorf("Break: %v", err)
	}
	raw.WantIs(t, "Lost", await(t, "Lost", lost), backend.ErrLost)
	release(t, other, await(t, "the waiter", granted))
}

// TestExpiredTokens checks that requests get a new token after the old one has expired. Watches
// that are opened with an expired token also get a new one.
func TestExpiredTokens(t *testing.T) {
	t.Parallel()
	s := newGuarded(t, "--auth-token-ttl", "1")
	p := testenv.NewProxy(t, s.Addr)
	d := openURL(t, "etcd://locker:s3cret@"+p.Addr())
	other := openURL(t, "etcd://locker:s3cret@"+s.Addr)
	for range 2 {
		time.Sleep(2500 * time.Millisecond) // a token can live up to a second longer
		visitAll(t, d, other)
		p.Reset(t)
	}
}

// TestTokensAfterARestart restarts the server while a waiter waits. The restart makes all tokens
// invalid.
func TestTokensAfterARestart(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	url := "etcd://locker:s3cret@" + s.Addr
	d, other := openURL(t, url), openURL(t, url)
	g := raw.Acquire(t, other, newRequest(t))
	req := newRequest(t)
	granted := waiting(t, d, req, raw.Busy(t, d, req))
	s.Restart(t)
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := other.Release(t.Context(), g)
		if err == nil || errors.Is(err, backend.ErrNotHeld) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("Release after the restart: %v", err)
		}
	}
	next := await(t, "the waiter", granted)
	if err := d.Release(context.WithoutCancel(t.Context()), next); err != nil {
		t.Errorf("Release: %v", err)
	}
}
