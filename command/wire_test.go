package command

import (
	"errors"
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

// A record with a year that JSON cannot show does not hide the other locks.
func TestStrangeYearsAreShown(t *testing.T) {
	t.Parallel()
	for year, want := range map[int]string{-5: "0001-01-01T", 20000: "9999-12-31T"} {
		var got strings.Builder
		err := writeLock(&got, &backend.Info{Key: "x", Holders: []backend.Holder{
			{Since: time.Date(year, time.May, 1, 0, 0, 0, 0, time.UTC)},
		}})
		if err != nil || !strings.Contains(got.String(), want) {
			t.Errorf("year %d: %s, %v, want %s", year, &got, err, want)
		}
	}
}

// The name of the program is removed where an error begins, and not from names and metas.
func TestMessagesNameTheLock(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`dlock: lock "x": dlock: lock not acquired`: `lock "x": lock not acquired`,
		`"dlock: a": held by dlock: web`:            `"dlock: a": held by dlock: web`,
		`dlock: lock "a\": dlock: b": dlock: lost`:  `lock "a\": dlock: b": lost`,
		"dlock: one\ndlock: two (dlock: lost)":      "one; two (lost)",
	} {
		if got := message(errors.New(text)); got != want {
			t.Errorf("message of %s: %s, want %s", text, got, want)
		}
	}
}
