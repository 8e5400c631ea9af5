package zkbackend

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// openBound is how long an opening that fails may take.
const openBound = 10 * time.Second

// Whatever is wrong is told at Open, in time, clearly and without a credential, and leaves nothing on the server.
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
	must(t, conn.AddAuth("digest", []byte("alice:s3cret"))) // to see what is in it
	deaf := testenv.NewProxy(t, s.Addr)
	deaf.Cut(t)
	before := tree(t, conn, "/")
	t.Run("cases", func(t *testing.T) {
		for name, c := range map[string]struct {
			url, want string
			is        error
		}{
			"chroot missing":       {"zk://" + s.Addr + "/no/such", `chroot "/no/such" does not exist`, dlock.ErrUnavailable},
			"chroot sealed":        {"zk://bob:s3cret@" + s.Addr + "/sealed", "permissions on /sealed/dlock", dlock.ErrUnavailable},
			"another user's":       {"zk://bob:s3cret@" + s.Addr + "/foreign", "permissions on /foreign/dlock", dlock.ErrUnavailable},
			"wrong password":       {"zk://alice:s3cret2@" + s.Addr + "/foreign", "permissions on /foreign/dlock", dlock.ErrUnavailable},
			"no user":              {"zk://" + s.Addr + "/foreign", "permissions on /foreign/dlock", dlock.ErrUnavailable},
			"may only read":        {"zk://" + s.Addr + "/readable", "permissions on /readable/dlock", dlock.ErrUnavailable},
			"closed port":          {"zk://bob:s3cret@127.0.0.1:1", "refused", dlock.ErrUnavailable},
			"no such host":         {"zk://bob:s3cret@no-such-host.invalid", "no-such-host", dlock.ErrUnavailable},
			"no answer":            {"zk://bob:s3cret@" + deaf.Addr(), "no answer", dlock.ErrUnavailable},
			"plaintext server":     {"zk://bob:s3cret@" + s.Addr + "?tls=1", "TLS handshake", dlock.ErrUnavailable},
			"TTL above the bound":  {"zk://" + s.Addr + "/open?ttl=6s", "4.75s", dlock.ErrUnsupported},
			"TTL below the bound":  {"zk://" + s.Addr + "/open?ttl=10ms", "100ms", dlock.ErrUnsupported},
			"session out of range": {"zk://" + s.Addr + "?session=10000h", "session", nil},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				begun := time.Now()
				client, err := dlock.Open(t.Context(), c.url)
				if took := time.Since(begun); took > openBound {
					t.Errorf("it took %v", took)
				}
				if err == nil {
					_ = client.Close()
					t.Fatal("opened")
				}
				if c.is != nil {
					raw.WantIs(t, "Open", err, c.is)
				}
				if text := err.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "s3cret") {
					t.Errorf("Open: %v, want %q in it and no password", err, c.want)
				}
			})
		}
	})
	if after := tree(t, conn, "/"); !slices.Equal(before, after) {
		t.Errorf("on the server there were %q, and are now %q", before, after)
	}
}

// tree returns the paths of all nodes below one, but for the server's own.
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
