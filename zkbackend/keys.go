package zkbackend

import (
	"cmp"
	"math"
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

	// noNode never exists. A proof deletes it, and Open requests a container in it.
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
// hyphens in between. The number can be negative, see isOrdered. ok is false for a node of another
// program.
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

// compareEntries orders entries by their numbers. The negative numbers come last: see isOrdered.
func compareEntries(a, b entry) int { return cmp.Compare(uint32(a.number), uint32(b.number)) }

// isOrdered reports whether the number of a node shows its place in the queue. The server's counter
// ends at math.MaxInt32. All later nodes in the queue have that number or negative ones. Present
// servers return to it, so several nodes can have it, and a later node can have a smaller number
// than the holder's.
func isOrdered(node string) bool {
	number, _ := strconv.ParseInt(numberOf(node), 10, 32)
	return 0 <= number && number < math.MaxInt32
}

// numberOf returns the number at the end of the path of a node.
func numberOf(node string) string {
	name := node[strings.LastIndex(node, "/")+1:]
	_, rest, _ := strings.Cut(name, "-")
	_, number, _ := strings.Cut(rest, "-")
	return number
}
