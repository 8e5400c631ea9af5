//go:build darwin || dragonfly || freebsd

package filebackend

// watcher is not there on these systems: the core polls.
type watcher struct{}

func newWatcher(string, func(name string)) *watcher { return nil }

func (*watcher) close()             {}
func (*watcher) watchDir()          {}
func (*watcher) add(*entry) int     { return noWatch }
func (*watcher) remove(int, *entry) {}
