package mysqlbackend

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/backend"
)

// keys derives names on the server from the key of a lock. The name of its row is the key itself,
// as bytes, because VARBINARY keeps all keys apart.
type keys struct {
	space  string // database and table: the names of signals are shared by the whole server
	maxKey int    // bytes of a key that the table accepts
}

// newKeys returns the keys of a table. On many servers the case of its name does not matter, so the
// signals ignore it. Two tables whose names differ only in case share their queues, which costs
// time only.
func newKeys(s *server, table string) keys {
	space := strings.ToLower(s.database + "\x00" + table + "\x00")
	return keys{space: space, maxKey: s.table.width}
}

// check returns ErrInvalidName if the table cannot store the key. A server that is not strict would
// truncate it.
func (k keys) check(key string) error {
	if len(key) > k.maxKey {
		return fmt.Errorf("%w: %d bytes with the prefix, the table takes %d",
			backend.ErrInvalidName, len(key), k.maxKey)
	}
	return nil
}

// signal returns the name of the user-level lock (GET_LOCK) that the first waiter for key has. Such
// names have at most 64 characters, and some servers fold their case, so it is a hash in hex. It
// contains the database and the table, so that equal keys of two tables do not share a queue.
func (k keys) signal(key string) string {
	sum := sha256.Sum256([]byte(k.space + key))
	return "dlock:" + hex.EncodeToString(sum[:16])
}

// bell returns the name of the user-level lock of a driver's watcher for key; see turns.go.
func (k keys) bell(key, driver string) string { return k.signal(key + "\x00" + driver) }

// sweepCursor is the row that stores the name at which the next sweep begins. All drivers share it,
// so that many short processes also get through the table. No key has a control character.
const sweepCursor = "\x00sweep"

// floorRow returns the name of the row of a floor. No key has a control character.
func floorRow(key string) []byte { return []byte("\x00" + key) }

// afterAll is the end of the range of all keys: no valid UTF-8 begins with this byte.
const afterAll = "\xff"

// successor returns the smallest string above a key.
func successor(key string) string { return key + "\x00" }

// prefixEnd returns the smallest string above all keys with a prefix. The last byte of valid UTF-8
// can always be increased by one.
func prefixEnd(prefix string) string {
	if prefix == "" {
		return afterAll
	}
	last := len(prefix) - 1
	return prefix[:last] + string([]byte{prefix[last] + 1})
}
