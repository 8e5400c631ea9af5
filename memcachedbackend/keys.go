package memcachedbackend

import "github.com/dlock-go/dlock/backend/key"

// The prefixes keep dlock's keys apart from the keys of other programs. The keys of the probe and
// of the floor belong to no lock.
const (
	lockPrefix         = "dlock:"
	counterPrefix      = "dlock-fence:"
	probePrefix        = "dlock-probe:"
	floorPrefix        = "dlock-floor:"
	floorCounterPrefix = "dlock-count:"
)

// maxEncoded is the maximum length of an encoded name in bytes. The server's limit for a key is 250
// bytes, and no prefix is longer than counterPrefix.
const maxEncoded = 250 - len(counterPrefix)

// keys are the keys on the server of one lock: of its record and of its fence counter.
type keys struct{ lock, counter string }

// newKeys returns the keys of a name. Long names are hashed, so the record contains the full name.
func newKeys(name string) keys {
	encoded := key.Encode(name, maxEncoded)
	return keys{lock: lockPrefix + encoded, counter: counterPrefix + encoded}
}
