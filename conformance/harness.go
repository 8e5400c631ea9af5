package conformance

import (
	"fmt"
	"reflect"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A Harness may implement any of the interfaces in this file. If it lacks one, the cases that need
// it are skipped and counted. Each ability acts on the real server, so a case checks the driver and
// the core, never a substitute.

// Apart is implemented by a Harness that can represent a second host.
type Apart interface {
	// Apart returns another Harness for the same server. Its Faults affect only its own
	// connections, so a case can cut off or stop one process while the other processes stay
	// connected. The case closes the Harness.
	Apart(t TB) Harness
}

// Delayer is implemented by a Harness that can deliver a request long after the client gave it up.
type Delayer interface {
	// Delay keeps back everything that the drivers send on connections that are open now. It keeps
	// the server's end of such a connection open when the client closes its own. Later connections
	// are not affected. deliver sends the bytes that were kept back, also for connections that the
	// client has closed, and returns when the server has read it.
	Delay(t TB) (deliver func())
}

// Foreigner is implemented by a Harness that can put a foreign value where a lock would be.
type Foreigner interface {
	// Foreign stores a value that dlock did not write in the place of the lock with that key.
	// intact reports whether the value is still there, unchanged. The Harness removes the value at
	// the end of the test.
	Foreign(t TB, key string) (intact func() bool)
}

// EntryLocker is implemented by a Harness whose server can lock one entry against changes, as a
// database locks a row.
type EntryLocker interface {
	// LockEntry locks the entry of the lock with that key from another connection. The entry
	// exists. Changes of it block until unlock is called; changes of other entries do not.
	LockEntry(t TB, key string) (unlock func())
}

// Keeper is implemented by a Harness that can count the entries that its server keeps for
// free locks.
type Keeper interface {
	// Kept returns how many entries the server still keeps for names with that prefix after its
	// retention time. The Harness makes that time pass, by a short setting or by aging the entries.
	Kept(t TB, prefix string) int
}

// Tied is implemented by a Harness whose locks end with the connection of their driver, such as
// advisory locks of a database. A lost answer, which closes the connection, then costs the lock.
// Capabilities.Session alone does not say so: a session of ZooKeeper outlives its connections.
type Tied interface {
	// Tied does nothing.
	Tied()
}

// Addressed is implemented by a Harness whose drivers are opened by a URL.
type Addressed interface {
	// URL returns a URL of the server for the registered [backend.Opener] of its scheme.
	URL() string
	// Secret returns the password in the URL, empty if it has none.
	Secret() string
}

// ability returns the Harness as a T, one of the abilities. If the Harness lacks it, the case does
// not apply.
func ability[T any](f *fixture) T {
	f.Helper()
	able, ok := f.harness.(T)
	if !ok {
		f.inapplicable("the Harness is no %v", reflect.TypeFor[T]())
	}
	return able
}

// isTied reports whether locks end with their connection.
func (f *fixture) isTied() bool { _, ok := f.harness.(Tied); return ok }

// inapplicable ends a case that has nothing to check on this backend.
func (f *fixture) inapplicable(format string, args ...any) {
	f.Helper()
	f.Skipf("%s%s", inapplicablePrefix, fmt.Sprintf(format, args...))
}

// inapplicablePrefix begins the reason of a case that does not apply. The report of make test
// counts such cases separately from the cases that were skipped because there was no server.
const inapplicablePrefix = "does not apply: "

// apart returns another Harness for the same server. It is closed after the drivers of the case.
func (f *fixture) apart() Harness {
	f.Helper()
	able := ability[Apart](f)
	var h Harness
	f.unlabeled(func() { h = able.Apart(f) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.others = append(f.others, h)
	return h
}

// driverOf opens a connection of h that is closed with the case.
func (f *fixture) driverOf(h Harness) backend.Driver {
	f.Helper()
	d := f.dial(h)
	f.onClose(func() { _ = d.Close() })
	return d
}

// tappedOf opens a client with a tap over a connection of h.
func (f *fixture) tappedOf(h Harness, opts ...dlock.Option) (*dlock.Client, *tap) {
	f.Helper()
	d := f.dial(h)
	t := newTap(f, d, 0)
	return f.clientOver(t, opts...), t
}
