package filebackend

import (
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// The holder of a lock marks its file when its record is in the file. The mark is a second lock,
// independent of the flock: a shared open-file-description lock on the first byte, which excludes
// no other mark. Like the flock it ends with the descriptor. Unlike the flock it can be queried
// without being taken, so that Inspect never makes an attempt of another process fail. Only the
// flock decides about the lock: attempts, readers and permits lock the file without a mark.

// mark marks fd's file as held: its latest record is the holder's. It never blocks.
func mark(fd int) error {
	return ofdLock(fd, unix.F_RDLCK)
}

// unmark is the inverse of mark.
func unmark(fd int) error {
	return ofdLock(fd, unix.F_UNLCK)
}

// ofdLock sets or removes an open-file-description lock on the first byte.
func ofdLock(fd int, kind int16) error {
	lock := unix.Flock_t{Type: kind, Len: 1}
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock)
}

// isMarked reports whether another descriptor has marked fd's file.
func isMarked(fd int) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
	err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &lock)
	return lock.Type != unix.F_UNLCK, err
}

// flush writes the contents of fd to the disk.
func flush(fd int) error { return unix.Fdatasync(fd) }

// flushNames writes the names in the directory fd to the disk.
func flushNames(fd int) error { return unix.Fsync(fd) }

// withoutSignals calls f on a thread that no signal interrupts. After a signal, the thread of a
// waiter would leave the kernel's queue and enter it again at the end: the runtime sends SIGURG to
// preempt, and the kernel gives SIGCHLD to any thread. The signals from 32 on stay, because
// setuid(2) sends one to every thread (nptl(7)). SIGSTOP cannot be blocked.
func withoutSignals(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, blocked unix.Sigset_t
	blocked.Val[0] = 1<<31 - 1 // the signals 1 to 31
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, &before); err != nil {
		return f()
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	return f()
}

// bootID identifies this boot of the machine. The page cache lives as long as a boot, and with it
// records that are not synced. It returns "" if the boot is unknown.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(id) > 64 {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// networkFS returns a name for the file system of dir if its flock may not exclude all machines
// that use it, and otherwise "".
func networkFS(dir string) (string, error) {
	var stat unix.Statfs_t
	if err := ignoreInterrupts(func() error { return unix.Statfs(dir, &stat) }); err != nil {
		return "", err
	}
	// The size of Type depends on the architecture.
	return networkTypes[uint32(stat.Type)], nil //nolint:unconvert // see above
}

// inMemory reports whether the files of dir are in memory only, so that a restart of the machine
// removes them.
func inMemory(dir string) bool {
	var stat unix.Statfs_t
	err := ignoreInterrupts(func() error { return unix.Statfs(dir, &stat) })
	kind := uint32(stat.Type) //nolint:unconvert // its size depends on the architecture
	return err == nil && (kind == unix.TMPFS_MAGIC || kind == unix.RAMFS_MAGIC)
}

// networkTypes are the names of network file systems, by the numbers of statfs(2).
var networkTypes = map[uint32]string{
	unix.NFS_SUPER_MAGIC:   "NFS",
	unix.SMB_SUPER_MAGIC:   "SMB",
	unix.SMB2_SUPER_MAGIC:  "SMB",
	unix.CIFS_SUPER_MAGIC:  "SMB",
	unix.FUSE_SUPER_MAGIC:  "FUSE",
	unix.V9FS_MAGIC:        "9P",
	unix.AFS_SUPER_MAGIC:   "AFS",
	unix.AFS_FS_MAGIC:      "AFS",
	unix.CEPH_SUPER_MAGIC:  "Ceph",
	unix.CODA_SUPER_MAGIC:  "Coda",
	unix.NCP_SUPER_MAGIC:   "NCP",
	unix.OCFS2_SUPER_MAGIC: "OCFS2",
	0x01161970:             "GFS2",
	0x0bd00bd0:             "Lustre",
	0x47504653:             "GPFS",
	0x19830326:             "BeeGFS",
	0x20030528:             "OrangeFS",
	0xaad7aaea:             "PanFS",
	0x786f4256:             "a VirtualBox share",
	0xbacbacbc:             "a VMware share",
	0x7c7c6673:             "a Parallels share",
}
