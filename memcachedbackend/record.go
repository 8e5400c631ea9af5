package memcachedbackend

import (
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// record is the value of a lock. Its length does not change while one owner holds the lock: the
// value stays in its slab class, where each renewal protects it from eviction.
type record struct {
	owner  string
	list   string    // of servers, which the writer used: see listID
	ticket string    // the secret of an exported grant, or noTicket
	fence  uint64    // foreseen; stored again if the drawn fence differs
	since  time.Time // the beginning of the attempt that added or adopted it: see isGrants
	until  time.Time // by the holder's clock; only Inspect uses it
	name   string
	meta   string
}

const (
	// version begins every value. It changes with the format: a value with another version is
	// foreign, and its lock is ErrConflict.
	version = "dlock3"
	// noTicket is the ticket of a grant that was not exported. It is as long as the secrets.
	noTicket = "--------------------------"
	// recordFields is the number of fields in a value: version, owner, list, ticket, fence, since,
	// until, name and meta. A newline separates them. The meta is last, because it may contain
	// newlines.
	recordFields = 9
	// digits is the width of each of the three numbers.
	digits = 16
)

// newRecord returns the record of req with a term that begins now.
func newRecord(req *backend.Request, list string, fence uint64, now time.Time) *record {
	return &record{
		owner:  req.Owner,
		list:   list,
		ticket: noTicket,
		fence:  fence,
		since:  now,
		until:  now.Add(grantedTTL(req.TTL)),
		name:   req.Key,
		meta:   req.Meta,
	}
}

// encode returns the value of r. Times are in microseconds since 1970.
func (r *record) encode() []byte {
	texts := len(version) + len(r.owner) + len(r.list) + len(r.ticket) + len(r.name) + len(r.meta)
	b := make([]byte, 0, texts+3*digits+recordFields)
	b = append(b, version...)
	b = append(append(b, '\n'), r.owner...)
	b = append(append(b, '\n'), r.list...)
	b = append(append(b, '\n'), r.ticket...)
	b = appendNumber(append(b, '\n'), int64(r.fence))
	b = appendNumber(append(b, '\n'), r.since.UnixMicro())
	b = appendNumber(append(b, '\n'), r.until.UnixMicro())
	b = append(append(b, '\n'), r.name...)
	return append(append(b, '\n'), r.meta...)
}

// appendNumber appends n with leading zeros: 16 digits.
func appendNumber(b []byte, n int64) []byte {
	for limit := int64(1e15); limit > max(n, 1); limit /= 10 {
		b = append(b, '0')
	}
	return strconv.AppendInt(b, n, 10)
}

// decode is the inverse of encode. It returns false for a value that dlock has not written.
func decode(value []byte) (*record, bool) {
	fields := strings.SplitN(string(value), "\n", recordFields)
	if len(fields) != recordFields || fields[0] != version {
		return nil, false
	}
	fence, err1 := strconv.ParseUint(fields[4], 10, 64)
	since, err2 := strconv.ParseInt(fields[5], 10, 64)
	until, err3 := strconv.ParseInt(fields[6], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return nil, false
	}
	return &record{
		owner:  fields[1],
		list:   fields[2],
		ticket: fields[3],
		fence:  fence,
		since:  time.UnixMicro(since),
		until:  time.UnixMicro(until),
		name:   fields[7],
		meta:   fields[8],
	}, true
}
