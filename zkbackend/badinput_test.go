package zkbackend

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// openBound is the maximum duration of an Open that fails.
const openBound = 10 * time.Second

// TestBadInput checks that Open reports bad input in time, clearly and without a credential, and
// leaves nothing on the server.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := testenv.NewZooKeeper(t, fastTick) // sessions of up to 5 s
	conn := admin(t, s.Addr)
	create := func(path string, acl []zk.ACL) {
		t.Helper()
		_, err := conn.Create(path, nil, zk.FlagPersistent, acl)
		must(t, err)
	}
	create("/sealed", zk.WorldACL(zk.PermRead))
	create("/foreign", zk.WorldACL(zk.PermAll))
	create("/foreign/dlock", zk.DigestACL(zk.PermAll, "alice", "s3cret"))
	create("/open", zk.WorldACL(zk.PermAll))
	create("/open/dlock", zk.WorldACL(zk.PermAll))
	create("/readable", zk.WorldACL(zk.PermAll))
	create("/readable/dlock", zk.WorldACL(zk.PermRead))
	must(t, conn.AddAuth("digest", []byte("alice:s3cret"))) // to read these nodes
	deaf := testenv.NewProxy(t, s.Addr)
	deaf.Cut(t)
	before := tree(t, conn, "/")
	url, bob := "zk://"+s.Addr, "zk://bob:s3cret@"+s.Addr
	unavailable, unsupported := dlock.ErrUnavailable, dlock.ErrUnsupported
	cases := map[string]struct {
		url, want string
		is        error
	}{
		"chroot missing": {url + "/no/such", `chroot "/no/such" does not exist`, unavailable},
		"chroot sealed":  {bob + "/sealed", "permissions on /sealed/dlock", unavailable},
		"another user's": {bob + "/foreign", "permissions on /foreign/dlock", unavailable},
		"wrong password": {
			"zk://alice:s3cret2@" + s.Addr + "/foreign",
			"permissions on /foreign/dlock", unavailable,
		},
		"no user":       {url + "/foreign", "permissions on /foreign/dlock", unavailable},
		"may only read": {url + "/readable", "permissions on /readable/dlock", unavailable},
		"closed port":   {"zk://bob:s3cret@127.0.0.1:1", "refused", unavailable},
		"no such host": {
			"zk://bob:s3cret@no-such-host.invalid", "no-such-host", unavailable,
		},
		"no answer":            {"zk://bob:s3cret@" + deaf.Addr(), "no answer", unavailable},
		"plaintext server":     {bob + "?tls=1", "TLS handshake", unavailable},
		"TTL above the bound":  {url + "/open?ttl=6s", "4.75s", unsupported},
		"TTL below the bound":  {url + "/open?ttl=10ms", "100ms", unsupported},
		"session out of range": {url + "?session=10000h", "session", nil},
	}
	t.Run("cases", func(t *testing.T) {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				meter, begun := lag.Start(), time.Now()
				defer meter.Stop()
				client, err := dlock.Open(t.Context(), c.url)
				took, late := time.Since(begun), meter.Worst(begun)
				if took-late > openBound {
					t.Errorf("Open took %v, in a process that was late by up to %v", took, late)
				}
				if err == nil {
					_ = client.Close()
					t.Fatal("Open succeeded")
				}
				if c.is != nil {
					raw.WantIs(t, "Open", err, c.is)
				}
				text := err.Error()
				if !strings.Contains(text, c.want) || strings.Contains(text, "s3cret") {
					t.Errorf("Open: %v, want %q in it and no password", err, c.want)
				}
			})
		}
	})
	if after := tree(t, conn, "/"); !slices.Equal(before, after) {
		t.Errorf("the nodes on the server were %q and are now %q", before, after)
	}
}

// tree returns the paths of all nodes below path, except the server's own nodes.
func tree(t *testing.T, conn *zk.Conn, path string) []string {
	t.Helper()
	names, _, err := conn.Children(path)
	must(t, err)
	slices.Sort(names)
	var all []string
	for _, name := range names {
		if child := strings.TrimSuffix(path, "/") + "/" + name; child != reserved {
			all = append(append(all, child), tree(t, conn, child)...)
		}
	}
	return all
}
