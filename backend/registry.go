package backend

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Opener connects a Driver to the server that u names and probes it: a wrong
// password, a closed port or a server of the wrong kind is told here, not at the
// first lock. ctx bounds the opening, not the Driver's life. An Opener also limits
// itself to 10 s: into a dead network it returns ErrUnavailable by then. See the
// sentinels, such as [ErrUnavailable], for the one that each failure gets. It takes its
// parameters from u before it connects; those that nobody took are refused by
// the core afterwards. An error leaves nothing open and carries no credential.
type Opener func(ctx context.Context, u *URL) (Driver, error)

var registry = struct {
	sync.RWMutex
	openers map[string]Opener
}{openers: map[string]Opener{}}

// imports tells which package of this module serves a scheme.
var imports = map[string]string{
	"mem": "membackend", "file": "filebackend",
	"redis": "redisbackend", "rediss": "redisbackend",
	"redis+cluster": "redisbackend", "rediss+cluster": "redisbackend",
	"redis+sentinel": "redisbackend", "rediss+sentinel": "redisbackend",
	"memcached": "memcachedbackend",
	"zk":        "zkbackend", "zookeeper": "zkbackend",
	"etcd": "etcdbackend", "etcds": "etcdbackend",
	"mysql": "mysqlbackend", "mariadb": "mysqlbackend",
}

// Register makes a scheme known to dlock.Open; drivers call it in init. It
// panics on a scheme that is already registered or that no URL can have.
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

// Schemes returns the schemes that are registered, sorted.
func Schemes() []string {
	registry.RLock()
	defer registry.RUnlock()
	return slices.Sorted(maps.Keys(registry.openers))
}

// Lookup returns the Opener of a scheme. The error of an unknown scheme lists
// the known ones and, for a scheme of this module, the import that adds it.
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
