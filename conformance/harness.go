package conformance

import (
	"fmt"
	"reflect"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// A Harness may implement any of the interfaces in this file. A case that needs one is skipped,
// and counted, where the Harness lacks it. Each ability concerns the server as it is, so a case
// checks the driver and the core, and never a stand-in.

// Apart is implemented by a Harness that can stand for a second host.
type Apart interface {
	// Apart returns another Harness to the same server. Its Faults concern its own connections
	// alone, so a case can cut off or stop one process and leave the others connected. The case
	// closes it.
	Apart(t TB) Harness
}

// Delayer is implemented by a Harness that can deliver a request long after the client gave it up.
type Delayer interface {
	// Delay keeps back everything that the drivers send on connections that are open now. It
	// keeps the server's end of such a connection open when the client closes its own. Later
	// connections are not affected. deliver sends what was kept back, also for connections that
	// the client has closed, and returns when the server has read it.
	Delay(t TB) (deliver func())
}

// Foreigner is implemented by a Harness that can put a foreign value where a lock would be.
type Foreigner interface {
	// Foreign stores a value that is not dlock's in the place of the lock with that key. intact
	// reports whether the value is still there, unchanged. The Harness removes it at the end of
	// the test.
	Foreign(t TB, key string) (intact func() bool)
}

// EntryLocker is implemented by a Harness whose server can lock one entry against changes, as a
// database locks a row.
type EntryLocker interface {
	// LockEntry locks the entry of the lock with that key, which exists, from another connection.
	// Changes of it block until unlock; those of other entries do not.
	LockEntry(t TB, key string) (unlock func())
}

// Keeper is implemented by a Harness that can count what its server keeps of free locks.
type Keeper interface {
	// Kept returns how many entries the server still keeps for names with that prefix after its
	// retention time. The Harness makes that time pass, by a short setting or by aging the
	// entries.
	Kept(t TB, prefix string) int
}

// Addressed is implemented by a Harness whose drivers are opened by a URL.
type Addressed interface {
	// URL returns a URL of the server for the registered [backend.Opener] of its scheme.
	URL() string
	// Secret returns the password in the URL, empty if it has none.
	Secret() string
}

// ability returns what the Harness can do besides the faults. The case does not apply where the
// Harness cannot do it.
func ability[T any](f *fixture) T {
	f.Helper()
	able, ok := f.harness.(T)
	if !ok {
		f.inapplicable("the Harness is no %v", reflect.TypeFor[T]())
	}
	return able
}

// inapplicable ends a case that has nothing to check on this backend.
func (f *fixture) inapplicable(format string, args ...any) {
	f.Helper()
	f.Skipf("%s%s", inapplicablePrefix, fmt.Sprintf(format, args...))
}

// inapplicablePrefix begins the reason of a case that does not apply. The report of make test
// counts such cases apart from those that were skipped for want of a server.
const inapplicablePrefix = "does not apply: "

// apart returns another Harness to the same server, which is closed after the case's drivers.
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

// driverOf opens a connection of h, which is closed with the case.
func (f *fixture) driverOf(h Harness) backend.Driver {
	f.Helper()
	d := f.dial(h)
	f.onClose(func() { _ = d.Close() })
	return d
}

// tappedOf opens a client over a connection of h.
func (f *fixture) tappedOf(h Harness, opts ...dlock.Option) (*dlock.Client, *tap) {
	f.Helper()
	d := f.dial(h)
	t := newTap(f, d, 0)
	return f.clientOver(t, opts...), t
}
