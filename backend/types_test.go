package backend

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestInfoJSON(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	info := Info{Key: "x", Mode: Exclusive, Waiters: -1, Holders: []Holder{
		{Owner: "o", Meta: "m", Fence: 1 << 60, Since: since, TTL: 1500 * time.Millisecond},
	}}
	data, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"x","mode":"exclusive","limit":0,"holders":[{"owner":"o","meta":"m","fence":"1152921504606846976",` +
		`"since":"2026-11-20T12:00:00Z","ttl_ms":1500}],"waiters":-1}`
	if string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
	var again Info
	if err := json.Unmarshal(data, &again); err != nil || !reflect.DeepEqual(again, info) {
		t.Errorf("and back: %+v, %v", again, err)
	}
}

func TestFreeLockInJSON(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(&Info{Key: "x"})
	if err != nil || !strings.Contains(string(data), `"holders":[]`) {
		t.Errorf("%s, %v", data, err)
	}
}

func TestUnknownTTLInJSON(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(Holder{TTL: -time.Nanosecond})
	if err != nil || !strings.Contains(string(data), `"ttl_ms":-1`) {
		t.Errorf("%s, %v", data, err)
	}
}

func TestCapabilitiesUnmet(t *testing.T) {
	t.Parallel()
	caps := Capabilities{
		Modes: Exclusive, Fair: FairOptional, Fencing: FenceVolatile, List: true,
		MinTTL: time.Second, MaxTTL: time.Hour,
	}
	for _, minimum := range []Capabilities{
		{},
		{Modes: Exclusive, Fair: FairOptional, Fencing: FenceVolatile, List: true},
		{MinTTL: time.Second, MaxTTL: time.Hour},
	} {
		if unmet := caps.Unmet(minimum); len(unmet) > 0 {
			t.Errorf("%+v: unmet %q", minimum, unmet)
		}
	}
	tests := map[string]Capabilities{
		"mode shared": {Modes: Exclusive | Shared}, "fair": {Fair: FairAlways}, "fence-durable": {Fencing: FenceDurable},
		"session": {Session: true}, "inspect": {Inspect: true}, "break": {Break: true}, "move": {Move: true}, "notify": {Notify: true},
		"TTL of 10ms": {MinTTL: 10 * time.Millisecond}, "TTL of 2h0m0s": {MaxTTL: 2 * time.Hour},
	}
	for want, minimum := range tests {
		if unmet := caps.Unmet(minimum); len(unmet) != 1 || unmet[0] != want {
			t.Errorf("%+v: unmet %q, want %q", minimum, unmet, want)
		}
	}
}

func TestBusyIsNotAcquired(t *testing.T) {
	t.Parallel()
	var err error = &Busy{Holder: "somebody"}
	if !errors.Is(err, ErrNotAcquired) || !strings.Contains(err.Error(), "somebody") {
		t.Errorf("%v", err)
	}
}

func TestModeText(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{0, Exclusive, Shared | Permit} {
		text, _ := mode.MarshalText()
		var again Mode
		if err := again.UnmarshalText(text); err != nil || again != mode {
			t.Errorf("%v became %q became %v, %v", uint8(mode), text, again, err)
		}
	}
	if err := new(Mode).UnmarshalText([]byte("odd")); err == nil {
		t.Error("an unknown mode was taken")
	}
}
