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
//	redis://[user:password@]/[database]?socket=/path
//	redis+cluster://[user:password@]host[:6379][,host[:6379]…]
//	redis+sentinel://[user:password@]host[:26379][,host[:26379]…]/master[/database]
//	rediss://…, rediss+cluster://…, rediss+sentinel://…      the same over TLS
//
// One host is a server of its own. Of a cluster some nodes are enough: they name the others; it
// has no numbered databases. For Sentinel the hosts are the sentinels, all of them, and user and password
// are those of the servers behind them. Parameters:
//
//	timeout            bound of one request and of connecting, default 3s
//	wait               how many replicas must have acknowledged a lock and each of its
//	                   renewals, default none
//	socket             path of a unix socket, instead of a host
//	sentinel-user      for the sentinels themselves, if they ask for it
//	sentinel-password
//	ca                 file with the certificates to trust, instead of the system's
//	cert, key          files with the client's certificate and its key
//	server-name        name that the servers' certificates must carry, instead of the host
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
// With wait=1 a lock, and each renewal, counts only when a replica has acknowledged it, so a holder
// relies on nothing that the replica does not know. That is why renewals count too: a promoted
// replica that has missed one would end the lock before its holder does. A lock without its
// replicas is released again and ErrUnavailable; a lease whose renewals lack them is lost
// at its deadline. That suffices for a master with one replica. With
// more of them let wait be their number: else a replica without the lock may be promoted, or a master
// that stood still while it was replaced finds a replica that still follows it. In both cases there
// are two holders. What remains is that a replica acknowledges before it has written to its disk.
//
// A demoted master that has not noticed yet refuses each request: the driver believes no answer of
// a replica.
//
// Each request is one Lua script and safe to repeat: acquiring is
// idempotent by owner, renewing and releasing check the owner, and all time
// is the server's. A lost answer therefore never becomes a second holder nor an
// orphan. Renewing and releasing work on a server that has run out of memory.
//
// # Connections
//
// As long as no more than two requests are under way at once, each is sent by itself. What many
// goroutines ask for beyond that goes together in pipelines, which takes far fewer system calls of
// client and server; while half of the connections are free a request waits for others for 250 µs at most. Renewals
// do not wait. In a cluster and with wait=1 every request is sent by itself.
//
// # Fencing
//
// The fence is the greater of the last one plus one and the server's time in microseconds since
// 2026. The last one is that of all names, under the key dlock:fence, which has no expiry; in a
// cluster each slot has its own. So a free lock leaves nothing on the server. Fences keep growing as
// long as the server keeps its data, whatever its clock does. They also keep growing when the server
// loses its data, unless its clock was set back: volatile, in the words of [backend.Fencing].
//
// # Waiting
//
// One connection for pub/sub serves everybody who waits through a driver,
// and tells holders at once that their lock was broken. A waiter subscribes to its
// lock's channel, awaits the acknowledgement, and tries once more before it relies on
// messages; when the connection breaks everybody tries once more. Beneath it the core's timer runs
// on the holder's remaining term. Fair waiters stand in a queue on the server, and whoever
// makes a lock free makes the first of them the holder in the same step. Places that
// are not refreshed for a TTL lapse. While a queue stands, those who did not ask for
// fairness do not get past it either.
//
// In a cluster that connection is joined by one to each master that has locks which are waited
// for, as releases are told by sharded pub/sub where there is one, since Redis 7. What goes to
// one client alone, a place in the queue or a break, is told to all nodes. While a slot is on its way
// to another master its locks can be renewed, but neither taken nor released.
//
// Where the server refuses pub/sub, as some proxies do, Capabilities.Notify is
// false and the core polls.
//
// # Server requirements
//
// Redis 6.2 or Valkey. In a cluster the keys of a lock are in one slot. Every address that nodes and
// sentinels tell must be one that this process reaches. Under an access control list the user needs
//
//	~dlock:* &dlock:* +@read +@write +@scripting +@pubsub +@connection +time
//
// and for a better check at opening +info, and in a cluster +cluster|slots. Behind
// sentinels +role lets a driver refuse a server that has been demoted. A user of the sentinels
// themselves needs +sentinel|master, +sentinel|get-master-addr-by-name, +subscribe, +ping and
// &+switch-master. Set maxmemory-policy to
// noeviction, or give locks a server of their own: eviction takes locks away from
// their holders. Appendonly with appendfsync always lets locks survive a crash.
package redisbackend
