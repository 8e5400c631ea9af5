// Package zkbackend is dlock's driver for ZooKeeper 3.5 or later. It also works with 3.4, which has
// no container nodes.
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
// The chroot must exist. Locks are stored below it, in the node dlock. Parameters:
//
//	session      session timeout to request; default: the client's TTL and a tick
//	acl          auth: only the user may access the driver's nodes (default with a
//	             user); world: any client may (default without a user)
//	tls          1: connect over TLS
//	ca           file with the certificates to trust, instead of the system's
//	cert, key    files with the client's certificate and its key
//	server-name  name that the server's certificate must carry, instead of the host
//
// The last four need tls=1. No parameter turns off the verification of the certificate. User and
// password authenticate by the scheme digest.
//
// # Guarantees
//
// A lock is an ephemeral node in the session of its holder. All locks of a driver share one session
// and one connection. When the servers end the session, all of its locks are lost at once. The
// driver reports each loss, and opens another session, which has none of these locks.
//
// The session's timeout follows the TTL of the client: the parameter ttl of the URL, else WithTTL
// at Open, else 30 s. It is one tick of the server longer, for a reason that follows. The parameter
// session overrides it. The servers grant timeouts between 2 and 20 of their ticks (4 s to 40 s by
// default). The driver reads the granted timeout from the connection, because the client library
// does not expose it.
//
// The longest TTL of a lock, Capabilities.MaxTTL, is the client's TTL or three quarters of the
// session's timeout, whichever is more. A longer TTL is ErrUnsupported at Open. A much shorter TTL
// is served: its leases end after the TTL, but a holder that dies blocks the lock until its session
// ends. Open logs a warning about that. The same is true of a shorter WithTTL of a single lock:
// after a crash the session decides. The lock of a process that dies is free after the session's
// timeout, rounded up to a tick. That is within S after the TTL, where S is the shortest session
// that the server grants, and a TTL below half of S counts as half of S. S is the server's
// minSessionTimeout, by default two ticks.
//
// A lease ends at the latest one TTL after the last proof of the session. A proof is a write that a
// majority of the servers has confirmed. Renewals make one for all locks together. A sync is no
// proof: a leader without followers answers syncs for some ticks. The end of a lease does not
// depend on the client library, which detects an expired session only when it reaches the servers
// again.
//
// A server that is not the leader reports the sessions of its clients with its next heartbeat,
// within half a tick. If it fails before that, and its clients reach no other server, the leader
// counts the timeout from an earlier report. Measured without a remedy: a second holder for 1.2 s
// of 6 s. Therefore a proof counts from the last ping that was answered early enough for the leader
// to have its report. The session pings often enough that this costs less than a tick: every 0.45 s
// with the default tick of 2 s. With a longer session= the pings are rarer.
//
// The driver takes the tick from the shortest session that the server grants. That is two ticks
// unless minSessionTimeout is set. Open makes an additional session to measure it.
//
// When the data of an ensemble is wiped or restored from an older copy, its locks are gone, and
// fences start again with lower numbers: see Fencing. Running clients recover without a restart.
// The servers refuse their sessions, which have seen later transactions. After a silence of its
// session's timeout and two ticks, a client opens another session.
//
// Every request can be repeated safely. The owner is part of the node's name. After a request
// without an answer the driver searches for its node before it repeats the request. An attempt that
// was given up is undone in the same way.
//
// # Fencing
//
// The fence is the number of the transaction that created the holder's node (czxid), unchanged: the
// number of the leader's epoch << 32 plus a counter. It increases over the whole ensemble, across
// changes of nodes, clients and leaders, as long as the ensemble keeps its data. In the terms of
// [backend.Fencing] it is durable. After a loss of the data a former holder has the higher fence.
// The resource must then forget the fences that it has seen, as with a new ensemble.
//
// The fence stays below 2^51 for 524,287 elections of a leader. The core refuses a higher one. The
// numbers in the names of nodes only order the queue, and restart with it. A Downgrade creates
// another node, whose data has the fence.
//
// The servers cannot number more than 2^31-1 nodes of one queue. A queue reaches that only if it is
// in use at each of the servers' checks for empty containers, for 25 days at 1,000 attempts a
// second. Then waiters poll, and the lock goes to an attempt that finds the queue empty. The last
// client to leave removes the queue, and the numbers restart.
//
// # Waiting
//
// Waiters always stand in a queue. They are served in the order in which the first waiter of each
// client arrived. Each watches one node in front of its own, usually the nearest, so that a release
// wakes one waiter. If that node was the only one in front, the waiter becomes the holder without
// another request. Otherwise it lists the queue again. Waiters and holders also watch their own
// node: to delete a holder's node breaks the lock, and the driver reports the loss at once. All
// watches share the connection of the session. In addition, the core polls. An attempt of a caller
// that does not wait lists the queue before it creates a node.
//
// Readers and permits stand in the same queue: the name of a node has its kind. A reader watches
// the nearest writer in front of it. The waiters of a semaphore watch the whole queue, because any
// holder may be the next to leave, so each change wakes one waiter of each client. A writer becomes
// a reader by one transaction that replaces its node in the same place.
//
// The server executes requests in the order in which they were sent. So inside a process the next
// waiter sends its request after the release without waiting for the release's answer.
//
// An uncontended Lock and Unlock are three requests, of which two write. The driver does not wait
// for the answer to the third, which watches the node. The first use of a name takes two more: the
// driver creates the lock's node with its name, whose answer it awaits, and the queue in that node.
// It never writes to a node that stands in the place of a lock's node but does not hold its name:
// the lock is ErrConflict. Before a Lock of a name that the driver has not used for 15 s, it reads
// whether there is a queue, unless the last such name was new. A driver remembers the uses of at
// least 8,192 names.
//
// # Empty nodes
//
// The node of a lock and its queue are containers, which the servers remove within about two
// minutes after the last use. They remove at most 10,000 containers a minute, which are the nodes
// of 5,000 locks (znode.container.maxPerMinute). An attempt that fails during the first use of a
// name can leave containers that were never used. The servers keep those until the next use of the
// name, unless znode.container.maxNeverUsedIntervalMs is set. On servers without containers the
// driver removes both nodes with the last node of the queue.
//
// List reads the names of all locks in one answer, which may have 8 MiB. That is enough for 100,000
// locks whose encoded names have 80 bytes. A longer answer ends the connection: List fails, and the
// requests of other locks that are under way have an unknown outcome. The session and its locks
// live on. The same limit applies to the queue of one lock.
//
// # Server requirements
//
// ZooKeeper 3.5, or 3.4 with the restriction above. The user needs all permissions on the node
// dlock below the chroot, or the permission to create it. Other users have no access to a node that
// the driver creates with acl=auth: users that share locks use the same user name, or acl=world.
// The server accepts any user and password and denies access only later, so Open checks the access.
//
// The session timeout must lie within the servers' minSessionTimeout and maxSessionTimeout, by
// default 2 and 20 times tickTime. These three settings must be the same on all servers. If another
// server grants a shorter timeout to a session, the driver ends the session: its locks are lost.
// minSessionTimeout must be at least two ticks. From a shorter one the driver would compute too
// short a tick. It would then trust a session for up to half a tick too long when its server fails.
//
// A client must not connect to an observer that follows an observer master (observerMasterPort).
// The report of such an observer takes two heartbeats. If these servers fail, the driver trusts a
// session for up to half a tick too long.
//
// Each driver uses one connection (maxClientCnxns, by default 60 for one address) and about 2 MiB
// for its buffers.
package zkbackend
