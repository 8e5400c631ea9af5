package conformance

import (
	"errors"
	"strings"

	"github.com/dlock-go/dlock"
)

var nameCases = []Case{
	{
		Name: "DifferentNamesAreDifferentLocks",
		Promise: "Names that differ in any byte are different locks: case, spaces, NFC and NFD, " +
			"slashes, braces, percent signs, long common prefixes.",
		run: differentNamesAreDifferentLocks,
	},
	{
		Name: "HostileNamesAreOnlyNames",
		Promise: "A name in the form of a command, a pattern, a path or a script is a lock like " +
			"any other, and affects nothing else.",
		run: hostileNamesAreOnlyNames,
	},
	{
		Name: "LongNamesAreKeptApart",
		Promise: "Names of 512 bytes that differ only in the last byte, and names near every " +
			"server's limit, are different locks.",
		run: longNamesAreKeptApart,
	},
	{
		Name: "InvalidNamesAreRefused",
		Promise: "A name that is empty, longer than 512 bytes, not UTF-8 or has control " +
			"characters is ErrInvalidName before any request.",
		run: invalidNamesAreRefused,
	},
	{
		Name:    "NeighboursAreNotTouched",
		Promise: "Unlock, and the end of a term, affect only the one name, and no similar one.",
		run:     neighboursAreNotTouched,
	},
}

// lockAll locks all names at once, which is only possible if they are different locks. It checks
// that another client cannot lock any of them, and frees them.
func (f *fixture) lockAll(names []string) {
	f.Helper()
	c, other := f.client(dlock.WithTTL(f.long())), f.client(dlock.WithTTL(f.long()))
	leases := make([]*dlock.Lease, len(names))
	for i, name := range names {
		lease, err := c.TryLock(f.ctx, name)
		if err != nil {
			f.Fatalf("TryLock(%.80q), while %d other names are held: %v", name, i, err)
		}
		if lease.Name() != name {
			f.Errorf("Lease.Name() = %.80q, want %.80q", lease.Name(), name)
		}
		leases[i] = lease
	}
	for _, lease := range leases {
		f.held(other, lease)
	}
	for _, lease := range leases {
		f.unlock(lease)
	}
	for _, name := range names {
		f.free(other, name)
	}
}

func differentNamesAreDifferentLocks(f *fixture) {
	n := f.name
	f.lockAll([]string{
		n + "a", n + "A", n + "a ", n + " a", n + "a/", n + "a//", n + "/a", n + "a.", n + "a/b",
		n + "a%2Fb", n + "a%2fb", n + "a%252Fb",
		n + "a_b", n + "a-b", n + "a:b", n + "a;b", n + "a,b", n + "a+b",
		n + "a\u00a0b", n + "a\u200bb",
		n + "\u00e9", n + "e\u0301", n + "\u212b", n + "\u00c5", n + "A\u030a",
		n + "ß", n + "ss", n + "ẞ", n + "İ", n + "i", n + "ı", n + "I",
		n + "{a}b", n + "{a}c", n + "{}a", n + "{b}a",
		n + "😀", n + "\ufffd", n + "\uf000", n + "\ufeff",
		n + "0", n + "00", n + "0.0", n + "1e3", n + "1000",
	})
}

