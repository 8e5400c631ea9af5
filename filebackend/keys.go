//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"strings"

	"github.com/dlock-go/dlock/backend/key"
)

const (
	// suffix ends the names of lock files, and setSuffix those of the directories of members.
	suffix, setSuffix = ".lock", ".set"
	// maxFile is the maximum length of a file name: eCryptfs takes 143 bytes, most file systems
	// 255.
	maxFile = 143
)

// path returns the lock file of a key. Two keys never have the same file, also on file systems that
// ignore case. A key whose encoding is too long is hashed, so the record in the file has the key:
// read compares it, and returns ErrConflict for the file of another key.
func (d *driver) path(name string) string {
	return d.dir + "/" + key.EncodeFile(name, maxFile-len(suffix)) + suffix
}

// setPath returns the directory of the members of a key, from the path of its lock file.
func setPath(path string) string { return strings.TrimSuffix(path, suffix) + setSuffix }
