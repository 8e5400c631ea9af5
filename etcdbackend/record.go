package etcdbackend

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/dlock-go/dlock/backend"
)

// recordMark is the first line of a record. It identifies dlock and the version of the format.
const recordMark = "dlock1"

// errForeign is the error for a value in the place of a record.
var errForeign = fmt.Errorf("%w: the value under the key is not dlock's", backend.ErrConflict)

// record is the content of an acquisition's key. The value has five parts with line breaks between
// them: recordMark, client, since in Unix µs, name, and meta. Only meta can contain a line break.
type record struct {
	client, name, meta string    // client is the id of the driver, which has an inbox
	since              time.Time // of the attempt that created the key, by the client's clock

	// The key itself has these.
	owner   string
	created int64 // create revision; 0 before the server has it
}

// newRecord returns the record of a that a driver with the id client writes now.
func newRecord(client string, a *acquisition) record {
	return record{client: client, name: a.name, meta: a.meta, since: time.Now(), owner: a.owner}
}

// encode returns the value of the key, in one allocation.
func (r record) encode() []byte {
	const numbers = 24 // and the line breaks
	size := len(recordMark) + len(r.client) + numbers + len(r.name) + len(r.meta)
	b := make([]byte, 0, size)
	b = append(append(append(b, recordMark+"\n"...), r.client...), '\n')
	b = append(strconv.AppendInt(b, r.since.UnixMicro(), 10), '\n')
	return append(append(append(b, r.name...), '\n'), r.meta...)
}

// decode reads a record. It returns ErrConflict if the value is not dlock's, or belongs to another
// lock than name. An empty name accepts each lock.
func decode(kv *mvccpb.KeyValue, name string) (record, error) {
	lines := strings.SplitN(string(kv.Value), "\n", 5)
	if len(lines) != 5 || lines[0] != recordMark || name != "" && lines[3] != name {
		return record{}, errForeign
	}
	micros, err := strconv.ParseInt(lines[2], 10, 64)
	if err != nil {
		return record{}, errForeign
	}
	return record{
		client: lines[1], name: lines[3], meta: lines[4], since: time.UnixMicro(micros),
		owner: ownerOf(kv.Key), created: kv.CreateRevision,
	}, nil
}

// holder returns r as a holder with the remaining term ttl.
func (r record) holder(ttl time.Duration) backend.Holder {
	return backend.Holder{
		Owner: r.owner, Meta: r.meta, Fence: uint64(r.created) << 12, Since: r.since, TTL: ttl,
	}
}
