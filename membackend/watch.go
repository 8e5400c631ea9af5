package membackend

import "context"

// watch is one Watch. space.mu guards the set of them.
type watch struct {
	key     string
	changed chan struct{} // of one element
}

// Watch implements backend.Watcher. It calls changed on the caller's goroutine and without
// space.mu, so changed may use the driver. The end of a term is reported when a request finds it.
func (d *driver) Watch(ctx context.Context, key string, changed func()) error {
	if err := d.checkOpen(); err != nil {
		return err
	}
	w := &watch{key: key, changed: make(chan struct{}, 1)}
	d.space.setWatch(w, true)
	defer d.space.setWatch(w, false)
	for {
		changed()
		select {
		case <-w.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// setWatch begins or ends a watch.
func (s *space) setWatch(w *watch, begin bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !begin {
		delete(s.watches, w)
		return
	}
	if s.watches == nil {
		s.watches = make(map[*watch]bool)
	}
	s.watches[w] = true
}

// tell reports a change of the holders of a key. It never blocks: a watch that is busy finds one
// element in its channel, which stands for all changes since its last call. s.mu must be held.
func (s *space) tell(key string) {
	if len(s.watches) == 0 {
		return // the loop would cost 2 % of a pair of Lock and Unlock
	}
	for w := range s.watches {
		if w.key != key {
			continue
		}
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}
