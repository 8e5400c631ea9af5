package zkbackend

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// mark stands in the name of a node between its owner and the number that the server appends. It says
// what the node asks for: to write, that is to exclude everybody.
const mark = "-w-"

// Wait implements backend.Waiter.
func (d *driver) Wait(ctx context.Context, _ *backend.Request, b *backend.Busy) (*backend.Grant, error) {
	p, ok := b.State.(*place)
	if !ok {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-p.ahead.fired:
	case <-p.own.fired:
	case <-p.session.ctx.Done():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return nil, nil
}

// place is where a waiter stands. It watches its predecessor alone, so that a release wakes one
// waiter and not all.
type place struct {
	session    *session
	own, ahead *watch
}

// follow watches one that is known to stand before e, without asking who is the nearest: more often than not it is that one. It
// returns nil if there is none. That the one is gone does not say that nobody else is left.
func (e *entry) follow() *watch {
	tail := e.tail
	if e.tail = ""; tail == "" {
		return nil
	}
	w, err := e.session.watch(tail)
	if err != nil {
		return nil
	}
	return w
}

// waitBehind returns e's *Busy, with the watch on the last of those who stand before it.
func (e *entry) waitBehind(before []member) error {
	w, err := e.session.watch(e.parent + "/" + before[len(before)-1].name)
	if errors.Is(err, zk.ErrNoNode) {
		w = &watch{gone: errDeleted, fired: closed} // gone meanwhile: look again at once
	} else if err != nil {
		return err
	}
	e.ahead = nil
	if len(before) == 1 {
		e.ahead = w
	}
	return e.busyBehind(before[0].owner, w)
}

// busyBehind is e's *Busy until the node of ahead has changed.
func (e *entry) busyBehind(holder string, ahead *watch) error {
	return &backend.Busy{
		Holder: holder, Queued: true,
		State: &place{session: e.session, own: e.own.Load(), ahead: ahead},
	}
}

// first tells that nobody stands before e any more, without asking: the only one that did is gone, and whoever has come
// since stands behind. That needs to know that e's own node was not deleted before that.
func (e *entry) first() bool {
	s, own := e.session, e.own.Load()
	return e.alone && s.inOrder(own) ||
		e.ahead != nil && errors.Is(s.gone(e.ahead), errDeleted) && s.inOrder(own, e.ahead)
}

// member is one who holds a lock, or waits for it.
type member struct {
	name, owner string
	number      int32
}

// members lists who holds a lock and who waits for it, in their order; nobody, where there is
// no such lock.
func (s *session) members(parent string) ([]member, error) {
	names, _, err := s.conn.Children(parent)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	members := make([]member, 0, len(names))
	for _, name := range names {
		if m, ok := parseMember(name); ok { // others are not ours
			members = append(members, m)
		}
	}
	slices.SortFunc(members, compare)
	return members, nil
}

// parseMember reads the name of a node: 32 hex digits, the mark, and the server's number, which is
// negative once the counter of the lock has overflowed.
func parseMember(name string) (member, bool) {
	owner, digits, ok := strings.Cut(name, mark)
	if !ok || len(owner) != 32 || strings.Trim(owner, "0123456789abcdef") != "" || len(digits) < 10 {
		return member{}, false
	}
	number, err := strconv.ParseInt(digits, 10, 32)
	return member{name, owner, int32(number)}, err == nil
}

// compare orders numbers that wrap around: they are nearer to each other than half their range.
func compare(a, b member) int { return cmp.Compare(a.number-b.number, 0) }
