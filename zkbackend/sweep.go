package zkbackend

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// removeOwner removes the nodes of an owner in one queue, except the nodes at the paths spared. It
// finds the nodes of every session. It returns ErrNotHeld if there are none.
func (d *driver) removeOwner(s *session, queue, owner string, spared ...string) error {
	err := d.removeEntries(context.Background(), s, queue, func(entries []entry) []entry {
		return slices.DeleteFunc(entries, func(e entry) bool {
			return e.owner != owner || slices.Contains(spared, queue+"/"+e.name)
		})
	})
	return interpretError(err)
}

// removeEntries deletes the nodes that choose selects from a queue. It returns ErrNotHeld if there
// are none. If all of them have vanished in between, it lists the queue again: a Downgrade may have
// replaced them. It deletes nothing after the end of ctx. An error after the first deletion leaves
// the outcome unknown.
func (d *driver) removeEntries(
	ctx context.Context, s *session, queue string, choose func([]entry) []entry,
) error {
	for range maxReads {
		entries, err := s.syncedEntries(queue)
		if err != nil {
			return err
		}
		chosen, removed := choose(entries), 0
		for _, e := range chosen {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			switch err := d.remove(s, queue, queue+"/"+e.name); {
			case err == nil:
				removed++
			case errors.Is(err, backend.ErrNotHeld): // it has vanished
			case removed > 0:
				return uncertain(err)
			default:
				return err
			}
		}
		switch {
		case removed > 0:
			return nil
		case len(chosen) == 0:
			return backend.ErrNotHeld
		}
	}
	return errTooFast
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

// sweep removes all nodes of the owner of a except the nodes in use. It waits for the turn of a. If
// the session ends first, the server removes the nodes. After an error the server may execute a
// removal later, also of a node that an attempt then finds.
func (d *driver) sweep(a *acquisition) error {
	s := a.session
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-s.ctx.Done():
		return nil
	}
	var inUse []string
	if a.state != released {
		inUse = append(inUse, a.node)
	}
	if a.state == held {
		inUse = append(inUse, a.readerNode()) // of a Downgrade without an answer
	}
	err := d.removeOwner(s, a.queue, a.owner, inUse...)
	if err == nil || errors.Is(err, backend.ErrNotHeld) {
		return nil
	}
	a.removing = true
	return err
}
