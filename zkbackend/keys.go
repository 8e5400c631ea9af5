package zkbackend

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/backend/key"
	"github.com/dlock-go/dlock/backend/kind"
)

// The nodes below the chroot:
//
//	/dlock                                     all locks
//	/dlock/<encoded name>                      one lock; its data is the name
//	/dlock/<encoded name>/~queue               the queue of the lock
//	/dlock/<encoded name>/~queue/<owner>-w-<n> a holder or a waiter; its data is the meta,
//	                                           or a record after a Downgrade
//
// The word between the owner and the number is a kind.Kind.
//
// An encoded name has no tilde, so the driver's other nodes cannot be locks.
const (
	// directory contains all locks of a chroot.
	directory = "/dlock"

	// queueNode contains the queue of a lock. It is created only after the name in the lock's node
	// was checked. So a foreign node has no queue, and an attempt fails before it writes anything.
	queueNode = "/~queue"

	// probeNode is created and deleted by Open.
	probeNode = "/~probe"

	// floorPrefix begins the parent nodes of measure.Floor.
	floorPrefix = "/~floor-"

	// noNode never exists. A proof deletes it.
	noNode = "/~none"

	// reserved is the server's own node. The server does not refuse nodes in it.
	reserved = "/zookeeper"

	// maxKey is the maximum length of an encoded name. No valid name exceeds it, because each byte
	// takes at most three. So names are never hashed, and a prefix of a name finds them.
	maxKey = 3 * key.MaxName
)

// path returns the path of the node of a lock.
func (d *driver) path(name string) string {
	return d.settings.root + "/" + key.Encode(name, maxKey)
}

// queue returns the path of the queue of a lock.
func (d *driver) queue(name string) string { return d.path(name) + queueNode }

// entry is the node of a holder or of a waiter in the queue of a lock.
type entry struct {
	name   string // of the node, without its path
	owner  string
	kind   kind.Kind
	number int32 // the order of the queue; see compareEntries
}

// parseEntry reads the name of a node: 32 hex digits, the kind and the server's number, with
// hyphens in between. The number is negative after the lock's counter has overflowed. ok is false
// for a node of another program.
func parseEntry(name string) (e entry, ok bool) {
	owner, rest, _ := strings.Cut(name, "-")
	word, digits, _ := strings.Cut(rest, "-")
	k := kind.Kind(word)
	if len(owner) != 32 || len(digits) < 10 || !k.Valid() {
		return entry{}, false
	}
	if strings.Trim(owner, "0123456789abcdef") != "" {
		return entry{}, false
	}
	number, err := strconv.ParseInt(digits, 10, 32)
	return entry{name, owner, k, int32(number)}, err == nil
}

// Kind implements kind.Entry.
func (e entry) Kind() kind.Kind { return e.kind }

// nodeName returns the name of a node, without the number that the server appends.
func nodeName(owner string, k kind.Kind) string { return owner + "-" + string(k) + "-" }

// compareEntries orders entries by numbers that wrap around: two numbers in one queue differ by
// less than half of their range.
func compareEntries(a, b entry) int { return cmp.Compare(a.number-b.number, 0) }
