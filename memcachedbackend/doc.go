// Package memcachedbackend is dlock's driver for memcached.
//
//	import _ "github.com/dlock-go/dlock/memcachedbackend"
//
//	client, err := dlock.Open(ctx, "memcached://localhost:11211")
//
// A cache may forget any value at any time. Use this backend where a lock avoids duplicate work, or
// where the resource checks the fence. For work that must never run twice, use another backend.
//
// # URLs
//
//	memcached://[user:password@]host[:11211][,host[:11211]…]/
//	memcached:?socket=/path
//
// Several hosts share the names among them; no host is a copy of another. The server of a name is
// computed from the hosts and ports in the list, so every process must write the same hosts and
// ports. Their order and the letter case of hosts do not matter. All locks must have ended before
// the list changes. If the holder of a lock has another list, and both lists lead to the same
// server for its name, Acquire returns ErrConflict, not *Busy. Otherwise nothing detects the
// difference, and both processes can hold the lock.
//
// Opening requires one server that answers. The names of a dead server cannot be locked. They are
// ErrUnavailable if the server refuses connections; if it accepts them and does not answer, TryLock
// may return ErrUncertain. Parameters:
//
//	timeout      limit for connecting and for each request, default DefaultTimeout
//	conns        connections to each server for acquiring, default DefaultConns;
//	             renewals and releases have 8 more, and renewals another 4
//	socket       path of a unix socket, instead of hosts
//	tls          1: over TLS
//	ca           file with the certificates to trust, instead of the system's
//	cert, key    files with the client's certificate and its key
//	server-name  name that the servers' certificates must carry, instead of the host
//
// The last four require tls=1. User and password are for servers with an auth file (-Y). A server
// without one demands no password: the driver sends it none and does not open (ErrUnavailable). The
// driver does not support SASL.
//
// # Guarantees
//
// A lock excludes other holders as long as its server keeps the value. These events forget a held
// lock: a restart, flush_all, eviction under memory pressure, and a proxy that sends the names of a
// dead server to another server. The holder's next renewal reports the loss, a third of the TTL
// later. Until then a second holder may exist, and only the fence distinguishes the two.
//
// Acquiring is one add. The value contains the owner, so a client that repeats a request after a
// lost answer finds itself. Renewing and releasing read the value (gets) and write it only if it
// has not changed (cas). Both requests use the same connection, because a restarted server assigns
// the same cas ids again. The driver never prolongs or deletes a value by its name alone. A lost
// answer therefore never leads to a second holder or to an orphan.
//
// A proxy hides such a restart. If its server is restarted between the two requests of a renewal or
// a release, the write may hit the lock of the next holder.
//
// The server counts whole seconds, in ticks. It keeps a value of n seconds for n-2 to n seconds,
// mostly for more than n-1. The driver therefore requests two seconds more than it promises. A TTL
// of 1.5 s is rounded up to 2 s, the driver requests 4 s, and the lock of a dead holder is free
// after two to four seconds. The minimum TTL is one second, the maximum 30 days less two seconds.
//
// A server that was stopped (SIGSTOP, a suspended machine) has a stale clock for an instant after
// it resumes. A value that it stores in this instant may end early, as if it were evicted.
//
// # Fencing
//
// The fence comes from a counter that the server keeps in addition to the lock. The driver seeds
// the counter with the client's time, in microseconds since 2026, and the counter expires a day
// later. The driver draws the fence while it holds the lock, and stores it in the lock's value. An
// acquisition that cannot be sure of both fails.
//
// Fences keep growing when the server loses its data, with two exceptions. The clocks of the
// clients may differ by more than the time since the counter was seeded, or the request that seeds
// it may be under way for as long. This is volatile in the sense of [backend.Fencing].
//
// # Waiting
//
// memcached notifies no clients, so the core polls. For each name, one waiter of each process
// polls, with jittered pauses (see dlock.WithPollInterval) and two requests each time. The pauses
// grow while one holder keeps the lock, and are reset when the lock has changed hands.
// Waiters race for the lock; there is no queue.
//
// # Export and Adopt
//
// The ticket of an exported lock is a secret in its value, which every client of the server can
// read: use a handle only among processes that trust each other, as with all values of a cache. An
// adoption is one gets and one cas. The adopter must have the same list of servers.
//
// # Readers and permits
//
// There are none: RWMutex and Semaphore are ErrUnsupported. All holders of a lock would stand in
// one item, which each of them changes with cas, and a change that another one has overtaken begins
// again. Measured on one name, that gave 574 pairs of Acquire and Release a second with one client
// and 132 with 64 clients, and the slowest pair took 2.3 s. A lease with a shorter term would be
// lost. With an item for each permit, no request could compare them with the limit and with a Mutex
// of the same name: the server evicts each item separately, and changes one at a time.
//
// # Server requirements
//
// The driver needs memcached 1.6 with cas, which -C turns off. Opening checks what the driver
// needs. An older server that passes the checks works, and so does a proxy that forwards gets and
// cas.
//
// Give locks their own server, with spare memory. With -M a full server refuses new locks; without
// it, the server evicts held locks. Renewals need a little room, too. The server's limit of
// connections (-c, 1024) must suffice for all processes: each opens at most conns + 12.
package memcachedbackend
