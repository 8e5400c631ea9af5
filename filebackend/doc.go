// Package filebackend is dlock's driver for one machine with many processes and no server. Each
// lock is a file, locked with flock(2).
//
// # URLs
//
//	file:                     the default directory, see [DefaultDir]
//	file:/abs/dir             another directory; file:///abs/dir is the same
//	file:/abs/dir?allow-network=1
//	file:/abs/dir?inherit=1   processes that are started under a lock inherit it
//	file:/abs/dir?endless=1   leases have no deadline, see [Options]
//	file:/abs/dir?block=1     waiters block in flock(2), see [Options]
//
// The driver makes the directory if it is missing, with mode 0700. The directory must belong to the
// user of the process and be writable by that user alone: locks are per user. A symbolic link in
// the path must belong to that user or to root, and lie in a directory where no other user can
// replace it. A directory of the path that all users can write to needs the sticky bit, as
// /tmp has.
//
// # Guarantees
//
// The kernel frees a lock with the last descriptor of its holder, and grants it to no other process
// before. After kill -9 the lock is therefore free at once. This server has no TTL: a stopped
// process keeps its locks until it continues or is killed, and a lock cannot be broken. A renewal
// checks that the lock file is still in its place.
//
// If a lock file is removed or replaced from outside, its holder loses the lock. The driver reports
// the loss at once where the system reports the change (Linux), and otherwise at the next renewal.
// With block=1 or endless=1 it checks every second instead.
//
// The driver removes no lock file. Each file takes 4 or 8 kB, and its modification time is the time
// of the last grant. A file may be removed under its flock: "flock -n FILE rm FILE" removes it only
// if it is free, and a process that is about to lock it opens a new one. For all files that were
// last granted a month ago:
//
//	find DIR -name '*.lock' -mtime +30 -exec flock -n {} rm {} ';'
//
// Without the flock, a lock can be lost that is granted at the same moment.
//
// Inspect shows about the first 3 kB of a holder's meta. It does not count waiters.
//
// A lock is granted only after its record was written, so a full disk can refuse it. The error is
// ErrUnavailable for a failure that may pass, and ErrConflict for a file that the driver cannot
// use: without permission, of another program, or no regular file. On a read-only file system it is
// ErrUnsupported.
//
// # Fencing
//
// The fence is a counter in the lock file that follows the clock: the last fence plus one, or the
// microseconds since 2026, whichever is greater. It is durable, unless the directory is in memory
// (tmpfs, ramfs), where a restart of the machine removes it. The file always has an upper bound of
// the granted fences, which survives a power cut: the driver syncs it (fdatasync) before it grants
// a fence that needs it. One bound is enough for ten seconds, so a busy lock waits for the disk
// once in ten seconds. A crash at any byte of a write leaves a readable file. If the file was
// removed, the counter continues from the clock.
//
// # Waiting
//
// On Linux each driver has one inotify descriptor. It reports every close of a lock file that has
// waiters, and a holder frees its lock by closing the file. The kernel decides the order of
// waiters. A waiter also retries without an event, after 2 s at first and later every 16 s. A
// program that locks the file through a descriptor that can only read, as flock(1) does, causes no
// event: a waiter behind it has only these retries.
//
// Without inotify waiters poll. On other systems than Linux, and if the user has no inotify
// instance left (fs.inotify.max_user_instances), the client polls, by its WithPollInterval. If only
// a watch is missing (max_user_watches), the driver polls: after 50 ms at first, and later every
// 2 s.
//
// # Readers and permits
//
// Readers, permits, and the writers that wait among them, have a file each in the directory
// NAME.set next to NAME.lock, and keep it locked. The names of these files give their order, so
// waiters are served in the order of their arrival as long as there are readers or permits. The
// kernel frees the file of a process that has died, and a later request removes it. The last
// member removes the directory. A holder that is one of many also has a shared flock of the lock
// file, and so excludes each process that locks it without looking for members.
//
// Each waiter among them makes an attempt every second at the latest, whatever the poll interval. A
// waiter without an attempt for 3 s is stopped: later requests pass it, and it queues again when it
// continues. If the clock is set, waiters may lose their places in the same way. With block=1 a
// waiter joins the members late if the holder has become a reader: after as long as it has waited
// until then, or 4 min if that is less.
//
// A request locks the directory for some microseconds, or until the disk has synced its grant. A
// process that is stopped just then makes other requests fail after a second, until it continues.
// Waiters keep their places meanwhile, and Inspect and List still work.
//
// Downgrade changes the flock of a writer into a shared one, in two steps on some systems. A writer
// that gets the lock in between finds the members, and gives it back.
//
// If the files of members are removed from outside, their holders lose the lock at their next
// renewal, and a semaphore has more holders than its limit until then.
//
// A driver with a directory on a network file system has neither readers nor permits.
//
// # Server requirements
//
// The driver needs Linux, macOS, FreeBSD or DragonFly BSD (tested on Linux), and a local file
// system. Over NFS, SMB or FUSE each host may have its own flock, so these are refused unless the
// URL has allow-network=1. On other systems opening returns ErrUnsupported.
//
// With allow-network=1 each renewal also writes one byte, and waits for the server. A server of
// NFSv4 drops the locks of a host that it has not heard of for its lease, 90 s by default, and the
// renewal then returns ErrLost. With nfs.recover_lost_locks=1, or another protocol, nothing detects
// a lock that the server has dropped. Until the renewal, or the end of the lease's term, two
// processes may hold the lock.
//
// Each held lock and each waiter is an open file (RLIMIT_NOFILE), and a second one among readers or
// permits. An uncontended Acquire makes eight system calls and a Release four, together some ten
// microseconds. In addition, the first grant of a name, and one in ten seconds, wait for the disk.
//
// If the disk hangs, at most 256 attempts and inspections of a driver hang with it. Later ones are
// not executed: they fail at the end of their contexts.
package filebackend
