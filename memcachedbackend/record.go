package memcachedbackend

import (
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// record is the value of a lock. Its length does not change while it is held, so
// that it stays in its slab class and a renewal saves it from eviction there.
type record struct {
	owner      string
	list       string // of servers, by which the writer found this one
	fence      uint64 // a forecast until it is drawn
	since      time.Time
	until      time.Time // by the holder's clock: for show
	name, meta string
}

const (
	// version begins every value.
	version = "dlock2"
	// recordFields are version, owner, list, fence, since, until, name and meta, a line each; the meta, which may
	// contain anything, stands last.
	recordFields = 8
	// digits is the width of each of the three numbers.
	digits = 16
)

func newRecord(req *backend.Request, list string, fence uint64, now time.Time) *record {
	return &record{
		owner: req.Owner, list: list, fence: fence, since: now, until: now.Add(term(req.TTL)),
		name: req.Key, meta: req.Meta,
	}
}

func (r *record) encode() []byte {
	b := make([]byte, 0, len(version)+len(r.owner)+len(r.list)+3*digits+len(r.name)+len(r.meta)+recordFields)
	b = append(b, version...)
	b = append(append(b, '\n'), r.owner...)
	b = append(append(b, '\n'), r.list...)
	b = appendNumber(append(b, '\n'), int64(r.fence))
	b = appendNumber(append(b, '\n'), r.since.UnixMicro())
	b = appendNumber(append(b, '\n'), r.until.UnixMicro())
	b = append(append(b, '\n'), r.name...)
	return append(append(b, '\n'), r.meta...)
}

// appendNumber pads with zeros.
func appendNumber(b []byte, n int64) []byte {
	for limit := int64(1e15); limit > max(n, 1); limit /= 10 {
		b = append(b, '0')
	}
	return strconv.AppendInt(b, n, 10)
}

// decode returns false for what is not ours.
func decode(value []byte) (*record, bool) {
	fields := strings.SplitN(string(value), "\n", recordFields)
	if len(fields) != recordFields || fields[0] != version {
		return nil, false
	}
	fence, err1 := strconv.ParseUint(fields[3], 10, 64)
	since, err2 := strconv.ParseInt(fields[4], 10, 64)
	until, err3 := strconv.ParseInt(fields[5], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return nil, false
	}
	return &record{
		owner: fields[1], list: fields[2], fence: fence, since: time.UnixMicro(since), until: time.UnixMicro(until),
		name: fields[6], meta: fields[7],
	}, true
}
