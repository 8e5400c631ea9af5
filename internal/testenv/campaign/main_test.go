//go:build unix

package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/campaign"
	"github.com/dlock-go/dlock/internal/testenv"
)

// argsVariable makes the test's program the command. Its value is the arguments, and it is also the
// mark of the command and of its workers.
const argsVariable = "DLOCK_TEST_CAMPAIGN_ARGS"

func TestMain(m *testing.M) {
	if args := os.Getenv(argsVariable); args != "" {
		os.Args = append(os.Args[:1], strings.Fields(args)...)
		main()
		return
	}
	testenv.Main(m)
}

// TestUsageErrors checks that an unknown name is a usage error that lists the known names.
func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"oracle"}, "redis-sentinel"},
		{[]string{"-faults", "stop,earthquake", "redis"}, "late-request"},
		{[]string{"-kinds", "mutex,barrier", "redis"}, "permits"},
		{[]string{"-duration", "0s"}, "duration"},
		{[]string{"-elections", "-1"}, "elections"},
		{[]string{"-unknown"}, "usage"},
		{[]string{"-judge"}, "file"},
	} {
		_, err := parse(c.args, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestAllServersByDefault(t *testing.T) {
	o, err := parse(nil, io.Discard)
	if err != nil || len(o.servers) != len(targets) ||
		len(o.kinds) != len(campaign.LockKinds()) {
		t.Errorf("parse = %v, %v", o, err)
	}
}

// TestKindsThatTheBackendCarries checks that a kind is skipped on a backend without its mode.
func TestKindsThatTheBackendCarries(t *testing.T) {
	for _, c := range []struct {
		modes backend.Mode
		move  bool
		want  string
	}{
		{backend.Exclusive, false, "mutex, all, leader"},
		{backend.Exclusive, true, "mutex, all, leader, moved"},
		{backend.Exclusive | backend.Permit, false, "mutex, permits, all, leader"},
		{backend.Exclusive | backend.Shared | backend.Permit, true, join(campaign.LockKinds())},
	} {
		caps := backend.Capabilities{Modes: c.modes, Move: c.move}
		if got := carried(campaign.LockKinds(), caps, t.Logf); join(got) != c.want {
			t.Errorf("%s, move %v: %s, want %s", c.modes, c.move, join(got), c.want)
		}
	}
}

// TestSessionTargets checks that the workers of the servers with locks of a session use such locks,
// also through a proxy, and that the end of a connection is a fault of class F there.
func TestSessionTargets(t *testing.T) {
	for _, name := range []string{"mysql-session", "postgres-session"} {
		found, err := find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		p := found[0].start(t)
		for _, url := range []string{p.url, p.through(p.addrs)} {
			c, _, err := opener(url)(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !c.Capabilities().Session {
				t.Errorf("%s: the locks are not of a session", name)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		classes := p.classes(newOperator(t, p), nil)
		for _, k := range []campaign.Kind{campaign.Reset, campaign.Restart} {
			if classes[k] != campaign.F {
				t.Errorf("%s: the class of %s is %q, want F", name, k, classes[k])
			}
		}
	}
}

// TestZooKeeperSessionFollowsTheTTL checks that the session of a worker is one tick longer than the
// TTL, as for a user without the parameter session. Then the longest TTL of a lock is the TTL.
func TestZooKeeperSessionFollowsTheTTL(t *testing.T) {
	c, _, err := opener(zookeeperPlace(t).url)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if longest := c.Capabilities().MaxTTL; longest != ttl {
		t.Errorf("the longest TTL is %v, want %v", longest, ttl)
	}
}
