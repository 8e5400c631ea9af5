package zkbackend

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// children follows the path of a node to denote the list of its children.
const children = "/"

// watch is the server's promise to report the next change of a node, or of the list of its
// children. All acquisitions of a session that watch one node share one watch: the server counts
// watches, and the library cannot remove them.
//
//	state      armed   fired   event                             next
//	requested  open    open    the server has set the watch      armed
//	                           the request failed                fired
//	armed      closed  open    the node was written or deleted   fired
//	                           the session ended                 fired
//	fired      closed  closed
//
// The last two events may also come before the answer that sets the watch: then fired closes before
// armed. A watch is in session.watches until it fires.
type watch struct {
	path     string        // ends with children for a list
	wire     int           // number of the connection on which it was requested
	armed    chan struct{} // closed when the request was answered; the next three are then constant
	err      error
	stat     *zk.Stat // of the node when the watch was set
	children []string // the list at that time

	fired chan struct{} // closed when the node has changed, or the session is over

	// session.mu must be held for these.
	gone   error       // why the node no longer exists; nil if not fired, or if it was only written
	onGone func(error) // to be called with gone; nil: none
}

// closedChan is a channel that is closed.
var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// deletedWatch returns the watch of a node that does not exist.
func deletedWatch() *watch {
	return &watch{gone: errDeleted, armed: closedChan, fired: closedChan}
}

// watch returns a watch on the node that has not fired yet. It returns zk.ErrNoNode if there is no
// such node. It blocks for one round trip, unless the node is already watched.
func (s *session) watch(path string) (*watch, error) {
	w, isNew := s.register(path)
	if isNew {
		s.arm(w)
		return w, w.err
	}
	return w, s.awaitArmed(w)
}

// watchInBackground is watch for a node that this session has just created. It does not wait for
// the server's answer.
func (s *session) watchInBackground(path string) *watch {
	w, isNew := s.register(path)
	if isNew {
		s.inBackground(func() { s.arm(w) }) // if the session is over, end fires w
	}
	return w
}

// register returns the watch of the node. If it is new, the caller has to arm it.
func (s *session) register(path string) (w *watch, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.watches[path]; w != nil {
		return w, false
	}
	w = &watch{
		path: path, wire: s.wires, armed: make(chan struct{}), fired: make(chan struct{}),
	}
	if s.ctx.Err() == nil {
		s.watches[path] = w
		return w, true
	}
	w.err = zk.ErrSessionExpired
	close(w.armed)
	return w, false
}

// unregister removes w, and reports whether it was still registered. If it was not, it has fired.
func (s *session) unregister(w *watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[w.path] != w {
		return false
	}
	delete(s.watches, w.path)
	return true
}

// arm requests a watch. It was registered before, so that no event is missed. If the request fails,
// the watch fires, because another acquisition that shares it would otherwise wait for ever. It
// fires as deleted if there is no such node, and otherwise as written, so that it is requested
// again.
func (s *session) arm(w *watch) {
	defer close(w.armed)
	if parent, isList := strings.CutSuffix(w.path, children); isList {
		w.children, w.stat, _, w.err = s.conn.ChildrenW(parent)
	} else {
		_, w.stat, _, w.err = s.conn.GetW(w.path)
	}
	if w.err == nil || !s.unregister(w) {
		return
	}
	if errors.Is(w.err, zk.ErrNoNode) {
		s.fireWatch(w, errDeleted)
	} else {
		s.fireWatch(w, nil)
	}
}

// awaitArmed blocks until the server has answered the request for w, and returns its error.
func (s *session) awaitArmed(w *watch) error {
	select {
	case <-w.armed:
		return w.err
	case <-s.ctx.Done():
		return zk.ErrSessionExpired
	}
}

// fire fires the watch of the node, if there is one. gone is the reason if the node no longer
// exists, and nil if it was written.
func (s *session) fire(path string, gone error) {
	s.mu.Lock()
	w := s.watches[path]
	delete(s.watches, path)
	s.mu.Unlock()
	if w != nil {
		s.fireWatch(w, gone)
	}
}

// fireWatch is fire for a watch that is no longer registered.
func (s *session) fireWatch(w *watch, gone error) {
	s.mu.Lock()
	onGone := w.onGone
	if w.gone = gone; gone != nil {
		w.onGone = nil // a waiter that keeps w would keep the lost lock in memory
	}
	close(w.fired)
	s.mu.Unlock()
	if gone != nil && onGone != nil {
		onGone(gone)
	}
}

// onGone makes fn the function to be called when the node of w is gone; nil is none. If the node is
// gone already, onGone returns the reason, and fn is not called.
func (s *session) onGone(w *watch, fn func(error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.onGone = fn
	return w.gone
}

// moveOnGone moves the function of onGone from a fired watch to its successor.
func (s *session) moveOnGone(old, w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.onGone = old.onGone
}

// gone returns the reason if the node of w no longer exists, as far as the server has reported.
func (s *session) gone(w *watch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.gone
}

// isStale reports whether w has fired and its node may still exist, so that the node is not
// watched.
func (s *session) isStale(w *watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.hasFired() && w.gone == nil
}

// hasFired reports whether w reports no further change.
func (w *watch) hasFired() bool {
	select {
	case <-w.fired:
		return true
	default:
		return false
	}
}

// inOrder reports whether the events of the watches arrived in the order of the changes. That is
// certain only if all were requested on the present connection.
func (s *session) inOrder(watches ...*watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(watches, func(w *watch) bool { return w.wire != s.wires })
}

// watching reports whether there are watches, which the library may request again on a new
// connection.
func (s *session) watching() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches) > 0
}

// Watch implements backend.Watcher. It fails for a name that was never locked, whose queue does not
// exist yet.
func (d *driver) Watch(ctx context.Context, key string, changed func()) error {
	for {
		s, err := d.liveSession(ctx)
		if err != nil {
			return err
		}
		w, err := call(ctx, s, func() (*watch, error) { return s.watch(d.queue(key) + children) })
		if err != nil {
			return interpretError(err)
		}
		changed()
		select {
		case <-w.fired:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
