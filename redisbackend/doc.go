// Package redisbackend is dlock's driver for Redis 6.2 or later and Valkey.
//
//	import _ "github.com/dlock-go/dlock/redisbackend"
//
//	client, err := dlock.Open(ctx, "redis://localhost:6379")
//
// An application that already has a client of go-redis passes it to [New].
//
// # URLs
//
//	redis://[user:password@]host[:6379][/database]
//	redis://[user:password@]/[database]?socket=/path
//	redis+cluster://[user:password@]host[:6379][,host[:6379]…]
//	redis+sentinel://[user:password@]host[:26379][,host[:26379]…]/master[/database]
//	rediss://…, rediss+cluster://…, rediss+sentinel://…      the same over TLS
//
// A URL with one host is a single server. A cluster needs only some of its nodes in the URL,
// because they report the rest; it has no numbered databases. For Sentinel the hosts are all the
// sentinels, while user and password belong to the servers that the sentinels watch. Parameters:
//
//	timeout            limit for one request and for connecting, by default DefaultTimeout; it
//	                   should be well below 5 s, see Options.Timeout
//	wait               number of replicas that must acknowledge a lock and each of its
//	                   renewals, by default none
//	socket             path of a unix socket, instead of a host
//	sentinel-user      for the sentinels themselves, if they require it
//	sentinel-password
//	ca                 file with the certificates to trust, instead of the system's
//	cert, key          files with the client's certificate and its key
//	server-name        name that the servers' certificates must have, instead of the host
//
// The last four parameters require rediss. No parameter turns the check of the certificate off: ca
// names a private authority.
//
// # Guarantees
//
// A lock excludes other holders as long as the server keeps its data and its clock is not stepped.
// Some faults make the server forget a held lock: a failover to an asynchronous replica, FLUSHALL,
// a restart without an append-only file, and eviction under memory pressure. A step of the server's
// clock can end a lock early. In these cases the fence still distinguishes the holders. If the
// clock is set back, the lock of a holder that has died before stays taken for that much longer.
//
// With wait=1 a lock, and each renewal, is valid only after a replica has acknowledged it. So a
// holder never relies on a term that the replica does not have. This includes renewals, because a
// promoted replica that has missed one would end the lock before its holder does. A lock without
// its replicas is released again, and Acquire returns ErrUnavailable. An export, an adoption or a
// downgrade without its replicas has an unknown outcome. A lease whose renewals lack their replicas
// is lost at its deadline.
//
// This suffices for a master with one replica. With more replicas, wait should be their number.
// Otherwise a replica without the lock may be promoted. Or a master stands still while it is
// replaced, and then finds a replica that still follows it. Both cases lead to two holders.
//
// Two risks remain. A replica acknowledges before it has written to its disk. And a term ends at a
// time of the server's clock. A promoted replica whose clock is ahead by more than 1 % of the TTL
// and 10 ms ends a lock before its holder does. If a slot of a cluster moves to a master with such
// a clock, the terms of its readers and permits end early, too. An exclusive lock moves with its
// remaining time.
//
// A demoted master that has not detected its demotion refuses each request: the driver accepts no
// answer of a replica.
//
// Each request is one Lua script that can safely be repeated. Acquiring is idempotent by owner,
// renewing and releasing check the owner, and all times are the server's. So a lost answer never
// leads to a second holder, or to a lock that stays taken without a holder. Renewals and releases
// work on a server that has no memory left.
//
// The kinds of locks share these scripts. An exclusive lock is a string. Readers and permits are a
// hash with a term for each holder, so they expire one by one. An exported lock has one more key
// with the secret of its handle. If the lock is not adopted, but broken or released, that key lasts
// until the end of the term.
//
// Several locks at once are one script, too, which grants all of them or none. In a cluster, where
// a script has the keys of one slot, they are acquired one by one.
//
// # Fencing
//
// The fence is the last fence plus one, or the server's time in microseconds since 2026 if that is
// greater. All names share one last fence, under the key dlock:fence, which has no expiry; in a
// cluster each slot has its own. So a free lock leaves nothing on the server.
//
// Fences increase as long as the server keeps its data, whatever its clock does. They also increase
// after the server has lost its data, unless its clock was set back. In terms of [backend.Fencing],
// fences are volatile.
//
// # Waiting
//
// Each waiter has an entry in a queue on the server. The script that frees a lock also makes the
// first live entry the holder, in the same step, and sends a message to its client. One connection
// for pub/sub serves all waiters of a driver. It also reports a break to the holder at once. When
// it breaks, all waiters make another attempt. In a cluster the nodes pass the messages on to each
// other. There the driver sends itself a message every 10 s, because a node that has left the
// cluster passes nothing on.
//
// A waiter refreshes its entry every few seconds. An entry that is not refreshed for 10 s, or for a
// TTL if that is shorter, expires: so a waiter that has died, or is stopped, delays the others no
// longer. The lock is granted to a waiter for the remaining time of its entry, and its client
// renews it after 100 ms at the latest.
//
// Readers and permits stand in the same queue. Readers at the front of it are served together.
// While a slot of a cluster is moving to another master, its locks can be renewed, but neither
// acquired nor released.
//
// If the server refuses pub/sub, as some proxies do, Capabilities.Notify is false and the core
// polls.
//
// # Connections
//
// While at most two requests are under way, each is sent singly. Further requests of many
// goroutines go together in pipelines, which need far fewer system calls of client and server.
// While half of the connections are free, a request waits in this way for at most 250 µs. Renewals
// do not wait. In a cluster and with wait=1, every request is sent singly.
//
// # Server requirements
//
// The server is Redis 6.2 or later, or Valkey. In a cluster the keys of a lock are in one slot.
// This process must be able to reach every address that nodes and sentinels report. Under an access
// control list the user needs
//
//	~dlock:* &dlock:* +@read +@write +@scripting +@pubsub +@connection +time +wait +select +asking
//
// and for a better check at opening +info, and in a cluster +cluster|slots. Before Redis 7,
// +@connection does not include the last three rights. With sentinels, +role lets a driver refuse a
// server that has been demoted. A user of the sentinels themselves needs +sentinel|master,
// +sentinel|get-master-addr-by-name, +subscribe, +ping and &+switch-master.
//
// Set maxmemory-policy to noeviction, or use a separate server for locks: eviction removes locks
// from their holders. With appendonly and appendfsync always, locks survive a crash.
package redisbackend
