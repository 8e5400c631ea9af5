package filebackend

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// The holder of a lock marks its file, when its record stands there, with a
// second lock that knows neither exclusion nor flock: a shared open-file-description
// lock on the first byte. Like the flock it ends with the descriptor; unlike it, it can
// be queried without being taken, so that looking at a lock never makes
// somebody's attempt fail.

// mark tells others that fd's file is held and that its latest record is the holder's.
func mark(fd int) error {
	return ofdLock(fd, unix.F_RDLCK)
}

// unmark is the inverse of mark.
func unmark(fd int) error {
	return ofdLock(fd, unix.F_UNLCK)
}

func ofdLock(fd int, kind int16) error {
	lock := unix.Flock_t{Type: kind, Len: 1}
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock)
}

// marked tells whether another descriptor has marked fd's file.
func marked(fd int) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
	err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &lock)
	return lock.Type != unix.F_UNLCK, err
}

// flush puts the contents of fd on the disk.
func flush(fd int) error { return unix.Fdatasync(fd) }

// bootID identifies this boot of the machine: page caches live as long. Empty if
// unknown.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(id) > 64 {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// networkFS names the file system of dir if it is one over which flock may not
// reach all who use it, and is empty otherwise.
func networkFS(dir string) (string, error) {
	var stat unix.Statfs_t
	if err := ignoreInterrupts(func() error { return unix.Statfs(dir, &stat) }); err != nil {
		return "", err
	}
	return networkTypes[uint32(stat.Type)], nil //nolint:unconvert // its size depends on the architecture
}

// networkTypes are the numbers of statfs(2).
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
