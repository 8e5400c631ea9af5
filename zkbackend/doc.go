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
//	session      session timeout to ask for, default 30s
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
// The servers keep a session for a timeout that they grant, between 2 and 20 of
// their ticks (4 s to 40 s by default); it is read from the wire, since the client library
// keeps it to itself, and is the longest TTL. A lease with that TTL ends that long after the last proof
// of the session: the sending of a request that the leader has answered, of which renewals make
// one for all locks together. The end does not depend on what the client library has noticed:
// cut off from the servers it learns of an expired session only when it reaches them
// again. A lease with a shorter TTL ends sooner for its holder; for others a holder that dies or is
// cut off blocks the lock for the session's timeout in any case, rounded up to a tick.
//
// A server that is not the leader passes on that it has heard from a session with its next heartbeat,
// within half a tick. If it is cut off from the leader in between, and its clients from all
// other servers with it, the session may end up to a third of its timeout early. A TTL of at most two
// thirds of the session's timeout, of five ticks or more, is safe even then. Otherwise, as when the
// data of an ensemble is wiped or restored, the fence still tells the holders apart.
//
// Everything is safe to repeat: the owner stands in the name of the node, so that a request without
// an answer is looked for before it is repeated, and is undone if it was given up.
//
// # Fencing
//
// The fence is the number of the transaction that made the holder's node (czxid), as it is: the
// number of the leader's epoch << 32 plus a counter. It increases over the whole ensemble,
// whatever becomes of nodes, clients and leaders: durable, in the words of
// [backend.Fencing]. It stays below 2^51 for 524,287 elections of a leader; a grant beyond
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
// not waited for. A lock's node is a container: the
// servers remove it within a minute or so of the last use. On servers without containers
// the driver removes it with the last node in it.
//
// # Server requirements
//
// ZooKeeper 3.5, 3.4 with the reservation above. The user needs all permissions on the node dlock below the
// chroot, or that of creating it. A node that the driver makes with acl=auth is closed to other
// users: users that share locks share a name, or say acl=world. The server takes any user and
// password and only denies access later: opening makes sure of it.
//
// The session timeout must lie within the servers' minSessionTimeout and maxSessionTimeout, which by
// default are 2 and 20 times tickTime; WithTTL is at most what was granted. Each driver is one
// connection (maxClientCnxns, by default 60 for one address) and holds some 2 MiB for
// its buffers.
package zkbackend
