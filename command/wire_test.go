package command

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

func TestLockInJSON(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	holder := backend.Holder{
		Owner: "o", Meta: "<m>", Fence: 1 << 60, Since: since, TTL: 1500 * time.Millisecond,
	}
	unknown := backend.Holder{TTL: -time.Nanosecond}
	for want, info := range map[string]backend.Info{
		`{"name":"x","mode":"exclusive","limit":0,"holders":[{"owner":"o","meta":"<m>",` +
			`"fence":"1152921504606846976","since":"2026-11-20T12:00:00Z","ttl_ms":1500}],` +
			`"waiters":-1}`: {
			Key: "x", Mode: backend.Exclusive, Waiters: -1, Holders: []backend.Holder{holder},
		},
		`{"name":"x","mode":"exclusive","limit":0,"holders":[],"waiters":0}`: {
			Key: "x", Mode: backend.Exclusive,
		},
		`{"name":"x","mode":"exclusive","limit":0,"holders":[{"owner":"","meta":"","fence":"0",` +
			`"since":"0001-01-01T00:00:00Z","ttl_ms":-1}],"waiters":0}`: {
			Key: "x", Mode: backend.Exclusive, Holders: []backend.Holder{unknown},
		},
	} {
		var got strings.Builder
		if err := writeLock(&got, &info); err != nil || got.String() != want+"\n" {
			t.Errorf("%v: %s\nwant %s", err, &got, want)
		}
	}
}

// TestFieldsInJSONAreDocumented looks for each field in the document that users read.
func TestFieldsInJSONAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/command.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []any{lockJSON{}, holderJSON{}, finding{}} {
		for field := range reflect.TypeOf(object).Fields() {
			name := field.Tag.Get("json")
			if name == "" || !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("docs/command.md does not explain %q of %T", name, object)
			}
		}
	}
}
