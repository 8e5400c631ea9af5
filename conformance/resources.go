package conformance

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// memory is the size of the heap, or a change of it.
type memory struct{ objects, bytes int64 }

func (m memory) plus(o memory) memory  { return memory{m.objects + o.objects, m.bytes + o.bytes} }
func (m memory) minus(o memory) memory { return memory{m.objects - o.objects, m.bytes - o.bytes} }

// within reports whether neither number is greater than in limit.
func (m memory) within(limit memory) bool {
	return m.objects <= limit.objects && m.bytes <= limit.bytes
}

func (m memory) String() string { return fmt.Sprintf("%d objects of %d bytes", m.objects, m.bytes) }

// heap returns the number and size of the process's live objects.
func heap() memory {
	var stats runtime.MemStats
	for range 3 { // finalizers and pools need several collections
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return memory{objects: int64(stats.HeapObjects), bytes: int64(stats.HeapAlloc)}
}

// sockets returns the number of open sockets of the process, or 0 if it is unknown.
func sockets() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}
