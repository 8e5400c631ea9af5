package backend

import (
	"errors"
	"strings"
	"testing"
	"time"
)

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
	everything := Capabilities{
		Modes: Exclusive | Shared | Permit, Fair: FairAlways, Fencing: FenceDurable, Session: true,
		Inspect: true, List: true, Break: true, Move: true, Notify: true,
	}
	if unmet := everything.Unmet(everything); len(unmet) > 0 {
		t.Errorf("a driver with everything: unmet %q", unmet)
	}
	if unmet := (Capabilities{}).Unmet(everything); len(unmet) != 9 {
		t.Errorf("a driver with nothing: unmet %q", unmet)
	}
	tests := map[string]Capabilities{
		"mode shared": {Modes: Exclusive | Shared}, "fair": {Fair: FairAlways},
		"fence-durable": {Fencing: FenceDurable}, "session": {Session: true},
		"inspect": {Inspect: true}, "break": {Break: true},
		"move": {Move: true}, "notify": {Notify: true},
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
		again := Permit
		if err := again.UnmarshalText(text); err != nil || again != mode {
			t.Errorf("%v became %q became %v, %v", uint8(mode), text, again, err)
		}
	}
	if err := new(Mode).UnmarshalText([]byte("odd")); err == nil {
		t.Error("an unknown mode was accepted")
	}
}
