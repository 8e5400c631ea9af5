package redisbackend

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestLockWithoutItsReplicas checks that a lock which too few replicas acknowledge is released.
// Acquire returns an error.
func TestLockWithoutItsReplicas(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	lent := admin(t, s)
	other, err := New(lent, &Options{Wait: 1, Timeout: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []backend.Driver{openURL(t, s.URL+"?wait=1&timeout=4s"), other} {
		req := raw.Request(t, 10*time.Minute) // the lock does not expire during the test
		_, err := d.Acquire(t.Context(), req)
		raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("Acquire: %v, want an error that mentions replicas", err)
		}
		if n := do(t, lent, "exists", newKeys(req.Key).lock); n != int64(0) {
			t.Error("the lock is held")
		}
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if err := lent.Set(t.Context(), "x", "y", 0).Err(); err != nil {
		t.Errorf("the lent client: %v", err)
	}
}

// TestAdoptionWithoutItsReplicas checks that an adoption which too few replicas acknowledge has an
// unknown outcome. The ticket is gone, so the adoption must not count as not executed. A refusal is
// definite, because it needs no replicas.
func TestAdoptionWithoutItsReplicas(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	exporter, d := openURL(t, s.URL), openURL(t, s.URL+"?wait=1&timeout=4s")
	held := raw.Acquire(t, exporter, raw.Request(t, 10*time.Minute))
	ticket, err := exporter.Export(t.Context(), held)
	if err != nil {
		t.Fatal(err)
	}
	req, second := raw.Request(t, 10*time.Minute), raw.Request(t, 10*time.Minute)
	_, err = d.Adopt(t.Context(), ticket, req)
	if err == nil || isDefinite(err) || errors.Is(err, backend.ErrLost) {
		t.Errorf("Adopt: %v, want an unknown outcome", err)
	}
	_, err = d.Adopt(t.Context(), ticket, second)
	raw.WantIs(t, "second Adopt", err, backend.ErrLost)
	_, err = d.Export(t.Context(), held)
	raw.WantIs(t, "Export of the adopted grant", err, backend.ErrLost)
	_, err = d.Downgrade(t.Context(), held)
	raw.WantIs(t, "Downgrade of the adopted grant", err, backend.ErrLost)
	raw.Release(t, d, &backend.Grant{Request: *req})
}

// TestRefusedWait checks requests of a user that has lost the right to wait for replicas. The
// server refuses only the wait, after it has executed the request. A text that contains the
// password is redacted. Such a user cannot open another driver.
func TestRefusedWait(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	for _, password := range []string{"pw", "permissions"} {
		c, url := admin(t, s), "redis://locks:"+password+"@"+s.Addr+"?wait=1&timeout=4s"
		do(t, c, "acl", "setuser", "locks", "on", "resetpass", ">"+password, "~*", "&*", "+@all")
		d := openURL(t, url)
		do(t, c, "acl", "setuser", "locks", "-wait")
		refused := openError(t, url)
		raw.WantIs(t, "Open", refused, backend.ErrUnsupported)
		if strings.Contains(fmt.Sprint(refused), password) {
			t.Errorf("Open: the error %v contains the password", refused)
		}
		holder, other := openURL(t, s.URL), openURL(t, s.URL)
		held := raw.Acquire(t, holder, raw.Request(t, 10*time.Minute))
		_, err := d.Downgrade(t.Context(), held)
		if err == nil || isDefinite(err) || strings.Contains(err.Error(), password) {
			t.Errorf("Downgrade: %v, want an unknown outcome", err)
		}
		reader := raw.Request(t, 10*time.Minute)
		reader.Key, reader.Mode = held.Key, backend.Shared
		raw.Release(t, other, raw.Acquire(t, other, reader)) // the Downgrade was executed
		raw.Release(t, holder, held)
		req := raw.Request(t, 10*time.Minute)
		_, err = d.Acquire(t.Context(), req)
		raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
		raw.WantIs(t, "its release", other.Release(t.Context(), &backend.Grant{Request: *req}),
			backend.ErrNotHeld)
	}
}

// TestRefusalNeedsNoReplicas checks that a waiter keeps its place in the queue while replicas are
// missing. A refusal proves no term.
func TestRefusalNeedsNoReplicas(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	holder, d := openURL(t, s.URL), openURL(t, s.URL+"?wait=1")
	held := raw.Acquire(t, holder, raw.Request(t, longTerm))
	req := raw.Request(t, 20*time.Second) // a fraction of it limits the wait for replicas
	req.Fair = true
	if b := raw.Busy(t, d, req); !b.Queued {
		t.Error("the waiter is not in the queue")
	}
	if n := do(t, admin(t, s), "zcard", newKeys(req.Key).queue); n != int64(1) {
		t.Errorf("the queue has %d entries", n)
	}
	raw.Release(t, holder, held)
}

// TestShortTermsDoNotWaitForLong checks that the server waits for replicas for at most a quarter of
// the TTL. The core gives up a renewal after a third.
func TestShortTermsDoNotWaitForLong(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d := openURL(t, s.URL+"?wait=1&timeout=10m")
	next := monitor(t, s)
	_, err := d.Acquire(t.Context(), raw.Request(t, 400*time.Millisecond))
	raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
	command := next()
	for !strings.Contains(command, `"wait"`) {
		command = next()
	}
	if !strings.HasSuffix(command, `"wait" "1" "100"`) {
		t.Errorf("with a TTL of 400ms the command is %s", command)
	}
}

// monitor returns a function that waits for the next command to the server and returns it.
func monitor(t *testing.T, s *testenv.Server) (next func() string) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	lines := bufio.NewScanner(conn)
	next = func() string {
		t.Helper()
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if !lines.Scan() {
			t.Fatalf("the server received no further command: %v", lines.Err())
		}
		return lines.Text()
	}
	if _, err := io.WriteString(conn, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer := next(); answer != "+OK" {
		t.Fatalf("MONITOR: %s", answer)
	}
	return next
}

// groupsWithReplicas runs a test on separate groups, whose replicas the test may stop.
func groupsWithReplicas(
	t *testing.T, run func(t *testing.T, d *driver, replicas []*testenv.Server),
) {
	t.Helper()
	for name, start := range map[string]func(tb testenv.TB) *testenv.RedisGroup{
		"cluster":  func(tb testenv.TB) *testenv.RedisGroup { return testenv.NewRedisCluster(tb) },
		"sentinel": func(tb testenv.TB) *testenv.RedisGroup { return testenv.NewRedisSentinel(tb) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t)
			run(t, openURL(t, g.URL+"?wait=1&timeout=16s"), replicasOf(t, g))
		})
	}
}

