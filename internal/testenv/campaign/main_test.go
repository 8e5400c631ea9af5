//go:build unix

package main

import (
	"io"
	"strings"
	"testing"
)

// TestUsageErrors checks that an unknown name is a usage error that lists the known names.
func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"oracle"}, "redis-sentinel"},
		{[]string{"-faults", "stop,earthquake", "redis"}, "late-request"},
		{[]string{"-duration", "0s"}, "duration"},
		{[]string{"-unknown"}, "usage"},
		{[]string{"-judge"}, "file"},
	} {
		_, err := parse(c.args, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestAllServersByDefault(t *testing.T) {
	o, err := parse(nil, io.Discard)
	if err != nil || len(o.servers) != len(targets) {
		t.Errorf("parse = %v, %v", o, err)
	}
}
