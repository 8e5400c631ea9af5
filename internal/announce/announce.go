// Package announce formats and parses two kinds of lines in a test's log. One line reports the
// server that the test uses, the other one reports a void observation.
package announce

import (
	"fmt"
	"strings"
)

const (
	prefix = "dlock-server "
	format = prefix + "backend=%s source=%s version=%q"
)

// Server describes the server that a test uses.
type Server struct {
	Backend string // the driver's name: "redis"
	Source  string // "url", "container" or "process"
	Version string // as the server reports it, after the product's name: "Redis 8.0.6"
}

// String returns the line for the log, without a newline at its end.
func (s Server) String() string {
	return fmt.Sprintf(format, s.Backend, s.Source, s.Version)
}

// Parse finds a server's line in one line of a test's log. It reports false if there is none.
func Parse(log string) (s Server, ok bool) {
	start := strings.Index(log, prefix)
	if start < 0 {
		return s, false
	}
	n, _ := fmt.Sscanf(log[start:], format, &s.Backend, &s.Source, &s.Version)
	return s, n == 3
}

const voidMark = "dlock-void "

// Void returns the line for an observation that the test repeats because the machine was too slow.
func Void(reason string) string { return voidMark + reason }

// IsVoid reports whether a line of a test's log is such a line.
func IsVoid(log string) bool { return strings.Contains(log, voidMark) }
