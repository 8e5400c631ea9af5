// Package announce has the lines by which a test reports which server it runs against, and which
// observations were void.
package announce

import (
	"fmt"
	"strings"
)

const (
	prefix = "dlock-server "
	format = prefix + "backend=%s source=%s version=%q"
)

// Server is what a test ran against.
type Server struct {
	Backend string // the driver's name: "redis"
	Source  string // "url", "container" or "process"
	Version string // as the server itself reports it, after the product's name: "Redis 8.0.6"
}

// String returns the line. It has no newline at its end.
func (s Server) String() string {
	return fmt.Sprintf(format, s.Backend, s.Source, s.Version)
}

// Parse finds the line in a line of a test's log, and reports whether there is one.
func Parse(log string) (s Server, ok bool) {
	start := strings.Index(log, prefix)
	if start < 0 {
		return s, false
	}
	n, _ := fmt.Sscanf(log[start:], format, &s.Backend, &s.Source, &s.Version)
	return s, n == 3
}

const voidMark = "dlock-void "

// Void returns the line by which a test reports an observation that it repeats, because the machine
// stood still.
func Void(reason string) string { return voidMark + reason }

// IsVoid reports whether a line of a test's log is such a line.
func IsVoid(log string) bool { return strings.Contains(log, voidMark) }
