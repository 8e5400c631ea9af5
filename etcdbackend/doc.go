// Package etcdbackend is dlock's driver for etcd 3.4 or later.
//
//	import _ "github.com/dlock-go/dlock/etcdbackend"
//
//	client, err := dlock.Open(ctx, "etcd://localhost:2379")
//
// A program that already has a client of etcd passes it to [New].
//
// # URLs
//
//	etcd://[user:password@]host[:2379][,host[:2379]…][/root]
//	etcds://…                             the same over TLS
//
// Several hosts are members of one cluster. All keys are under root, which is [DefaultRoot] if the
// URL has none. Only the first part of root may be "lock". The parameters:
//
//	timeout      limit of one request, DefaultTimeout by default; see Options.Timeout
//	ca           file with the certificates to trust, instead of the system's
//	cert, key    files with the client's certificate and its key
//	server-name  name that the servers' certificates must carry, instead of the host
//
// The last four parameters require etcds. No parameter turns the check of the certificate off: ca
// names the certificate of a private authority.
//
// # Guarantees
//
// A lock excludes other holders as long as the cluster keeps its data, whichever member fails: a
// majority has written each grant. The leader's monotonic clock measures the terms. A new leader
// restarts every term. So the lock of a dead process can outlive its term by another term, and no
// lock is freed early, unless a former leader revokes its lease: see Server requirements.
//
// Each acquisition has its own key under root/lock/name/. The key that was created first belongs to
// the holder. Requests name this key, so they are safe to repeat: a lost answer leaves neither a
// second holder nor an orphan.
//
// The keys of one client with the same TTL belong to one lease of etcd. One keep-alive renews all
// of them, and the driver sends it only for an attempt or a renewal of the core. A keep-alive
// counts only if a later read shows that no other leader was elected meanwhile: a leader whose
// process was stopped answers from its memory before it learns of its successor (seen with etcd
// 3.5.30). A request that the server executes long after its caller gave it up leaves a key without
// an acquisition. The driver removes that key with the next keep-alive. Close revokes the leases
// that no lock needs any more, and waits up to a second for that.
//
// Concurrent requests share transactions of up to 64 locks. While at most two requests are under
// way, each request is sent singly. One request can make the server refuse a transaction, for
// example for lack of permission. The driver then sends all its requests again singly.
//
// Several locks at once are one transaction, which creates all keys or none.
//
// # Fencing
//
// The fence is the create revision of the holder's key, which the whole cluster counts. It is
// durable. A cluster that is restored from a snapshot continues with the revision of the snapshot,
// and repeats fences. Prevent this by restoring with etcdutl --bump-revision.
//
// # Waiting
//
// Waiters are served in the order of their arrival. The waiters of one client share one watch per
// contended name. The driver opens it before the first of them queues, and closes it a second after
// the last of them. From the watch it keeps a copy of the queue. So it detects without another
// request that its own waiter is the first. If a watch ends, for whatever reason, its waiters make
// another attempt. One more watch per client reports broken locks to their holders at once. All
// watches require a member with a leader, and share one stream. If that stream does not answer, or
// its token has expired, further watches are opened on another stream.
//
// Readers and permits have keys in the same queue: the value of a key has its kind. A reader holds
// the lock if no writer's key is in front of its own, and a permit if fewer keys than the limit
// are. A writer becomes a reader by writing its key again, which keeps its place.
//
// # Moving
//
// An export writes the key again, with the secret of its handle, and moves it to a lease of its own
// that no client keeps alive. So neither the end of the exporter nor its Close frees the lock. An
// adoption writes the key with the new owner and moves it to the lease of the adopter. The key
// keeps its name and its create revision, and so its place and its fence. Each of these requests
// changes the key only if no other request has changed it since it was read.
//
// # Server requirements
//
// etcd 3.4 or later is required. Before 3.4.31 and 3.5.13 a leader could revoke leases before the
// end of their term, if it was replaced and had not noticed that yet. Later versions first check
// that the member is the leader, but skip the check if its Raft loop has run within three heartbeat
// intervals. So a leader whose process was stopped for longer than a TTL often revokes such leases
// just after it continues. The driver reports this loss at once: each lease has a marker, and the
// watch of the driver shows its removal. One request then confirms that the lease has ended. The
// next holder learns of it at the same time, so the work of the two can overlap for some
// milliseconds. The fence separates them. The removal of a marker alone ends no lock.
//
// A server that has exceeded its quota refuses new locks, Downgrade, Export and Adopt. It executes
// the request that exceeds the quota, and returns the error of a refusal nevertheless. So the
// outcome of such a request is unknown: a Lock returns ErrUnavailable after a TTL, and a single
// attempt may return ErrUncertain. Attempts that share a transaction pass the check of the quota,
// so a full server may still grant some locks. Open, renewals, releases, List and Break work. But
// versions 3.4.0 to 3.4.19 and 3.5.0 to 3.5.6 also refuse transactions that only delete. There
// Break fails, and so do the release of an adopted lock and the removal of late keys.
//
// With authentication the user needs
//
//	etcdctl role grant-permission ROLE readwrite --prefix=true /dlock/
//
// The shortest TTL is the server's own minimum, which is 2 s unless it is configured otherwise.
// TTLs are rounded up to whole seconds. Connect to members, not to a gRPC proxy.
package etcdbackend
