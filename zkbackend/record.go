package zkbackend

import (
	"strconv"
	"strings"
)

// recordMark is the first line of a record. It identifies dlock and the version of the format.
const recordMark = "dlock1"

// encodeRecord returns the data of a node that replaces the holder's first node: a record. It has
// three parts with line breaks between them: recordMark, the raw fence of the grant, and the meta.
// All other nodes have only the meta, because the number of the transaction that created such a
// node is the fence.
func encodeRecord(fence uint64, meta string) []byte {
	return []byte(recordMark + "\n" + strconv.FormatUint(fence, 10) + "\n" + meta)
}

// parseRecord returns the raw fence and the meta of a holder. created is the number of the
// transaction that created its node, and is the fence if data is not a record. A meta is never
// taken for a record, because the core accepts no meta with a line break. A fence above created is
// not the driver's: the first node is older.
func parseRecord(data []byte, created uint64) (fence uint64, meta string) {
	text := string(data)
	mark, rest, _ := strings.Cut(text, "\n")
	number, meta, _ := strings.Cut(rest, "\n")
	fence, err := strconv.ParseUint(number, 10, 64)
	if mark != recordMark || err != nil || fence > created {
		return created, text
	}
	return fence, meta
}
