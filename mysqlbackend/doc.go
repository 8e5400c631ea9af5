// Package mysqlbackend is dlock's driver for MySQL 8.0 or later and MariaDB 10.6 or later.
//
//	import _ "github.com/dlock-go/dlock/mysqlbackend"
//
//	client, err := dlock.Open(ctx, "mysql://app:password@localhost/jobs?create=1")
//
// Who has a *sql.DB already hands it to [New].
//
// # URLs
//
//	mysql://[user:password@]host[:3306]/database
//	mariadb://…                                  the same
//	mysql://[user:password@]/database?socket=/path
//
// Exactly one host. Parameters:
//
//	table        the table of locks, default dlock
//	create       1: make the table if it is not there; otherwise that is an error that says how
//	notify       lock: waiters are woken, the default; poll: they look again and again
//	timeout      bound of connecting and of one request, default 3s
//	socket       path of a unix socket, instead of a host
//	tls          1: encrypt the connection
//	ca           file with the certificates to trust, instead of the system's
//	cert, key    files with the client's certificate and its key
//	server-name  name that the server's certificate must carry, instead of the host
//
// The last four go with tls=1. There is no parameter that turns the check of the certificate
// off: a private authority is named with ca.
//
// # Guarantees
//
// A lock is a row, and changing it is one statement that commits by itself: no transaction
// stays open and no row stays locked while a lock is held. A lock excludes as long as the server keeps
// what it has committed and its clock is not stepped. A fail-over to an asynchronous replica can forget a
// lock that is held, and its fence; a step of the server's clock can end a lock early. All
// statements must reach the one writer: a group with several writers is none.
//
// Each statement is safe to repeat: acquiring is idempotent by owner, renewing and releasing check
// the owner, and all time is the server's. A statement that was given up can still be executed when the
// row that it waits for comes free; connections that are opened by URL wait for
// a second at most, and Capabilities.Late says so, so that the core undoes it then. Executed after its
// successor it changes no term, because the term of one owner only grows. A clock that is set back therefore
// prolongs a lock that is not released by as much.
//
// # Fencing
//
// The fence is a column of the row: the greater of the last one plus one and the server's time in
// microseconds since 2026. It is as durable as the row, which is deleted when the name has not been
// used for a day: only a clock that was set back by more than that can then repeat a fence. One
// acquisition in 125 looks at the next 500 rows of the table in the background. The row with the
// name "\x00sweep" keeps how far all drivers have come.
//
// # Waiting
//
// Who waits does so on a connection of its own, one for a process and name and 16 for
// a driver; whoever finds them all taken polls. Those who wait for one name stand in a queue, by
// GET_LOCK, which says whose turn it is and never who holds. The first of them asks for the row, and then sleeps
// in the server and looks at the row once a second and at the end of the holder's term. The statement that
// releases a lock learns from the server who that is, and if there is somebody, its sleep is ended by KILL QUERY;
// a pair of Lock and Unlock that nobody waits for costs two statements. Waking needs no privilege where all
// processes are the same user. Where they are not, behind a proxy that multiplexes connections, and between
// the nodes of a Galera cluster, the second remains; notify=poll is better there.
//
// On MariaDB the first does not sleep in the server: a KILL QUERY of one SLEEP can stop all others, and itself, for two
// seconds. It looks at the row instead, after pauses of 1 ms that grow to 25 ms, which is 40 small SELECT a second for each
// lock that others wait for, whatever their number, and no row is locked by them.
//
// A holder that has waited itself stays the first for 20 ms more. If it releases the lock within them, the same
// statement makes the next one the first, who asks for the row while the release is on its way to the disk. So short
// critical sections follow each other about as fast as the disk lets two commits do, whatever the number of those who
// wait: 16 processes that hold a lock for no time change owner 0.7 to 0.8 times as often as one client makes two commits
// alone. Where a commit takes 0.5 ms, that is 2.3 to 3.2 (MySQL) and 3.1 to 4.3 times (MariaDB) as often as where they look
// every 10 ms; more on fast disks, for a poll does not depend on them.
//
// A KILL QUERY may come late, and hit the release of whom it was to wake. MySQL then says so, and MariaDB now and then that there
// was nothing to release; so such an answer is believed only when another connection has got it, too. The connections that
// wait serve nothing else; those of a database that is lent are closed and not given back.
//
// The server closes a waiting connection that is idle for two seconds. So a waiter that has stopped, or whose host
// has left the network, delays one hand-off by two seconds, and none after it.
//
// A lock that is released while somebody waits is kept for the first of them, for 50 ms: whoever comes
// just in time goes to the end of the queue. Those who poll, and those who come when a term has run out, get past it.
//
// # Server requirements
//
// MySQL 8.0 or MariaDB 10.6, with InnoDB, and without sql_mode SIMULTANEOUS_ASSIGNMENT. The user needs
// SELECT, INSERT, UPDATE and DELETE on the table, and CREATE for create=1; [Schema] is the table as a migration. Leave
// innodb_flush_log_at_trx_commit and, with a binary log, sync_binlog at 1, and
// locks survive a crash. The format of a binary log must be ROW or MIXED. A server that is set to read_only grants and
// renews nothing, whatever the privileges of the user are; it still releases and breaks locks for a user with SUPER.
// Tables of earlier builds take names of 512 bytes with their prefix, and not 1,024. Each renewal is a commit and an entry of the binary log for 500 locks.
package mysqlbackend
