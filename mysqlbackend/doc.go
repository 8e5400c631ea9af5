// Package mysqlbackend is dlock's driver for MySQL 8.0 or later and MariaDB 10.6 or later.
//
//	import _ "github.com/dlock-go/dlock/mysqlbackend"
//
//	client, err := dlock.Open(ctx, "mysql://app:password@localhost/jobs?create=1")
//
// Applications that already have a *sql.DB pass it to [New].
//
// # URLs
//
//	mysql://[user:password@]host[:3306]/database
//	mariadb://…                                  the same
//	mysql://[user:password@]/database?socket=/path
//
// There is exactly one host. Parameters:
//
//	table        the table of locks; by default DefaultTable
//	create       1: create the table if it does not exist; otherwise a missing table is an
//	             error, which contains the statement that creates it
//	lock         row: a lock is a row of the table, the default; session: see below
//	notify       lock: the server wakes waiters, the default; poll: waiters poll
//	timeout      limit of connecting and of one request; by default DefaultTimeout
//	socket       path of a unix socket, instead of a host
//	tls          1: encrypt the connection
//	ca           file with the trusted certificates, instead of the system's
//	cert, key    files with the client's certificate and its key
//	server-name  name that the server's certificate must carry, instead of the host
//
// The last four require tls=1. No parameter turns the check of the certificate off: ca names a
// private authority.
//
// # Guarantees
//
// A lock is a row, and each change of it is one statement that commits by itself. No transaction
// stays open and no row stays locked while a lock is held. A lock excludes as long as the server
// keeps what it has committed and its clock does not step. A failover to an asynchronous replica
// can forget a held lock and its fence. A step of the server's clock can end a lock early. All
// statements must reach the single writer: a group with several writers does not qualify. A server
// that answers a commit before it is on the disk can forget a held lock, too, when its host
// crashes; see Server requirements.
//
// Each statement is safe to repeat: acquiring is idempotent by owner, renewing and releasing
// check the owner, and only the server's clock counts. A statement that was given up can still be
// executed when the row that it waits for becomes free. Connections of a driver that is opened by
// URL wait for a second at most. Capabilities.Late reports this time, and the core removes such a
// ghost then. A renewal compares the fence, so a ghost that comes after a Break does not bring the
// broken lease back. A statement that is executed after its successor changes no term, because the
// term of one owner only grows. Therefore, if the clock is set back, a lock that is not released
// lasts longer by the same time.
//
// A row that another statement has locked delays the requests for its name, for a second at most.
// If such requests have all connections of a driver that is opened by URL, two further connections
// serve the requests for other names.
//
// LockAll is one statement, too, and so is its Unlock, for up to 31 names. The first LockAll of a
// name also sends one for each row, which makes it. The statement waits for no row and keeps none
// locked while it waits. If a row stays locked for 21 ms, the locks are acquired one by one.
//
// # Fencing
//
// The fence is a column of the row: the greater of the last fence plus one and the server's time
// in microseconds since 2026. It is as durable as the row, which is deleted when the name has not
// been used for a day. A fence can then repeat only if the clock was set back by more than a day.
// If the server can forget commits, in terms of [backend.Fencing] the fence is volatile, and
// require=fence-durable is refused. A driver checks this when it is opened.
// One acquisition in 125 checks the next 500 rows of the table in the background. The row with
// the name "\x00sweep" records the progress of all drivers.
//
// # Waiting
//
// A waiter uses a connection of its own: one for each process and name, and 16 for a driver. When
// all of them are taken, further waiters poll. The waiters for one name stand in a queue. It is
// made of GET_LOCK, which decides the order of the waiters and never the holder. The first waiter
// requests the row. Then it sleeps in the server, and it checks the row once a second and at the
// end of the holder's term. The statement that releases a lock also returns the connection of the
// first waiter. If there is one, KILL QUERY ends its sleep; an uncontended pair of Lock and
// Unlock costs two statements. Waking needs no privilege if all processes are the same user.
// Otherwise only the check once a second remains. The same holds between the nodes of a Galera
// cluster. There notify=poll is better. Clients with and without notify=poll can share names: each
// of them wakes the waiters of the others. Behind a proxy that numbers the connections itself, KILL
// QUERY could interrupt another program: the driver detects such a proxy when it is opened by URL,
// sends no KILL, and polls as on MariaDB. It wakes no clients that connect directly either: they
// look once a second, unless they have notify=poll. For a lent database it cannot detect the proxy:
// let all clients have notify=poll there.
//
// On MariaDB the first waiter does not sleep in the server: a KILL QUERY of one SLEEP can stop
// all others, and itself, for two seconds. It polls the row instead, after pauses of 1 ms that
// grow to 25 ms. That is 40 small SELECTs a second for each contended lock, whatever the number
// of waiters, and they lock no row.
//
// A holder that has waited stays the first of the queue for 20 ms more. If it releases the lock
// within this time, the same statement makes the next waiter the first. That waiter requests the
// row while the release is being written to the disk. So short critical sections follow each
// other about as fast as the disk allows two commits, whatever the number of waiters. For
// example, let 16 processes hold a lock for no time. Its owner changes 0.7 to 0.8 times as often
// as a single client makes two commits. If a commit takes 0.5 ms, a poll every 10 ms would be
// slower by a factor of 2.3 to 3.2 (MySQL) or 3.1 to 4.3 (MariaDB). The factor is greater on fast
// disks, because polling does not depend on them.
//
// A KILL QUERY may come late, and hit the release of the waiter that it was meant for. MySQL
// reports the interruption, and MariaDB sometimes reports that there was nothing to release. So
// the driver accepts such an answer only if another connection has received it, too. The
// connections that wait serve nothing else. If the database is lent, they are closed and not
// returned to it.
//
// The server closes a waiting connection that is idle for two seconds. So a waiter that has
// stopped, or with a host that has left the network, delays one hand-off by two seconds, and none
// after it.
//
// A lock that is released while a waiter waits is kept for the first waiter, for 50 ms. A request
// that arrives at that moment, of any kind, goes to the end of the queue. Pollers, and requests
// that arrive when a term has run out, can pass the queue.
//
// With fair=1 a waiter stands in the roster of the row instead, as readers do, and the order is
// strictly that of arrival. All waiters of a name need it, because waiters without it have their
// own queue. A waiter then costs two more statements to enter the roster, and two to leave it: with
// four processes the owner changes a third as often as without fair=1.
//
// # Readers and permits
//
// A row has room for one holder. So the holders of a name with readers or permits, and their
// waiters, stand in a document in the row, the roster; see package roster. While all entries are
// readers, or holders of permits, a further one comes and others leave in one statement, by the
// functions for JSON of the server: like a mutex, an uncontended permit costs two statements. Any
// other change reads the row and stores it again unless another client was faster: two statements,
// which no crash can leave half done. A renewal is one statement. So clients on a slow network
// also acquire, renew and release while other clients change the roster all the time. If the first
// write of a waiter or of a release is overtaken, it is repeated as one statement, too. The changes
// of one driver that arrive while a change of the same row is under way go together, in one commit.
//
// Entries stand in the order of their arrival. The waiters of a driver in one roster share a
// watcher. On MySQL it sleeps in the server, and KILL QUERY ends the sleep when one of its waiters
// may hold the lock; otherwise it reads the row once a second. On MariaDB it polls, after pauses of
// 1 ms that grow to 25 ms if its first waiter is the next, and more rarely otherwise, up to every
// 500 ms. The place of a waiter that has died ends within 10 s. A name has at most 5,000 holders
// and waiters, with 4 MiB in all, or a quarter of max_allowed_packet if that is less.
//
// A mutex pays nothing for this as long as no reader waits for it: its row has no roster. A reader
// that waits for a writer turns the row of that writer into a roster, so that it keeps its place
// among other writers. Then each renewal of that writer costs two statements, and its release four.
// The new roster also wakes the first writer in the queue of GET_LOCK. The writers of this queue
// then enter the roster one after the other, so a reader that came later can be in front of them.
//
// Downgrade, Export and Adopt are changes of the roster, too. Tables of earlier builds lack its
// column. Such a table serves mutexes, and the error of any other kind contains the ALTER TABLE
// that adds the column. Processes that run meanwhile keep their locks, and serve the other kinds
// after they have opened the table again. Processes of earlier builds refuse a table that has the
// column.
//
// # Locks of a session
//
// With lock=session a lock is a user-level lock (GET_LOCK) of one connection, which has all locks
// of the driver. There is no table, nothing is written, and the locks of a process that dies are
// free at once. A pair of Lock and Unlock takes a quarter to half of the time. The price:
//
//   - A lock ends with its connection. A restart of the server, a failover or a lost connection
//     costs all locks of the client at once. So does a server that becomes read-only, at the next
//     renewal or Unlock. A client that is cut off or stopped hears of it later, at the end of its
//     term at the latest, and the next holder can have the lock before. An old primary that lives
//     on after a failover, and is not read-only, keeps the locks of its clients, while the new
//     primary grants them, too. This happens if a replica is promoted before its source is stopped,
//     and if the primary of a group has lost the majority: it waits for the majority without a
//     limit, unless group_replication_unreachable_majority_timeout is set.
//   - There are mutexes only. Waiters poll, and the fence is the server's clock: it grows as long
//     as the clock does. Nothing can be inspected or broken, because the server knows the
//     connection that has a lock and not its owner. An operator can end this connection, see below.
//   - A client makes one attempt per round trip. If it waits for more names than 5 s have round
//     trips, such as 250 at 20 ms, a Lock can return ErrUnavailable although the server is healthy.
//   - The server frees the locks of a client that it does not hear from after the TTL with which
//     the client was opened, in whole seconds (wait_timeout), also those with a shorter TTL.
//     Nothing in between may end silent connections earlier, so the TTL is ten minutes at most, and
//     a shorter tcp_keepalive_time of MariaDB is refused.
//   - The TCP of the server's host must not give up a client that is cut off before the TTL is
//     over. The driver cannot read its settings. On Linux it gives up after tcp_keepalive_time plus
//     tcp_keepalive_probes times tcp_keepalive_intvl, 2 h 11 min by default. If an answer is on its
//     way, it gives up after tcp_retries2 repetitions: 15, the default, take 15 minutes, but 8 take
//     100 s and 5 take 12 s. Open the client with a TTL that is shorter than both.
//   - All clients must reach the same server. Galera and groups with several primaries, whose
//     servers have separate locks, are refused. So is a pooler or a proxy with connections of its
//     own: the number of the connection in its greeting is another one than the server's. Each
//     request checks that no proxy has replaced the connection since, also by one with the same
//     number: the connection has a lock with a random name.
//   - Locks of rows and locks of sessions do not exclude each other: all clients need the same
//     parameter.
//   - New has no such locks: they need a connection of their own.
//
// An operator finds the connection of the holder of NAME, which includes the prefix, and ends it by
// KILL. All other locks of its client are then lost, too. The database is in lower case:
//
//	SELECT IS_USED_LOCK(CONCAT('dlock-held:',
//	  LEFT(SHA2(CONCAT('DATABASE', CHAR(0), 'NAME'), 256), 48)))
//
// # Server requirements
//
// The server is MySQL 8.0 or MariaDB 10.6, with InnoDB, and without sql_mode
// SIMULTANEOUS_ASSIGNMENT. The user needs SELECT, INSERT, UPDATE and DELETE on the table, and
// CREATE for create=1. [Schema] returns the table as a migration. Locks survive a crash of the host
// if innodb_flush_log_at_trx_commit is 1 and, with a binary log, sync_binlog is 1, too; the default
// of MariaDB is 0. Otherwise the grants of the last second can be forgotten. The format of a binary
// log must be ROW or MIXED, also while clients run: replicas that are read-only stop with an error
// when they execute a logged statement of this driver. A server that is set to read_only grants,
// renews and shows nothing, and waiters leave it, whatever the privileges of the user are. It still
// releases and breaks locks for a user with SUPER. Tables of earlier builds accept names of 512
// bytes with their prefix, instead of 1,024. Each renewal is a commit and an entry of the binary
// log for 500 locks. A connection that is idle for ten seconds ends. The next renewal then makes
// another one, which a server with max_connections connections refuses: leave room for two
// connections of each process.
package mysqlbackend
