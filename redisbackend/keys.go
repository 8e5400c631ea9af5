package redisbackend

import (
	"strconv"
	"sync"

	"github.com/dlock-go/dlock/backend/key"
)

// keys are the names of the server's keys for one lock; scripts/grant.lua describes their values.
// In a cluster all of them are in the same slot. Three of them have the encoded name in braces as
// their hash tag, and the fence has another hash tag of that slot. The queue and waiters exist only
// while there are queue entries.
type keys struct {
	lock, fence, queue, waiters string
}

// maxKey is more bytes than any valid name has after the encoding, which makes at most three bytes
// of each. So names are never hashed here, and List finds them by their prefix.
const maxKey = 3 * key.MaxName

// fenceKey is the key of the last fence of all locks of a server. In a cluster each slot has its
// own, whose name ends in a hash tag of the slot.
const fenceKey = "dlock:fence"

// newKeys returns the keys of a lock on a single server. It cuts them from one string, which saves
// 4 of 31 allocations and 6 % of the time of an uncontended pair of Lock and Unlock.
func newKeys(name string) keys {
	e := key.Encode(name, maxKey)
	return cutKeys("dlock:{"+e+"}:queue"+"dlock:{"+e+"}:waiters", len(e))
}

// lockKey returns the key of a lock, which is the same in a cluster.
func lockKey(name string) string { return "dlock:{" + key.Encode(name, maxKey) + "}" }

// newClusterKeys returns the keys of a lock in a cluster.
func newClusterKeys(name string) keys {
	e := key.Encode(name, maxKey)
	tag := strconv.Itoa(int(slotTags()[slotOf(e)]))
	all := "dlock:{" + e + "}:queue" + "dlock:{" + e + "}:waiters" + fenceKey + ":{" + tag + "}"
	fence := len(all) - len(fenceKey+":{}") - len(tag)
	k := cutKeys(all[:fence], len(e))
	k.fence = all[fence:]
	return k
}

// cutKeys cuts the keys of a lock from all, the keys of its queue and its waiters. n is the length
// of the encoded name in bytes. The key of the lock is a prefix of the key of its queue.
func cutKeys(all string, n int) keys {
	lock := len("dlock:{}") + n
	queue := lock + len(":queue")
	return keys{lock: all[:lock], fence: fenceKey, queue: all[:queue], waiters: all[queue:]}
}

// slots is the number of slots of every cluster.
const slots = 1 << 14

// slotOf returns the slot of a hash tag: its CRC-16 in the variant XMODEM.
func slotOf(tag string) uint16 {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
	}
	return crc % slots
}

// slotTags returns, for each slot, the smallest number whose decimal digits are a hash tag of it.
// The numbers never change, so that all clients have the same fence keys. The search for them takes
// some 20 ms, once in a process.
var slotTags = sync.OnceValue(func() *[slots]uint32 {
	var tags [slots]uint32
	var digits [10]byte
	for n, missing := uint32(1), slots; missing > 0; n++ {
		text := strconv.AppendUint(digits[:0], uint64(n), 10)
		if slot := slotOf(string(text)); tags[slot] == 0 {
			tags[slot] = n
			missing--
		}
	}
	return &tags
})
