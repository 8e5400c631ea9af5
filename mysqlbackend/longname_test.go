package mysqlbackend

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestLongestKeys uses keys of maximum length: a prefix and a name can have 512 bytes each. Two
// keys that differ only in the last byte are two locks, and the sweep handles such keys.
func TestLongestKeys(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d := open(t, s)
		var gs []*backend.Grant
		for _, last := range []string{"a", "b"} {
			req := raw.Request(t, time.Minute)
			req.Key += strings.Repeat("k", maxKey-1-len(req.Key)) + last
			g := acquire(t, d, req)
			info, err := d.Inspect(t.Context(), req.Key)
			if err != nil || len(info.Holders) != 1 || info.Key != req.Key {
				t.Errorf("Inspect: %+v, %v", info, err)
			}
			gs = append(gs, g)
		}
		cursor, begin, end := []byte(t.Name()+"/cursor"), []byte{}, []byte(gs[1].Key)
		_, err := exec(t.Context(), d.pools.main, d.text.claim, cursor, end, begin, begin, end)
		if err != nil {
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

// TestNarrowTableIsServed uses a table of an earlier version. The driver accepts keys of 512 bytes
// and refuses longer ones at once.
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
			do(t, db, "ALTER TABLE narrow MODIFY name VARBINARY(1024) NOT NULL, "+
				"MODIFY meta VARBINARY(1024) NOT NULL")
			d = openURL(t, url)
			raw.Release(t, d, acquire(t, d, req))
		})
	}
}

// TestTableWithoutRosters uses a table of an earlier version, which has no column for readers and
// permits. A mutex works there. The error for anything else contains the statement that adds the
// column, and a driver that is opened afterwards has all kinds. A driver that was opened before
// finds its grants in rosters, too.
func TestTableWithoutRosters(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			db := database(t, s, "")
			do(t, db, "DROP TABLE IF EXISTS plain")
			do(t, db, strings.Replace(Schema("plain"), "  roster  MEDIUMBLOB,\n", "", 1))
			url := "mysql://root@" + s.Addr + "/dlock?table=plain"
			d, req := openURL(t, url), raw.Request(t, time.Minute)
			g := acquire(t, d, req)
			if info, err := d.Inspect(t.Context(), req.Key); err != nil || len(info.Holders) != 1 {
				t.Errorf("Inspect: %+v, %v", info, err)
			}
			_, errDowngrade := d.Downgrade(t.Context(), g)
			_, errExport := d.Export(t.Context(), g)
			raw.Release(t, d, g)
			_, err := d.Renew(t.Context(), g)
			raw.WantIs(t, "Renew of a released lock", err, backend.ErrLost)
			err = d.Release(t.Context(), g)
			raw.WantIs(t, "a second Release", err, backend.ErrNotHeld)
			err = d.Break(t.Context(), g.Key, "")
			raw.WantIs(t, "Break of a free lock", err, backend.ErrNotHeld)
			reader := reader(req.Key)
			_, errAcquire := d.Acquire(t.Context(), reader)
			for what, err := range map[string]error{
				"Downgrade": errDowngrade, "Export": errExport, "Acquire": errAcquire,
			} {
				raw.WantIs(t, what, err, backend.ErrUnsupported)
				if !strings.Contains(err.Error(), addRoster("plain")) {
					t.Errorf("%s: %v has no statement that adds the column", what, err)
				}
			}
			held := acquire(t, d, raw.Request(t, time.Minute))
			do(t, db, addRoster("plain"))
			d2 := openURL(t, url)
			_ = raw.Busy(t, d2, reader)
			useRoster(t, d, held)
			raw.Release(t, d2, acquire(t, d2, reader))
		})
	}
}

// useRoster uses a grant that has one waiter behind it in its roster.
func useRoster(t *testing.T, d *driver, g *backend.Grant) {
	t.Helper()
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	for _, r := range d.RenewAll(t.Context(), []*backend.Grant{g, g}) {
		if r.Err != nil {
			t.Errorf("RenewAll: %v", r.Err)
		}
	}
	info, err := d.Inspect(t.Context(), g.Key)
	if err != nil || len(info.Holders) != 1 || info.Waiters != 1 {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	raw.Release(t, d, g)
	raw.WantIs(t, "Break", d.Break(t.Context(), g.Key, ""), backend.ErrNotHeld)
}

// TestTablesWithoutTheirKey has tables in which two names can share a row.
func TestTablesWithoutTheirKey(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			db := database(t, s, "")
			for table, change := range map[string]string{
				"partkey": "DROP PRIMARY KEY, ADD PRIMARY KEY (name(255))",
				"addkey":  "ADD UNIQUE KEY another (name(100), owner)",
				"nokey":   "DROP PRIMARY KEY",
				"plain2":  "",
			} {
				do(t, db, "DROP TABLE IF EXISTS "+table)
				do(t, db, Schema(table))
				want := error(nil)
				if change != "" {
					do(t, db, "ALTER TABLE "+table+" "+change)
					want = backend.ErrConflict
				}
				url := "mysql://root@" + s.Addr + "/dlock?timeout=30s&table=" + table
				d, err := testenv.Open(t.Context(), url)
				raw.WantIs(t, "Open with "+table, err, want)
				if err == nil {
					_ = d.Close()
				}
			}
		})
	}
}
