package etcdbackend

import (
	"bytes"
	"strconv"
	"strings"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend/key"
)

// The driver uses these keys:
//
//	root/lock/NAME/OWNER  an acquisition of OWNER, or of the owner in its value, which is a record
//	root/client/ID        the inbox of a driver; its value is the owner of a broken lock
//	root/client/ID/LEASE  the marker of a lease of that driver, in hexadecimal digits
//	root/floor/NAME       a lock of Floor
//
// NAME is the name of the lock as key.Encode returns it, so it contains no slash.

// maxKey is the limit of an encoded name in bytes. A valid name never exceeds it, because each of
// its bytes takes three at most. So no name is hashed, and List can search names by prefix.
const maxKey = 3 * key.MaxName

// lockPart separates the root from the name of a lock. Options.check keeps it out of roots.
const lockPart = "/lock/"

// keys are the keys of one acquisition.
type keys struct {
	key    string // of the acquisition itself
	prefix string // of all acquisitions of the lock, and of no other lock; ends in a slash
}

// newKeys returns the keys of an acquisition under root. The prefix is a part of the key, so both
// share one allocation.
func newKeys(root, name, owner string) keys {
	k := root + lockPart + key.Encode(name, maxKey) + "/" + owner
	return keys{key: k, prefix: k[:len(k)-len(owner)]}
}

// bytes returns the key, the prefix, and the end of the prefix's range, which share one allocation.
func (k keys) bytes() (own, prefix, end []byte) {
	n, m := len(k.key), len(k.prefix)
	b := append(append(make([]byte, 0, n+m), k.key...), k.prefix...)
	b[n+m-1]++ // the range ends before the byte that follows the slash
	return b[:n:n], b[:m:m], b[n:]
}

// prefix returns the beginning of the keys of one lock.
func (d *driver) prefix(name string) string { return newKeys(d.root, name, "").prefix }

// locks returns the beginning of the keys of all locks.
func (d *driver) locks() string { return d.root + lockPart }

// inboxOf returns the key of the inbox of the driver with that id.
func (d *driver) inboxOf(id string) string { return d.root + "/client/" + id }

// markerOf returns the key of the marker of a lease of d.
func (d *driver) markerOf(id clientv3.LeaseID) string { return d.inbox + "/" + markerName(id) }

// markerName returns the last part of the key of a marker. No owner has such a name: see
// backend.Request.
func markerName(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }

// leaseOf returns the lease of d that a marker belongs to, or 0 if key is no marker.
func (d *driver) leaseOf(key []byte) clientv3.LeaseID {
	hex, ok := strings.CutPrefix(string(key), d.inbox+"/")
	id, err := strconv.ParseInt(hex, 16, 64)
	if !ok || err != nil {
		return 0
	}
	return clientv3.LeaseID(id)
}

// floorKey returns the key of a lock of Floor.
func (d *driver) floorKey(name string) string {
	return d.root + "/floor/" + key.Encode(name, maxKey)
}

// creatorOf returns the last part of a key: the owner that created it. The key has this name for
// its life, also after an Adopt has given it to another owner.
func creatorOf(key []byte) string { return string(key[bytes.LastIndexByte(key, '/')+1:]) }

// ownerIn returns the owner of an acquisition's key. Only a key that was written again can have
// another one than its creator.
func ownerIn(kv *mvccpb.KeyValue) string {
	if kv.ModRevision != kv.CreateRevision {
		if r, err := decode(kv, ""); err == nil {
			return r.owner
		}
	}
	return creatorOf(kv.Key)
}
