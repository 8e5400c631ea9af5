package zkbackend

import "testing"

// TestRecord checks the fence and the meta of nodes, with records and without.
func TestRecord(t *testing.T) {
	t.Parallel()
	const created = 9
	for _, tt := range []struct {
		name, data string
		fence      uint64
		meta       string
	}{
		{"a record", string(encodeRecord(7, "me@host")), 7, "me@host"},
		{"without a meta", string(encodeRecord(7, "")), 7, ""},
		{"a meta with line breaks", string(encodeRecord(7, "a\n8\nb")), 7, "a\n8\nb"},
		{"a meta alone, as in a reader's node of an earlier build", "me@host", created, "me@host"},
		{"nothing", "", created, ""},
		{"a meta like the mark", recordMark, created, recordMark},
		{"another mark", "dlock2\n7\nme", created, "dlock2\n7\nme"},
		{"no number", "dlock1\n\nme", created, "dlock1\n\nme"},
		{"a negative number", "dlock1\n-7\nme", created, "dlock1\n-7\nme"},
		{"a later fence", "dlock1\n10\nme", created, "dlock1\n10\nme"},
	} {
		fence, meta := parseRecord([]byte(tt.data), created)
		if fence != tt.fence || meta != tt.meta {
			t.Errorf("%s: %d, %q, want %d, %q", tt.name, fence, meta, tt.fence, tt.meta)
		}
	}
}
