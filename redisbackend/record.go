package redisbackend

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// magic is the first line of the value of a lock.
const magic = "dlock1"

// record is the value of a lock: lines of text, which scripts/grant.lua writes and describes. Its
// last three lines are the tail, which the client encodes. The server sets the other lines, because
// the server grants a lock to the head of the queue without a request of that client. Of a lock
// with several holders each holder has a record.
type record struct {
	owner string
	fence uint64    // raw, as in backend.Grant
	since time.Time // by the server's clock, with microseconds
	name  string    // Request.Key
	meta  string    // Request.Meta, which may have line feeds
}

// encodeTail returns the part of a record that the client of an acquisition determines: its client,
// name and meta. The server sends messages about the acquisition to the channel of that client.
func encodeTail(client string, req *backend.Request) string {
	return client + "\n" + req.Key + "\n" + req.Meta
}

// decode returns the record in the value of a lock. It returns false for a value that is not
// dlock's. The meta is the last part, so that its line feeds stay.
func decode(value string) (record, bool) {
	lines := strings.SplitN(value, "\n", 8)
	if len(lines) != 8 || lines[0] != magic {
		return record{}, false
	}
	fence, err := parseFence(lines[2])
	seconds, err1 := strconv.ParseInt(lines[3], 10, 64)
	micros, err2 := strconv.ParseInt(lines[4], 10, 64)
	if err != nil || err1 != nil || err2 != nil {
		return record{}, false
	}
	since := time.Unix(seconds, micros*1000)
	return record{owner: lines[1], fence: fence, since: since, name: lines[6], meta: lines[7]}, true
}

// holder returns the record for Inspect and List. ttl is the remaining time of its key.
func (r *record) holder(ttl time.Duration) backend.Holder {
	return backend.Holder{
		Owner: r.owner, Meta: r.meta, Fence: r.fence << 12, Since: r.since, TTL: ttl,
	}
}

// parseFence returns the fence in a text of a script, which has the fence as Unix time in µs. It
// returns an error for a number that no script writes.
func parseFence(text string) (uint64, error) {
	micros, err := strconv.ParseUint(text, 10, 64)
	if err != nil || micros <= backend.FenceEpoch || micros-backend.FenceEpoch >= backend.MaxFence {
		return 0, fmt.Errorf("the fence is %.32q", text)
	}
	return micros - backend.FenceEpoch, nil
}

// ceilMillis returns d in ms, rounded up: the server must keep a lock for the whole TTL. The
// longest durations are rounded down, because the sum would wrap.
func ceilMillis(d time.Duration) int64 {
	d = min(d, math.MaxInt64-time.Millisecond)
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
