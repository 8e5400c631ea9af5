// Package background runs the work of a driver that no caller waits for.
package background

import "sync"

// Group is the goroutines of a driver. Unlike a sync.WaitGroup it may get work while Close waits: a
// call that the core has given up can still be under way then. The zero Group is ready for use. It
// is safe for concurrent use.
type Group struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// Go runs fn in a goroutine, and reports whether it does so: after Close has begun it does nothing.
func (g *Group) Go(fn func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.running.Go(fn)
	return true
}

// Close lets Go do nothing any more, and blocks until all goroutines have ended. It does not end
// them.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.running.Wait()
}
