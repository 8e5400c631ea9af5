// Package filebackend is the dlock driver for one machine and many processes,
// without a server: each lock is a file, locked with flock(2).
//
// # URLs
//
//	file:                     the default directory, see [DefaultDir]
//	file:/abs/dir             another one; file:///abs/dir is the same
//	file:/abs/dir?allow-network=1
//	file:/abs/dir?inherit=1   processes that are started under a lock inherit it
//	file:/abs/dir?endless=1   leases have no deadline, see [Options]
//
// The directory is made at need, with mode 0700. It must belong to the user of
// the process and be writable by nobody else: locks are per user.
//
// # Guarantees
//
// The kernel frees a lock with the last descriptor of its holder, so at once also
// after kill -9, and gives it to nobody before. There is no TTL on this
// server: a stopped process keeps its locks until it goes on or is killed, and a
// lock cannot be broken. Renewing looks whether the lock file is still in its place.
//
// A lock file that is removed or replaced from outside takes the lock with it: the
// holder is told at once where the system tells (Linux), else by its next renewal.
// The files of free locks may be removed: who is about to lock one notices and takes
// the new file.
//
// The driver removes none, since somebody may always be about to lock it. Each
// takes 4 or 8 kB, and its time of modification is that of the last grant. So where
// no lock is held for a month, "find DIR -name '*.lock' -mtime +30 -delete" cleans up.
//
// What Inspect shows of a holder's meta ends after some 3 kB. Waiters are not counted.
//
// # Fencing
//
// The fence is a counter in the lock file that runs with the clock: the number after
// the last one or the microseconds since 2026, whichever is higher. It is durable: of a
// power cut the file keeps an upper bound of the fences that were given, made
// durable ahead of them (fdatasync) for ten seconds each, so that a busy lock pays for
// the disk twice in ten seconds. A crash at any byte of a write leaves a readable file. A
// file that was removed continues from the clock.
//
// # Waiting
//
// Nobody polls. On Linux one inotify descriptor per driver tells of every close of a
// lock file that somebody waits for, and closing is how locks are freed; a
// waiter costs an open file. The order of waiters is up to the kernel. A timer of some
// seconds runs beneath. Where inotify is missing or used up
// (fs.inotify.max_user_instances, max_user_watches), and on other systems, the
// lock is polled.
//
// # Server requirements
//
// Linux, macOS, FreeBSD or DragonFly BSD (proven on Linux), and a local file system: over
// NFS, SMB or FUSE flock may hold on each host for itself, so these are refused unless
// the URL says allow-network=1. Elsewhere opening is ErrUnsupported.
//
// Each held lock and each waiter is an open file (RLIMIT_NOFILE). An uncontended Acquire is
// seven system calls and Release four, together some ten microseconds; the first two
// grants of a name, and two in ten seconds, wait for the disk besides.
package filebackend
