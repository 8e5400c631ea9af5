// Package etcdbackend is dlock's driver for etcd 3.4 or later.
//
//	import _ "github.com/dlock-go/dlock/etcdbackend"
//
//	client, err := dlock.Open(ctx, "etcd://localhost:2379")
//
// Who has a client of etcd already hands it to [New].
//
// # URLs
//
//	etcd://[user:password@]host[:2379][,host[:2379]…][/root]
//	etcds://…                             the same over TLS
//
// Several hosts are members of one cluster. All keys are under root, /dlock if there
// is none. No part of root but the first may be "lock". Parameters:
//
//	timeout      bound of one request, default 3s; a quarter of the TTL if that is less, but 1s
//	ca           file with the certificates to trust, instead of the system's
//	cert, key    files with the client's certificate and its key
//	server-name  name that the servers' certificates must carry, instead of the host
//
// The last four go with etcds. There is no parameter that turns the check
// of the certificate off: a private authority is named with ca.
//
// # Guarantees
//
// A lock excludes, whichever member fails, as long as the cluster keeps its data: what is
// granted has been written by a majority. Time is the leader's monotonic clock. A new
// leader begins every term anew, so that the lock of a dead process can outlive
// its term by one more, and is never freed early.
//
// Each acquisition is a key of its own under root/lock/name/, the first one made is the
// holder. Requests are safe to repeat, as they name that key: a lost answer becomes
// neither a second holder nor an orphan. The keys of one client hang on one lease of
// etcd per TTL, which is kept alive for all of them together, by no request but those that
// the core makes. A key without an acquisition, left by a request that was executed long
// after it was given up, is removed with the next keep-alive. Close revokes the leases on which
// nothing hangs any more, and waits up to a second for that.
//
// What many goroutines ask for at once goes together, in transactions of up to 64 locks: as long as no more than two
// requests are under way each is sent by itself. What one of them may have brought upon all, such as a lack of
// permission, is asked again one by one.
//
// # Fencing
//
// The fence is the create revision of the holder's key, which the whole cluster counts. It
// is durable. A cluster that is restored from a snapshot goes on where the snapshot
// stood, unless it is restored with etcdutl --bump-revision: do that.
//
// # Waiting
//
// Waiters are served in the order in which they came. They share one watch per contended
// name, opened before the first of them queues and kept for a second after the last: with
// it the driver keeps a copy of the queue, and knows without another request when
// the turn of one of its own has come. A watch that ends, for whatever reason, sends everybody
// to look again. One more watch per client tells holders at once that their lock
// was broken. All watches need a member with a leader, and share one stream.
//
// # Server requirements
//
// etcd 3.4 or later; before 3.4.31 and 3.5.13 a leader that was replaced, but did not notice yet,
// could revoke leases before their term was over. With authentication the user needs
//
//	etcdctl role grant-permission ROLE readwrite --prefix=true /dlock/
//
// The shortest TTL is the server's own minimum, 2 s unless it is configured otherwise;
// TTLs are rounded up to whole seconds. Connect to members, not to a gRPC proxy.
package etcdbackend