func replicasOf(t *testing.T, g *testenv.RedisGroup) (replicas []*testenv.Server) {
	t.Helper()
	for _, s := range g.Nodes {
		if role := do(t, admin(t, s), "role").([]any); role[0] == "slave" {
			replicas = append(replicas, s)
		}
	}
	return replicas
}

// TestReplicasProveTerms checks that a renewal or an export is a proof only if replicas have it.
// Otherwise the lock would end after a failover, before the holder detects it.
func TestReplicasProveTerms(t *testing.T) {
	t.Parallel()
	groupsWithReplicas(t, func(t *testing.T, d *driver, replicas []*testenv.Server) {
		t.Helper()
		held := raw.Acquire(t, d, raw.Request(t, 10*time.Minute))
		free := raw.Request(t, 10*time.Minute)
		free.Key += "/free"
		if _, err := d.Renew(t.Context(), held); err != nil {
			t.Errorf("Renew: %v", err)
		}
		var resumes []func()
		for _, s := range replicas {
			resumes = append(resumes, s.Pause(t))
		}
		_, err := d.Renew(t.Context(), held)
		if err == nil || isDefinite(err) || errors.Is(err, backend.ErrLost) {
			t.Errorf("Renew without replicas: %v, want an unknown outcome", err)
		}
		_, err = d.Export(t.Context(), held)
		if err == nil || isDefinite(err) || errors.Is(err, backend.ErrLost) {
			t.Errorf("Export without replicas: %v, want an unknown outcome", err)
		}
		_, err = d.Acquire(t.Context(), free)
		raw.WantIs(t, "Acquire without replicas", err, backend.ErrUnavailable)
		for _, resume := range resumes {
			resume()
		}
		if info, err := d.Inspect(t.Context(), free.Key); err != nil || len(info.Holders) != 0 {
			t.Errorf("a lock without its replicas: %+v, %v", info, err)
		}
		for end := time.Now().Add(patience); ; pause(t, 50*time.Millisecond) {
			if _, err = d.Renew(t.Context(), held); err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("Renew after the replicas have returned: %v", err)
			}
		}
		raw.Release(t, d, raw.Acquire(t, d, free))
		raw.Release(t, d, held)
	})
}

// TestPassedGrantIsAcknowledgedToo checks a grant that a release passed to a waiter. Replicas have
// not acknowledged it, so the waiter must call Acquire.
func TestPassedGrantIsAcknowledgedToo(t *testing.T) {
	t.Parallel()
	g := testenv.RedisSentinel(t)
	g.Await(t)
	d := openURL(t, g.URL+"?wait=1")
	held := raw.Acquire(t, d, raw.Request(t, longTerm))
	next := raw.Request(t, longTerm)
	b := raw.Busy(t, d, next)
	raw.Release(t, d, held)
	passed, err := d.Wait(t.Context(), next, b)
	if passed != nil || err != nil {
		t.Errorf("Wait: %+v, %v, want neither a grant nor an error", passed, err)
	}
	raw.Release(t, d, raw.Acquire(t, d, next))
}

func TestWaitNeedsAURLForALentCluster(t *testing.T) {
	t.Parallel()
	node := testenv.RedisCluster(t).Nodes[0]
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{node.Addr}})
	defer c.Close()
	_, err := New(c, &Options{Wait: 1})
	raw.WantIs(t, "New", err, backend.ErrUnsupported)
	d, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	req := raw.Request(t, longTerm)
	grant, err := d.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Release(t.Context(), grant); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the driver closed the lent client: %v", err)
	}
}
