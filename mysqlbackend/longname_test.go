package mysqlbackend

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestLongestKeys: a prefix and a name have 512 bytes each. Two keys that differ in the last byte are two locks, and
// the sweep passes them.
func TestLongestKeys(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open func(testing.TB, *testenv.Server) *lockDriver) {
		t.Helper()
		d := open(t, s)
		var gs []*backend.Grant
		for _, last := range []string{"a", "b"} {
			req := raw.Request(t, time.Minute)
			req.Key += strings.Repeat("k", maxKey-1-len(req.Key)) + last
			g := acquire(t, d, req)
			if info, err := d.Inspect(t.Context(), req.Key); err != nil || len(info.Holders) != 1 || info.Key != req.Key {
				t.Errorf("Inspect: %+v, %v", info, err)
			}
			gs = append(gs, g)
		}
		cursor, old := []byte(t.Name()+"/cursor"), []byte{}
		if _, err := exec(t.Context(), d.conn.main, d.text.claim, cursor, []byte(gs[1].Key), old, old, []byte(gs[1].Key)); err != nil {
			t.Errorf("a sweep that ends at a long name: %v", err)
		}
		for i, r := range d.RenewAll(t.Context(), gs) {
			if r.Err != nil {
				t.Errorf("renewal %d: %v", i, r.Err)
			}
			raw.Release(t, d, gs[i])
		}
	})
}

// TestNarrowTableIsServed: a table of an earlier build takes keys of 512 bytes, and refuses longer ones at once.
func TestNarrowTableIsServed(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			db := database(t, s, "")
			do(t, db, "DROP TABLE IF EXISTS narrow")
			do(t, db, strings.ReplaceAll(Schema("narrow"), "(1024)", "(512)"))
			url := "mysql://root@" + s.Addr + "/dlock?table=narrow"
			d, req := openURL(t, url), raw.Request(t, time.Minute)
			req.Key += strings.Repeat("k", oldMaxKey-len(req.Key))
			raw.Release(t, d, acquire(t, d, req))
			req.Key += "k"
			_, err := d.Acquire(t.Context(), req)
			raw.WantIs(t, "Acquire of a name that the table cuts", err, backend.ErrInvalidName)
			do(t, db, "ALTER TABLE narrow MODIFY name VARBINARY(1024) NOT NULL, MODIFY meta VARBINARY(1024) NOT NULL")
			d = openURL(t, url)
			raw.Release(t, d, acquire(t, d, req))
		})
	}
}
