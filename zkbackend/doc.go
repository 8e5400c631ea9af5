// Package zkbackend is dlock's driver for ZooKeeper 3.5 or later; it also serves on 3.4, which
// has no container nodes.
//
//	import _ "github.com/dlock-go/dlock/zkbackend"
//
//	client, err := dlock.Open(ctx, "zk://zk1,zk2,zk3/app")
//
// # URLs
//
//	zk://[user:password@]host[:2181][,host[:2181]…][/chroot]
//	zookeeper://…                         the same
//
// The chroot must exist; locks lie below it in the node dlock. Parameters:
//
//	session      session timeout to request; default: the client's TTL and a tick
//	acl          auth: what the driver makes is the user's alone (default with a
//	             user); world: anybody's (default without)
//	tls          1: connect over TLS
//	ca           file with the certificates to trust, instead of the system's
//	cert, key    files with the client's certificate and its key
//	server-name  name that the server's certificate must carry, instead of the host
//
// The last four go with tls=1. There is no parameter that turns the check
// of the certificate off. User and password are those of the scheme digest.
//
// # Guarantees
//
// A lock is an ephemeral node in the session of its holder. All locks of a driver share one
// session, one connection and the session's fate: when the servers end it, all are lost at once, are told
// so, and a new session has none of them.
//
// The session's timeout follows the TTL of the client: the parameter ttl of the URL, else WithTTL at
// Open, else 30 s. It is a tick of the server longer, for the reason below. The parameter session
// overrides it. The servers grant what lies between 2 and 20 of their ticks (4 s to 40 s by default).
// What they granted is read from the wire, since the client library keeps it to itself. The longest
// TTL of a lock, Capabilities.MaxTTL, is the client's, or three quarters of the session's timeout if
// that is more. A longer TTL is ErrUnsupported at Open. A much shorter one is served: its
// leases end after the TTL, but a holder that dies blocks the lock until its session ends, and Open
// logs that. The same holds for a shorter WithTTL of a single lock: after a crash the session decides.
// The lock of a process that dies is free after the session's timeout, rounded up to a tick:
// within two ticks of the TTL.
//
// A lease ends a TTL after the last proof of the session, if not before: a write that a majority
// has confirmed (a sync would not do: a leader that the others have left answers it for some ticks), of which renewals make one for all locks together. The end does not depend on
// what the client library has noticed: cut off from the servers it learns of an expired session only
// when it reaches them again.
//
// A server that is not the leader passes on that it has heard from a session with its next heartbeat,
// within half a tick. If it fails in between, and its clients reach no other server, the timeout
// counts from what it passed on before. Measured: without a remedy a second holder for 1.2 s of 6 s.
// So a proof counts from the last ping that was answered early enough for the leader to have heard of it, and the session pings its
// server often enough that this costs less than a tick: every 0.45 s with the default tick of 2 s.
// With a longer session= the pings are rarer. The tick is taken from the shortest session that the
// server grants, which is two ticks unless minSessionTimeout says otherwise. For that Open makes a
// session of its own.
//
// When the data of an ensemble is wiped or restored from an older copy, its locks are gone, and fences begin again
// with lower numbers: see Fencing. Clients that run go on by themselves. The servers refuse
// their sessions, which have seen later transactions, until each client has heard nothing for its session's timeout and two
// ticks; then it begins another.
//
// Everything is safe to repeat: the owner stands in the name of the node, so that a request without
// an answer is looked for before it is repeated, and is undone if it was given up.
//
// # Fencing
//
// The fence is the number of the transaction that made the holder's node (czxid), as it is: the
// number of the leader's epoch << 32 plus a counter. It increases over the whole ensemble,
// whatever becomes of nodes, clients and leaders, as long as the ensemble keeps its data: durable, in the words of
// [backend.Fencing]. After a loss of the data a former holder has the higher fence, so the resource must forget the fences that
// it has seen, as with a new ensemble. It stays below 2^51 for 524,287 elections of a leader; a grant beyond
// is refused by the core. The numbers in the names of nodes only order the queue: they begin
// anew with the lock's node, and overflow, which is minded.
//
// # Waiting
//
// Waiters stand in a queue, always: each is served in the order in which its client's first waiter arrived.
// Each watches one node before its own, as a rule the nearest, so that a release wakes one. Where
// that was the first of all it is the holder then, without another request; otherwise it looks who is left. It
// also watches its own node, as does the holder: who deletes that breaks the lock, and
// the holder is told at once. The watches of all who wait share the one connection; beneath
// them the core's timer looks again. An attempt that would not wait looks before it queues.
//
// Requests are executed in their order: inside a process the next waiter sends its own behind the release, whose answer it
// does not wait for.
//
// An uncontended Lock and Unlock is three requests, of which two write; the third, which watches the node, is
// not waited for. The first use of a name takes three more: the failed attempt, the
// lock's node with its name, and the queue in it. Both are containers: the
// servers remove them within two minutes or so of the last use. On servers without containers
// the driver removes them with the last node of the queue. A node in the place of a lock's own that has not
// its name in it is never written to: the lock is ErrConflict.
//
// # Server requirements
//
// ZooKeeper 3.5, 3.4 with the reservation above. The user needs all permissions on the node dlock below the
// chroot, or that of creating it. A node that the driver makes with acl=auth is closed to other
// users: users that share locks share a name, or say acl=world. The server takes any user and
// password and only denies access later: opening makes sure of it.
//
// The session timeout must lie within the servers' minSessionTimeout and maxSessionTimeout, which by
// default are 2 and 20 times tickTime. minSessionTimeout must not be less than two ticks, and must be
// the same on all servers: from a shorter one the driver would learn too short a tick, and trust a
// session for up to half a tick too long when its server fails. Each driver is one
// connection (maxClientCnxns, by default 60 for one address) and holds some 2 MiB for
// its buffers.
package zkbackend
