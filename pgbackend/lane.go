package pgbackend

import (
	"context"
	"sync/atomic"
)

// lane has the slots, the gates and the editions of one class of requests. Renewals have a lane of
// their own, because any number of other requests would make them wait until leases are lost. A
// request takes a slot before it takes a connection of the pool, and keeps it until it has returned
// the connection. So the lanes divide the pool. It is safe for concurrent use.
type lane struct {
	slots     chan struct{} // one for each request under way
	abandoned *atomic.Int32 // requests under way whose callers have gone
	gates     gates
	editions  editions
	skips     bool // an update does not wait for a locked row
	bounded   bool // the server ends an update that waits for a locked row, see rowWait
}

func newLane(slots int) *lane {
	return &lane{slots: make(chan struct{}, slots), abandoned: new(atomic.Int32)}
}

// abandon counts a request whose caller has gone. It reports false if there are too many of them;
// then it has counted nothing. After true, the caller subtracts 1 from l.abandoned when the request
// ends.
func (l *lane) abandon() bool {
	if int(l.abandoned.Add(1)) <= (cap(l.slots)+1)/2 {
		return true
	}
	l.abandoned.Add(-1)
	return false
}

// drain takes all slots, unless ctx ends before they are free. It gives none of them back: requests
// that come later wait until their contexts end.
func (l *lane) drain(ctx context.Context) {
	for range cap(l.slots) {
		select {
		case l.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}
