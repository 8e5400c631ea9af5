//go:build darwin || dragonfly || freebsd

package filebackend

// watcher does not exist on these systems: the core polls.
type watcher struct{}

// newWatcher returns nil, so that the driver calls no method of the watcher.
func newWatcher(string, func(name string)) *watcher { return nil }

func (*watcher) close()                   {}
func (*watcher) watchDir()                {}
func (*watcher) open() bool               { return false }
func (*watcher) add(*acquisition) int     { return noWatch }
func (*watcher) remove(int, *acquisition) {}
