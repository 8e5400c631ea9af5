package zkbackend

import (
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// removeOwner removes the nodes of an owner in one queue, except the node at the path except. It
// finds the nodes of every session. It returns ErrNotHeld if there are none.
func (d *driver) removeOwner(s *session, queue, owner, except string) error {
	entries, err := s.syncedEntries(queue)
	if err != nil {
		return interpretError(err)
	}
	result := backend.ErrNotHeld
	for _, e := range entries {
		node := queue + "/" + e.name
		if e.owner != owner || node == except {
			continue
		}
		switch err := d.remove(s, queue, node); {
		case err == nil:
			result = nil
		case !errors.Is(err, backend.ErrNotHeld):
			return interpretError(err)
		}
	}
	return result
}

// sweepLater removes, in the background, the ghost of a create that had no answer. The server may
// execute it after the search. No release would remove that node, and a itself might wait behind
// it. It repeats the sweep until it is answered, or until the session ends. a.turn must be taken.
func (d *driver) sweepLater(a *acquisition) {
	a.swept = true
	s := a.session
	s.inBackground(func() {
		for {
			select {
			case <-time.After(late):
			case <-s.ctx.Done():
				return
			}
			if d.sweep(a) == nil {
				return
			}
		}
	})
}

// sweep removes all nodes of the owner of a except the node in use. It waits for the turn of a. If
// the session ends first, the server removes the nodes.
func (d *driver) sweep(a *acquisition) error {
	s := a.session
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-s.ctx.Done():
		return nil
	}
	inUse := a.node
	if a.state == released {
		inUse = ""
	}
	err := d.removeOwner(s, a.queue, a.owner, inUse)
	if errors.Is(err, backend.ErrNotHeld) {
		return nil
	}
	return err
}
