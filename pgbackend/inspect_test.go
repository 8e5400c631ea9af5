package pgbackend

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestListReadsFewRowsAtATime lists locks between free rows, in pages of different sizes.
func TestListReadsFewRowsAtATime(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	prefix := raw.Request(t, time.Minute).Key + "/"
	var want []string
	for i := range 12 {
		req := raw.Request(t, time.Minute)
		req.Key = fmt.Sprintf("%s%02d", prefix, i)
		g := raw.Acquire(t, d, req)
		if i%5 < 2 {
			want = append(want, req.Key)
			defer raw.Release(t, d, g)
		} else {
			raw.Release(t, d, g)
		}
	}
	for _, limit := range []int{1, 2, 3, 11, 12, 13} {
		var got []string
		for from := name(prefix); from != nil; {
			p, err := d.list(t.Context(), from, pastPrefix(prefix), limit)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.locks) > limit {
				t.Errorf("a page of %d rows has %d locks", limit, len(p.locks))
			}
			for _, l := range p.locks {
				got = append(got, l.key)
			}
			from = p.next
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d rows: %v, want %v", limit, got, want)
		}
	}
}

// TestListOmitsFreeLocks lists a row whose time is later than the terms of its entries: one
// statement that changes a roster keeps the time of a holder that leaves.
func TestListOmitsFreeLocks(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, req := opened(t, s.URL), permit(t, 2)
	raw.Acquire(t, d, req)
	exec(t, connected(t, s.URL), "UPDATE dlock SET roster = '[]' WHERE name = $1", name(req.Key))
	for info, err := range d.List(t.Context(), req.Key) {
		t.Errorf("List: %v, %v", info, err)
	}
	raw.Release(t, d, raw.Acquire(t, d, req))
}

// TestLongRosters lists and renews the readers of a name with a roster that is too long for a
// statement about many names, and tries to acquire the name together with another one.
func TestLongRosters(t *testing.T) {
	t.Parallel()
	const readers = 50
	d, key := opened(t, testenv.Postgres(t).URL), raw.Request(t, time.Minute).Key
	grants := make([]*backend.Grant, readers)
	for i := range grants {
		req := raw.Request(t, time.Minute)
		req.Mode, req.Meta = backend.Shared, strings.Repeat("m", 200)
		grants[i] = raw.Acquire(t, d, req)
	}
	if p, err := d.list(t.Context(), name(key), pastPrefix(key), 1); err != nil ||
		len(p.locks) != 1 || !p.locks[0].row.isCut() {
		t.Fatalf("list: %+v, %v", p, err)
	}
	listed := 0
	for info, err := range d.List(t.Context(), key) {
		if err != nil || len(info.Holders) != readers {
			t.Errorf("List: %+v, %v", info, err)
		}
		listed++
	}
	if listed != 1 {
		t.Errorf("%d locks are listed", listed)
	}
	for i, renewal := range d.RenewAll(t.Context(), grants) {
		if renewal.Err != nil {
			t.Errorf("renewal %d: %v", i, renewal.Err)
		}
	}
	other, taken := named(t, "other"), raw.Request(t, time.Minute)
	other.Queue, taken.Queue = false, false
	_, _, err := d.AcquireAll(t.Context(), []*backend.Request{other, taken})
	raw.WantIs(t, "AcquireAll", err, backend.ErrNotAcquired)
	for _, g := range grants {
		raw.Release(t, d, g)
	}
}

// TestUnreadableRowIsBroken damages the roster of one of three locks. List yields the other locks
// before the error, and Break of all holders makes the lock free.
func TestUnreadableRowIsBroken(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, prefix := opened(t, s.URL), raw.Request(t, time.Minute).Key+"/"
	var want []string
	for _, key := range []string{"a", "b", "c"} {
		req := raw.Request(t, time.Minute)
		req.Key, req.Mode, req.Limit = prefix+key, backend.Permit, 2
		raw.Acquire(t, d, req)
		defer func() { raw.Release(t, d, raw.Acquire(t, d, req)) }() // none is taken at the end
		if key != "b" {
			want = append(want, req.Key)
		}
	}
	damaged := prefix + "b"
	exec(t, connected(t, s.URL), "UPDATE dlock SET roster = 'x' WHERE name = $1", []byte(damaged))
	var got []string
	var last error
	for info, err := range d.List(t.Context(), prefix) {
		if last = err; err == nil {
			got = append(got, info.Key)
		}
	}
	raw.WantIs(t, "the last result of List", last, backend.ErrConflict)
	if !slices.Equal(got, want) {
		t.Errorf("List: %q, want %q", got, want)
	}
	req := permit(t, 2)
	req.Key = damaged
	_, err := d.Acquire(t.Context(), req)
	raw.WantIs(t, "Acquire", err, backend.ErrConflict)
	raw.WantIs(t, "Release", d.Release(t.Context(), &backend.Grant{Request: *req}),
		backend.ErrConflict)
	raw.WantIs(t, "Break of one", d.Break(t.Context(), damaged, "other"), backend.ErrConflict)
	if err := d.Break(t.Context(), damaged, ""); err != nil {
		t.Errorf("Break: %v", err)
	}
	raw.WantIs(t, "a second Break", d.Break(t.Context(), damaged, ""), backend.ErrNotHeld)
}
