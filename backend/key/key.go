// Package key turns the names of locks into keys that every server takes.
//
// The core has checked each name with [Validate], so a name is at most 512 bytes of UTF-8
// without control characters. A driver of a server with stricter rules encodes it:
//
//	key := key.Encode(prefix+name, 250) // memcached
//
// Names that users choose stay readable on the server, as long as they are plain and short.
// The encoding is fixed for good: clients of different versions must meet on one key. A
// driver that lists locks by name stores the name in the value, because a hash cannot be
// reversed.
package key

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is the longest name in bytes.
const MaxName = 512

// Validate returns an error if name cannot be the name of a lock. A name has 1 to MaxName
// bytes of valid UTF-8 without control characters (Unicode category Cc). The error quotes
// only the beginning of name.
func Validate(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > MaxName:
		return fmt.Errorf("name %.32q… has %d bytes, more than %d", name, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("name %.32q is not valid UTF-8", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("name %.32q contains a control character", name)
	}
	return nil
}

// Encode returns name as a key of at most limit bytes, with no characters except letters,
// digits and "_.:-%", and without a dot at its start. Different names give different keys.
//
// Plain names do not change; other bytes become %XX. A key that would exceed limit keeps
// its beginning and ends in "%-" and the SHA-256 of the name. No other key has that form,
// because elsewhere two hex digits follow a "%". limit must be at least MinLimit.
func Encode(name string, limit int) string {
	return encode(name, limit, func(c byte) bool {
		return 'A' <= c && c <= 'Z' || c == ':' || plainInFile(c)
	})
}

// EncodeFile is Encode for names of files. It also encodes upper-case letters and colons,
// because some file systems ignore case and some refuse colons.
func EncodeFile(name string, limit int) string {
	return encode(name, limit, plainInFile)
}

// MinLimit is the minimum limit: the length of the mark and the hash.
const MinLimit = len(hashMark) + 2*sha256.Size

const (
	hashMark  = "%-"
	hexDigits = "0123456789abcdef"
)

// plainInFile reports whether c stays as it is in the name of a file.
func plainInFile(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-'
}

// encode encodes all bytes of name that are not plain.
func encode(name string, limit int, plain func(byte) bool) string {
	special := 0
	for i := range len(name) {
		if c := name[i]; !plain(c) || c == '.' && i == 0 {
			special++
		}
	}
	if special == 0 && len(name) <= limit {
		return name
	}
	var b strings.Builder
	b.Grow(len(name) + 2*special)
	for i := range len(name) {
		if c := name[i]; plain(c) && (c != '.' || i > 0) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	if b.Len() <= limit {
		return b.String()
	}
	sum := sha256.Sum256([]byte(name))
	return b.String()[:limit-MinLimit] + hashMark + hex.EncodeToString(sum[:])
}
