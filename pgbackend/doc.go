// Package pgbackend is dlock's driver for PostgreSQL 14 or later.
//
//	import _ "github.com/dlock-go/dlock/pgbackend"
//
//	client, err := dlock.Open(ctx, "postgres://app:password@localhost/jobs")
//
// Applications that already have a *pgxpool.Pool pass it to [New], and those with a *sql.DB to
// [NewDB].
//
// # URLs
//
//	postgres://[user[:password]@]host[:5432][,host[:5432]…]/database
//	postgresql://…                                       the same
//	postgres://[user[:password]@]/database?socket=/path
//
// Of several hosts the driver uses the first host that accepts changes, and tries them in this
// order again when it makes another connection. Parameters:
//
//	table        the table of locks, with its schema if it is not in the search path; by default
//	             [DefaultTable]. It is created if it does not exist
//	lock         row: a lock is a row of the table, the default; session: see below
//	timeout      limit of connecting to one host, and of each statement; by default
//	             [DefaultTimeout]
//	socket       path of a unix socket or of its folder, instead of a host
//	tls          1: encrypt the connection
//	ca           file with the trusted certificates, instead of the system's
//	cert, key    files with the client's certificate and its key
//	server-name  name that the server's certificate must carry, instead of the host
//
// The last four require tls=1. No parameter turns the check of the certificate off: ca names a
// private authority. The parameters of libpq, such as sslmode, are refused. Without a password in
// the URL, PGPASSWORD and the file of passwords count.
//
// # Guarantees
//
// A lock is a row, and each change of it is one statement that commits by itself. No transaction
// stays open and no row stays locked while a lock is held. A lock excludes as long as the server
// keeps what it has committed and its clock does not step. A failover to an asynchronous standby
// can forget a held lock and its fence; a standby in synchronous_standby_names has both. A step of
// the server's clock can end a lock early, and a failover to a standby whose clock is ahead is such
// a step.
//
// Before a standby is promoted, the former primary must be stopped, and it must come back as a
// standby. Otherwise a driver can still use it. While its commits wait for the standby that is
// gone, it grants and prolongs no lock. But it delays requests, and can report that a lock of the
// new primary is lost. Without a synchronous standby it grants locks that the new primary grants,
// too.
//
// The connections of a driver that is opened by URL set what the guarantees need, whatever the
// defaults of the server, the database and the role are. synchronous_commit is on, the isolation
// level is READ COMMITTED, and statements end after two seconds. If a proxy or a login trigger
// undoes this limit, Open returns ErrUnsupported. A server that is a standby or read-only is
// ErrUnavailable, and the driver leaves it. So an operator fences a server before a switchover by
// default_transaction_read_only = on, with ALTER SYSTEM and a reload. The driver does not set this
// parameter, so a role with this default has no locks.
//
// Each statement is safe to repeat: acquiring is idempotent by owner, renewing and releasing check
// the owner, and only the server's clock counts. A renewal creates nothing, so a row that was
// deleted is a lost lock. A statement that was given up can still be executed when the row that it
// waits for becomes free. Capabilities.Late reports this time, and the core removes such a ghost
// then. A commit can wait for a synchronous standby without a limit; its row stays locked, and a
// release that finds nothing waits for it. If an operator cancels a commit that waits, its outcome
// is unknown to a driver that was opened by URL. A statement that is executed after its successor
// changes no term, because the term of one owner only grows. Therefore, if the clock is set back, a
// lock that is not released lasts longer by the same time.
//
// A lock without waiters costs one statement to take and one to free. Requests that wait for a
// connection at the same time share a statement, and so a commit.
//
// A row that another statement has locked delays the requests for its name. Of the connections for
// renewals, no more than half wait for locked rows, and no more than half of the rest wait for rows
// on behalf of requests that were given up.
//
// LockAll reads the rows of its names and stores all of them with one statement, or none if one of
// them has changed meanwhile. Its Unlock is one statement; locks with waiters are freed singly.
// Rows are locked in the order of their names. A name without a row gets a free row first.
//
// # Fencing
//
// The fence is a column of the row: the last fence plus one, in the same statement that takes the
// lock. It is as durable as the row. A release keeps the row. When the name has not been used for a
// day, the row is deleted, and the fence of the next row is the server's time in microseconds since
// 2026, which is greater. A fence can then repeat only if the clock was set back by more than a
// day. One acquisition in 125 checks the next 500 rows of the table in the background. It waits for
// no row. The row with the name "\x01sweep" records the progress of all drivers. If the server can
// forget commits (fsync is off), in terms of [backend.Fencing] the fence is volatile, and
// require=fence-durable is refused. A driver checks this when it is opened.
//
// # Waiting
//
// Waiters get the lock in the order of their arrival. They stand in the roster, see Readers and
// permits. The place of a waiter that has died ends within 10 s, also if it got the lock meanwhile.
// The entry of a waiter is stored without a wait for the disk, because a crash of the server may
// forget it: the waiter then enters again, at the end.
//
// The statement that removes the last entry in front of a waiter grants the lock to it, for the
// rest of its place. So a lock changes hands with one commit and one reading; the new holder is
// renewed afterwards. With a synchronous standby the waiter makes an attempt first, because what it
// can read may not be on the standby. The statement also sends the waiter's owner by NOTIFY, unless
// the waiter waits with the same driver. Each driver has one connection that listens, for all of
// its waiters. NOTIFY makes the commits of the whole server wait for each other, so a statement
// that wakes no waiter sends none. When the connection is lost, the driver makes another one and
// wakes all of its waiters, because messages may be lost; meanwhile they poll.
//
// The alternative is an advisory lock for which each waiter blocks. It needs one more connection
// for each waiter and each holder, and its hand-offs are slower for one pair of contenders.
//
// # Readers and permits
//
// A row has room for one holder. So holders of the other kinds, and all waiters, stand in a
// document in the row, the roster; see package roster. A change of the roster reads the row and
// stores it again unless another client was faster: two statements, which no crash can leave half
// done. The changes of one driver that arrive meanwhile are made together. If other clients keep
// changing the row, and all entries are holders, one statement makes the change on the server.
//
// A renewal of a roster is such a change, for all of a driver's holders of one name. A driver makes
// two of them at a time, some hundred a second on a fast network, while one statement renews 1,000
// writers without waiters. A client with thousands of names in rosters needs a longer TTL.
//
// # Locks of a session
//
// With lock=session a lock is an advisory lock of one connection, which has all locks of the
// driver. There is no table, nothing is written, and the locks of a process that dies are free at
// once. A pair of Lock and Unlock takes less than half of the time. The price:
//
//   - A lock ends with its connection. A restart of the server, a failover or a lost connection
//     costs all locks of the client at once. So does a server that becomes read-only, at the next
//     renewal or Unlock. A client that is cut off or stopped hears of it later, at the end of its
//     term at the latest, and the next holder can have the lock before. An old primary that lives
//     on after a promotion, and is not read-only, keeps the locks of its clients, while the new
//     primary grants them, too.
//   - There are mutexes only. Waiters poll, and the fence is the server's clock: it grows as long
//     as the clock does. Nothing can be inspected or broken, because the server knows the
//     connection that has a lock and not its owner. An operator can end this connection, see below.
//   - A client makes one attempt per round trip. If it waits for more names than 5 s have round
//     trips, such as 250 at 20 ms, a Lock can return ErrUnavailable although the server is healthy.
//   - The server frees the locks of a client that it does not hear from after the TTL with which
//     the client was opened (idle_session_timeout), also those with a shorter TTL. A step of the
//     server's clock can free them earlier. A proxy or a firewall in between must not end silent
//     connections earlier.
//   - Locks of rows and locks of sessions do not exclude each other: all clients need the same
//     parameter.
//   - Advisory locks have numbers. The driver takes 64 bits of a hash of the name. Two names with
//     the same number never have different holders at a time; a client that holds one is refused
//     the other with ErrConflict. Other programs that use advisory locks in the same database
//     share the numbers.
//   - The server has room for max_locks_per_transaction × max_connections locks. The next one is
//     ErrUnavailable.
//
// An operator finds the connection of the holder of NAME, which includes the prefix, and ends it by
// pg_terminate_backend. All other locks of its client are then lost, too. The next holder can have
// the lock some milliseconds before the client hears of it:
//
//	SELECT pid FROM pg_locks WHERE locktype = 'advisory'
//	  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
//	  AND lpad(to_hex(classid::bigint), 8, '0') || lpad(to_hex(objid::bigint), 8, '0') =
//	    left(encode(sha256('dlock:NAME'), 'hex'), 16)
//
// # Poolers
//
// A pooler between the driver and the server, such as PgBouncer, refuses or drops the settings of a
// connection, and in the mode for transactions it has no LISTEN. The driver detects a pooler when
// it connects. Then waiters poll, in the order of their arrival. The settings of the role and the
// database count, and the driver checks them with each connection. It returns ErrUnsupported unless
// statement_timeout is two seconds at most, and also if synchronous_commit is off or local, if the
// isolation level is not READ COMMITTED, or if client_min_messages is above warning. Set them with
// ALTER ROLE … SET. No other client of the pooler may change them for its connection.
//
// All processes of a user share the pooler's connections to the server (default_pool_size), and so
// no connection is left to renewals if they are in use. Let there be 20 for each process. A
// connection to the pooler that is idle for five seconds ends. The next renewal then makes another
// one, which a pooler with max_client_conn connections refuses: leave room there, too.
//
// lock=session and a pooler are ErrUnsupported: connect to the server itself. Each request checks
// that no proxy has replaced the connection since.
//
// # Server requirements
//
// The server is PostgreSQL 14 or later. The user needs SELECT, INSERT, UPDATE and DELETE on the
// table, and CREATE in its schema if the table does not exist. [Schema] returns the table as a
// migration; the error contains it if the user may not create the table. A table that is unlogged,
// has other columns, or has no unique index on the name alone is refused. So is one that $user in
// search_path leads to, because another user would have another table: name its schema. All clients
// of a lock need the same table, so name the schema also where users have different search paths.
//
// Locks survive a crash if fsync is on. Names are bytea, so they do not depend on the encoding and
// the collation of the database: convert_from(name, 'UTF8') shows them.
//
// A row that changes often needs room in its page and a vacuum now and then. The table has room by
// its fillfactor; keep autovacuum on, and transactions that last for hours out of the same
// database.
package pgbackend
