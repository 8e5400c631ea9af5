package redisbackend

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestUnlockDespiteAForeignValue checks that Unlock and Close return at once if another program has
// replaced the lock, its queue, or both.
func TestUnlockDespiteAForeignValue(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	c, lag, k := admin(t, s), meter(t), newKeys(t.Name())
	for name, tt := range map[string]struct {
		commands [][]any
		want     error
	}{
		"lock":  {[][]any{{"del", k.lock}, {"rpush", k.lock, "foreign"}}, dlock.ErrLost},
		"queue": {[][]any{{"set", k.queue, "foreign"}}, nil},
		"no lock and a queue": {
			[][]any{{"del", k.lock}, {"set", k.queue, "foreign"}}, dlock.ErrLost,
		},
	} {
		do(t, c, "flushall")
		client, err := dlock.Open(t.Context(), s.URL+"?timeout=1m")
		if err != nil {
			t.Fatal(err)
		}
		lease, err := client.Lock(t.Context(), t.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range tt.commands {
			do(t, c, command...)
		}
		due := time.Now()
		raw.WantIs(t, name+": Unlock", lease.Unlock(t.Context()), tt.want)
		inTime(t, lag, name+": Unlock", due)
		due = time.Now()
		raw.WantIs(t, name+": Close", client.Close(), nil)
		inTime(t, lag, name+": Close", due)
	}
}

// TestReleaseDespiteForeignKeys checks that a lock with a queue can be released and broken if one
// of its other keys is foreign. The scripts have removed the lock before they read that key.
func TestReleaseDespiteForeignKeys(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, c, k := openURL(t, s.URL), admin(t, s), newKeys(t.Name())
	for name, remove := range map[string]func(g *backend.Grant) error{
		"Release": func(g *backend.Grant) error { return d.Release(t.Context(), g) },
		"Break":   func(g *backend.Grant) error { return d.Break(t.Context(), g.Key, g.Owner) },
	} {
		for _, key := range []string{k.fence, k.queue, k.waiters} {
			do(t, c, "flushall")
			held := raw.Acquire(t, d, raw.Request(t, longTerm))
			_ = raw.Busy(t, d, raw.Request(t, longTerm))
			do(t, c, "del", key)
			do(t, c, "rpush", key, "foreign")
			if err := remove(held); err != nil {
				t.Errorf("%s with a foreign %s: %v", name, key, err)
			}
			if n := do(t, c, "exists", k.lock); n != int64(0) {
				t.Errorf("%s with a foreign %s: the lock is held", name, key)
			}
			raw.WantIs(t, "the removed lock", remove(held), backend.ErrNotHeld)
		}
	}
}

// TestForeignKeyLeavesNoEntry checks that an attempt leaves no part of a queue entry if the other
// part cannot be written. That part would not expire.
func TestForeignKeyLeavesNoEntry(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, c, k := openURL(t, s.URL), admin(t, s), newKeys(t.Name())
	raw.Acquire(t, d, raw.Request(t, longTerm))
	for foreign, other := range map[string]string{k.queue: k.waiters, k.waiters: k.queue} {
		do(t, c, "set", foreign, "foreign")
		_, err := d.Acquire(t.Context(), raw.Request(t, longTerm))
		raw.WantIs(t, "Acquire", err, backend.ErrConflict)
		if n := do(t, c, "exists", other); n != int64(0) {
			t.Errorf("with a foreign %s there is a key %s", foreign, other)
		}
		do(t, c, "del", foreign)
	}
}

// TestForeignWaitersHideNoLock checks that a foreign value in the place of the waiters of a lock
// hides neither that lock nor another one. A waiter can leave the queue, and a writer can become a
// reader.
func TestForeignWaitersHideNoLock(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, c, k := openURL(t, s.URL), admin(t, s), newKeys(t.Name())
	held, waiter := raw.Acquire(t, d, raw.Request(t, longTerm)), raw.Request(t, longTerm)
	_ = raw.Busy(t, d, waiter)
	another := raw.Request(t, longTerm)
	another.Key += "/another"
	raw.Acquire(t, d, another)
	do(t, c, "set", k.waiters, "foreign")
	owners := map[string]bool{}
	for info, err := range d.List(t.Context(), t.Name()) {
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		for _, h := range info.Holders {
			owners[h.Owner] = true
		}
	}
	if len(owners) != 2 || !owners[held.Owner] || !owners[another.Owner] {
		t.Errorf("List shows the owners %v, want those of both locks", owners)
	}
	if _, err := d.Downgrade(t.Context(), held); err != nil {
		t.Errorf("Downgrade: %v", err)
	}
	raw.Release(t, d, &backend.Grant{Request: *waiter})
	raw.Release(t, d, held)
}

// TestForeignLockAmongMany checks that ReleaseAll wakes the waiters of the other locks if one of
// the locks has been replaced.
func TestForeignLockAmongMany(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, c := openURL(t, s.URL), admin(t, s)
	reqs := requests(t, 3)
	grants, _, err := d.AcquireAll(t.Context(), reqs)
	if err != nil {
		t.Fatal(err)
	}
	waiter := raw.Request(t, longTerm)
	waiter.Key = reqs[2].Key
	_ = raw.Busy(t, d, waiter)
	do(t, c, "del", lockKey(reqs[1].Key))
	do(t, c, "rpush", lockKey(reqs[1].Key), "foreign")
	for i, err := range d.ReleaseAll(t.Context(), grants) {
		want := error(nil)
		if i == 1 {
			want = backend.ErrNotHeld
		}
		raw.WantIs(t, reqs[i].Key, err, want)
	}
	value, _ := c.Get(t.Context(), lockKey(waiter.Key)).Result() // "" for a free lock
	if !strings.Contains(value, waiter.Owner) {
		t.Errorf("the lock with a waiter has the value %q", value)
	}
}

// TestManyHoldersAreListed checks that locks are listed whose holders together exceed maxReply.
func TestManyHoldersAreListed(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, pipe := openURL(t, s.URL), admin(t, s).Pipeline()
	const locks, holders = maxBatch, 70
	meta, end := strings.Repeat("x", 1000), time.Now().Add(longTerm).UnixMilli()
	for i := range locks {
		name := fmt.Sprint(t.Name(), "/", i)
		fields := []any{"hset", lockKey(name), "dlock1", fmt.Sprintf("r\n%d\n%s", end, name)}
		for range holders {
			record := fmt.Sprintf("%d\n%d\n1800000000\n0\nclient\n%s\n%s",
				end, backend.FenceEpoch+1, name, meta)
			fields = append(fields, raw.NewOwner(), record)
		}
		pipe.Do(t.Context(), fields...)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	listed := 0
	for info, err := range d.List(t.Context(), t.Name()) {
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		listed += len(info.Holders)
	}
	if listed != locks*holders {
		t.Errorf("List shows %d holders, want %d", listed, locks*holders)
	}
}
