// Package memcachedbackend is dlock's driver for memcached.
//
//	import _ "github.com/dlock-go/dlock/memcachedbackend"
//
//	client, err := dlock.Open(ctx, "memcached://localhost:11211")
//
// A cache may forget anything at any moment. Take it where a lock saves work
// that would otherwise be done twice, or where its fence is checked; for what must
// never happen twice take another backend.
//
// # URLs
//
//	memcached://[user:password@]host[:11211][,host[:11211]…]/
//	memcached:?socket=/path
//
// Several hosts share the names among them; none is a copy of another. The order
// of the list does not matter, but its words do: every process must name the same servers
// by the same names and ports, since a name's server is found from those. Who changes the
// list first lets all locks end. A lock whose holder has another list is ErrConflict, not
// busy. Opening needs one living server: names of a dead one
// cannot be locked (ErrUnavailable). Parameters:
//
//	timeout      bound of connecting and of one request, default 1s
//	conns        connections to each server for acquiring, default 16; renewing has 8 more
//	socket       path of a unix socket, instead of hosts
//	tls          1: over TLS
//	ca           file with the certificates to trust, instead of the system's
//	cert, key    files with the client's certificate and its key
//	server-name  name that the servers' certificates must carry, instead of the host
//
// The last four go with tls=1. User and password are for servers with an auth file
// (-Y); SASL is not spoken.
//
// # Guarantees
//
// A lock excludes as long as its server keeps it. A restart, flush_all, eviction under
// memory pressure, and a proxy that sends names of a dead server elsewhere forget a
// lock that is held. Its holder is told by its next renewal, a third of the TTL
// later; until then there may be another, and only the fence tells them apart.
//
// Acquiring is one add. The value carries the owner: who repeats a request whose answer
// was lost finds itself, and renewing and releasing read the value (gets) and write it only
// if it is still the same (cas), on the same connection, since a server that was
// restarted gives out the same ids again. Nothing is ever prolonged or deleted
// by its name alone. A lost answer therefore never becomes a second holder nor an
// orphan. A proxy in between hides such a restart: if its server is restarted between the
// two requests of a renewal or a release, the write may hit the lock of the next holder.
//
// The server counts whole seconds, in ticks: of n seconds it keeps something between n-2 and n,
// mostly more than n-1. So it is asked for two seconds more than is promised: a TTL of 1.5 s is
// rounded to 2 s, the server is asked for 4, and a dead holder's lock is free after two to four
// seconds. The least TTL is one second, the greatest 30 days less two seconds. A server
// that was stopped (SIGSTOP, a suspended machine) counts, for an instant after
// it goes on, from a clock that stands still; what it is asked for in that instant
// may end early, as if evicted.
//
// # Fencing
//
// The fence comes from a counter beside the lock, which is seeded with the client's time in
// microseconds since 2026 and given up a day later. It is drawn while the lock is held and stored
// in the lock's value; an acquisition that cannot be sure of both fails. It keeps
// growing when the server loses its data, unless the clocks of the clients differ
// by more than the time since the counter was seeded, or the request that seeds it was under way
// for as long: volatile, in the words of [backend.Fencing].
//
// # Waiting
//
// memcached tells nobody anything, so the core polls: of all that wait for a
// name in one process one asks, with jittered pauses of 5 to 250 ms
// (dlock.WithPollInterval), two requests each time. They grow while one holder keeps the lock, and
// begin anew when it has changed hands. It is a race, not a queue.
//
// # Server requirements
//
// memcached 1.6 with cas, which -C turns off. Opening checks what is needed, so that an
// older server that passes will do, and a proxy that sends gets and cas through. Give locks
// a server of their own, with memory to spare: -M refuses new locks when it is full,
// where otherwise held ones are evicted, but renewals need a little room too. The server's
// limit of connections (-c, 1024) must hold for all processes: each opens at most
// conns + 8.
package memcachedbackend
