package etcdbackend

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// recordMark is the first line of a record. It identifies dlock and the version of the format.
const recordMark = "dlock1"

// errForeign is the error for a value in the place of a record.
var errForeign = fmt.Errorf("%w: the value under the key is not dlock's", backend.ErrConflict)

// record is the content of an acquisition's key. The value has six parts with line breaks between
// them: recordMark, kind, client, since in Unix µs, name, and meta. Only meta can contain a line
// break. After an Export, the part of the client has three words: the client, the owner, and the
// secret. After an Adopt it has two: the client and the owner.
type record struct {
	kind               kind.Kind
	client, name, meta string    // client is the id of the driver, which has an inbox
	since              time.Time // of the attempt that created the key, by the client's clock
	owner              string    // the creator of the key, unless the grant was adopted
	secret             string    // of the ticket, if the grant was exported

	// The key itself has these. The revisions are 0 before the server has it.
	creator           string
	created, modified int64 // create revision, and the revision of its last change
	lease             int64
}

// Kind implements kind.Entry.
func (r record) Kind() kind.Kind { return r.kind }

// newRecord returns the record of a that a driver with the id client writes now.
func newRecord(client string, a *acquisition) record {
	return record{
		kind: a.kind, client: client, name: a.name, meta: a.meta, since: time.Now(),
		owner: a.owner, creator: a.owner,
	}
}

// encode returns the value of the key, in one allocation.
func (r record) encode() []byte {
	const numbers = 24 // and the line breaks
	client := r.clientWords()
	size := len(recordMark) + len(r.kind) + len(client) + numbers + len(r.name) + len(r.meta)
	b := make([]byte, 0, size)
	b = append(append(append(b, recordMark+"\n"...), r.kind...), '\n')
	b = append(append(b, client...), '\n')
	b = append(strconv.AppendInt(b, r.since.UnixMicro(), 10), '\n')
	return append(append(append(b, r.name...), '\n'), r.meta...)
}

// clientWords returns the client with the owner and the secret, where they are needed.
func (r record) clientWords() string {
	switch {
	case r.secret != "":
		return r.client + " " + r.owner + " " + r.secret
	case r.owner != r.creator:
		return r.client + " " + r.owner
	}
	return r.client
}

// decode reads a record. It returns ErrConflict if the value is not dlock's, or belongs to another
// lock than name. An empty name accepts each lock.
func decode(kv *mvccpb.KeyValue, name string) (record, error) {
	lines := strings.SplitN(string(kv.Value), "\n", 6)
	if len(lines) != 6 || lines[0] != recordMark || name != "" && lines[4] != name {
		return record{}, errForeign
	}
	micros, err := strconv.ParseInt(lines[3], 10, 64)
	k := kind.Kind(lines[1])
	if err != nil || !k.Valid() {
		return record{}, errForeign
	}
	client, owner, _ := strings.Cut(lines[2], " ")
	owner, secret, _ := strings.Cut(owner, " ")
	creator := creatorOf(kv.Key)
	return record{
		kind: k, client: client, name: lines[4], meta: lines[5], since: time.UnixMicro(micros),
		owner: cmp.Or(owner, creator), secret: secret,
		creator: creator, created: kv.CreateRevision, modified: kv.ModRevision, lease: kv.Lease,
	}, nil
}

// kindOf returns the kind in the value of a key, without the rest of the record. A value that is
// not dlock's counts as a writer: no other entry passes it.
func kindOf(value []byte) kind.Kind {
	mark, rest, _ := bytes.Cut(value, []byte("\n"))
	word, _, _ := bytes.Cut(rest, []byte("\n"))
	if k := kind.Kind(word); string(mark) == recordMark && k.Valid() {
		return k
	}
	return kind.Writer
}

// holder returns r as a holder with the remaining term ttl.
func (r record) holder(ttl time.Duration) backend.Holder {
	return backend.Holder{
		Owner: r.owner, Meta: r.meta, Fence: uint64(r.created) << 12, Since: r.since, TTL: ttl,
	}
}
