//go:build darwin || dragonfly || freebsd || linux

package filebackend

import "github.com/dlock-go/dlock/backend/key"

const (
	// suffix ends the names of lock files.
	suffix = ".lock"
	// maxFile is the maximum length of a file name: eCryptfs takes 143 bytes, most file systems
	// 255.
	maxFile = 143
)

// path returns the lock file of a key. Two keys never have the same file, also on file systems that
// ignore case. A key whose encoding is too long is hashed, so the record in the file has the key.
func (d *driver) path(name string) string {
	return d.dir + "/" + key.EncodeFile(name, maxFile-len(suffix)) + suffix
}
