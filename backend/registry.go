package backend

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// OpenTimeout limits the opening of a driver of this module: by its Opener, if the
// context does not end earlier, and by its function New. It is shorter than the
// 10 s of dlock.Open, so that Open returns the driver's error, which has the reason.
const OpenTimeout = 8 * time.Second

// Opener connects a Driver to the server of u and probes it. A wrong password, a
// closed port or a server of the wrong kind is reported here, and not at the
// first lock. ctx limits the opening, not the Driver's life. An Opener also limits
// itself to 10 s, better to [OpenTimeout]: in a dead network it returns
// ErrUnavailable by then. See the sentinels, such as [ErrUnavailable], for the
// error of each failure.
//
// It takes its parameters from u before it connects; the core then refuses the
// parameters that were not taken. If it returns an error, it leaves nothing open,
// and the error contains no credential.
type Opener func(ctx context.Context, u *URL) (Driver, error)

// registry holds the openers by scheme.
var registry = struct {
	sync.RWMutex
	openers map[string]Opener
}{openers: map[string]Opener{}}

// imports maps each scheme of this module to the package that serves it.
var imports = map[string]string{
	"mem": "membackend", "file": "filebackend",
	"redis": "redisbackend", "rediss": "redisbackend",
	"redis+cluster": "redisbackend", "rediss+cluster": "redisbackend",
	"redis+sentinel": "redisbackend", "rediss+sentinel": "redisbackend",
	"memcached": "memcachedbackend",
	"zk":        "zkbackend", "zookeeper": "zkbackend",
	"etcd": "etcdbackend", "etcds": "etcdbackend",
	"mysql": "mysqlbackend", "mariadb": "mysqlbackend",
	"postgres": "pgbackend", "postgresql": "pgbackend",
}

// Register makes a scheme available to dlock.Open. Drivers call it in init. It
// panics if the scheme is registered already or is not valid in a URL, or if open
// is nil. It is safe for concurrent use, as are Schemes and Lookup. For example:
//
//	func init() {
//		backend.Register("example", open)  // plain
//		backend.Register("examples", open) // with TLS: open checks u.Scheme
//	}
func Register(scheme string, open Opener) {
	registry.Lock()
	defer registry.Unlock()
	if !validScheme(scheme) || open == nil {
		panic(fmt.Sprintf("dlock: Register of an invalid scheme %q or without an opener", scheme))
	}
	if _, ok := registry.openers[scheme]; ok {
		panic(fmt.Sprintf("dlock: Register called twice for scheme %q", scheme))
	}
	registry.openers[scheme] = open
}

// Schemes returns the registered schemes in sorted order, for the text of errors
// and of help.
func Schemes() []string {
	registry.RLock()
	defer registry.RUnlock()
	return slices.Sorted(maps.Keys(registry.openers))
}

// Lookup returns the Opener of a scheme. The error for an unknown scheme lists
// the registered ones and, for a scheme of this module, the missing import.
func Lookup(scheme string) (Opener, error) {
	registry.RLock()
	defer registry.RUnlock()
	if open, ok := registry.openers[scheme]; ok {
		return open, nil
	}
	known := slices.Sorted(maps.Keys(registry.openers)) // not Schemes, which locks again
	hint := ""
	if pkg, ok := imports[scheme]; ok {
		hint = fmt.Sprintf("; add the import _ \"github.com/dlock-go/dlock/%s\"", pkg)
	}
	return nil, fmt.Errorf("dlock: unknown URL scheme %q: known are %s%s",
		scheme, cmp.Or(strings.Join(known, ", "), "none"), hint)
}
