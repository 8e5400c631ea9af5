// Package redisbackend is dlock's driver for Redis 6.2 or later and Valkey.
//
//	import _ "github.com/dlock-go/dlock/redisbackend"
//
//	client, err := dlock.Open(ctx, "redis://localhost:6379")
//
// Who has a client of go-redis already hands it to [New].
//
// # URLs
//
//	redis://[user:password@]host[:6379][/database]
//	rediss://…                            the same over TLS
//	redis://[user:password@]/[database]?socket=/path
//
// Exactly one host. Parameters:
//
//	timeout      bound of one request and of connecting, default 3s
//	socket       path of a unix socket, instead of a host
//	ca           file with the certificates to trust, instead of the system's
//	cert, key    files with the client's certificate and its key
//	server-name  name that the server's certificate must carry, instead of the host
//
// The last four go with rediss. There is no parameter that turns the check
// of the certificate off: a private authority is named with ca.
//
// # Guarantees
//
// A lock excludes as long as the server keeps its data and its clock is not
// stepped. A fail-over to an asynchronous replica, FLUSHALL, a restart without
// an append-only file, or eviction under memory pressure can forget a lock
// that is held; a step of the server's clock can end it early. Then the
// fence still tells the holders apart.
//
// Each request is one Lua script and safe to repeat: acquiring is
// idempotent by owner, renewing and releasing check the owner, and all time
// is the server's. A lost answer therefore never becomes a second holder nor an
// orphan. Renewing and releasing work on a server that has run out of memory.
//
// # Fencing
//
// The fence is the greater of the last one plus one and the server's time in
// microseconds since 2026, kept for a day after the last use of the name. It
// keeps growing when the server loses its data, unless the server's clock has
// been set back too: volatile, in the words of [backend.Fencing].
//
// # Waiting
//
// One connection for pub/sub serves everybody who waits through a driver,
// and tells holders at once that their lock was broken. A waiter subscribes to its
// lock's channel, awaits the acknowledgement, and tries once more before it relies on
// messages; after a reconnection everybody tries once more. Beneath it the core's timer runs
// on the holder's remaining term. Fair waiters stand in a queue on the server, and whoever
// makes a lock free makes the first of them the holder in the same step. Places that
// are not refreshed for a TTL lapse. While a queue stands, those who did not ask for
// fairness do not get past it either.
//
// Where the server refuses pub/sub, as some proxies do, Capabilities.Notify is
// false and the core polls.
//
// # Server requirements
//
// Redis 6.2 or Valkey, not in cluster mode. Under an access control list the user needs
//
//	~dlock:* &dlock:* +@read +@write +@scripting +@pubsub +@connection +time
//
// and for a better check at opening +info. Set maxmemory-policy to
// noeviction, or give locks a server of their own: eviction takes locks away from
// their holders. Appendonly with appendfsync always lets locks survive a crash.
package redisbackend