func hostileNamesAreOnlyNames(f *fixture) {
	n := f.name
	hostile := []string{
		n + "' OR '1'='1", n + `"; DROP TABLE locks; --`, n + "`id`", n + "$(id)", n + "%s%n%x",
		n + "%00", n + "%0d%0aflush_all",
		n + "/../" + n, n + "/..", n + "/.", n + "..", n + ".",
		n + "*", n + "?", n + "[a-z]", n + "^$", n + `\`, n + `\\`, n + `\x00`,
		n + "]] redis.call('FLUSHALL') --", n + "{", n + "}", n + "}{",
		n + "|", n + "&", n + "~", n + "#", n + "@", n + "=",
		n + "<script>", n + "zookeeper", n + "/zookeeper/quota", n + "-0000000001",
		n + "lock-0000000000", n + "nil", n + "NULL",
		n + ":fence", n + ":q", n + ":f", n + ":l", n + ":c", n + "/owner",
	}
	// Short names cannot contain the name of the case, so another test may hold them at present.
	f.lockAll(hostile)
	other := f.client()
	for _, name := range []string{
		"..", ".", "*", "/", "{}", "%", "'", "zookeeper", " ", "-", "CON", "nul", "~",
	} {
		lease := f.lock(other, f.prefix+name, dlock.WithTTL(f.long()))
		f.unlock(lease)
	}
}

func longNamesAreKeptApart(f *fixture) {
	var names []string
	for _, length := range []int{
		63, 64, 65, 191, 192, 193, 249, 250, 251, 254, 255, 256, 511, 512,
	} {
		if fill := length - 1 - len(f.name); fill >= 0 {
			long := f.name + strings.Repeat("x", fill)
			names = append(names, long+"a", long+"b")
		}
	}
	wide := f.name + strings.Repeat("é", (512-len(f.name)-2)/2)
	names = append(names, wide+"a", wide+"b", f.name+strings.Repeat("%", 512-len(f.name)))
	f.lockAll(names)
}

func invalidNamesAreRefused(f *fixture) {
	c, t := f.tapped()
	n := f.name
	isControl := func(r rune) bool { return r < ' ' || r == 0x7f }
	for _, name := range []string{
		"", strings.Repeat("x", 513), strings.Repeat("x", 10_000), n + "\x00", n + "\n",
		n + "\r\nflush_all\r\n", "\t" + n, n + "\x1b[2J", n + "\x7f",
		n + "\u0080", n + "\u0085", n + "\u009f",
		n + "\xff", n + "\xc3", "\xed\xa0\x80" + n, n + "\xc0\x80",
	} {
		_, err := c.Mutex(name)
		f.isErr("Mutex", err, dlock.ErrInvalidName)
		_, err = c.Lock(f.ctx, name)
		f.isErr("Lock", err, dlock.ErrInvalidName)
		_, err = c.TryLock(f.ctx, name)
		f.isErr("TryLock", err, dlock.ErrInvalidName)
		if err == nil {
			continue
		}
		if text := err.Error(); len(text) > 200 || strings.ContainsFunc(text, isControl) {
			f.Errorf("the text of the error is too long, or has control characters: %.300q", text)
		}
	}
	if n := t.number(acquire); n != 0 {
		f.Errorf("the client sent %d requests", n)
	}
}

func neighboursAreNotTouched(f *fixture) {
	n := f.name
	c, t := f.tapped(dlock.WithTTL(f.long()))
	other := f.client()
	own := strings.TrimPrefix(n, f.prefix)
	neighbours := []string{
		n + "/", n + "/a", n + "a", n + "*", n + "?", n + ":", n + "{", n + "%",
		f.prefix + "{" + own + "}", f.prefix + strings.ToUpper(own),
	}
	var leases []*dlock.Lease
	for _, name := range neighbours {
		leases = append(leases, f.lock(c, name))
	}
	for range 3 {
		f.unlock(f.lock(other, n, dlock.WithTTL(f.long())))
	}
	lost := f.lock(other, n, dlock.WithTTL(f.short()), dlock.WithoutRenewal())
	f.doneBy(lost.Deadline(), "the lease is lost", lost.Lost())
	f.unlock(f.lockBy(other, lost.Deadline(), n, dlock.WithTTL(f.long())))
	for _, name := range neighbours {
		if _, err := other.TryLock(f.ctx, name); !errors.Is(err, dlock.ErrNotAcquired) {
			f.Errorf("TryLock of the neighbour %q: %v", name, err)
		}
	}
	for _, lease := range leases {
		f.unlock(lease)
	}
	calls, _ := t.snapshot()
	if n := count(calls, release, succeeded); n != len(neighbours) {
		f.Errorf("%d of %d neighbours were released", n, len(neighbours))
	}
}
