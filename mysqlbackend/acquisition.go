package mysqlbackend

import "sync"

// state is the state of an acquisition, from its first refusal until its release. Acquisitions that
// never waited are not in the registry. For the server the signal alone counts: the connection that
// has the signal of a key is the first of its queue.
//
// The states after each event; a dot means no effect:
//
//	         admit    take     keep   hold     pass     forget
//	absent   waiting  .        first  .        .        .
//	waiting  .        .        first  absent   .        absent
//	first    .        waiting  first  holding  .        absent
//	holding  .        waiting  first  .        passing  absent
//	passing  .        .        first  .        .        absent
//
// The events are:
//
//	admit   the server refused the request, and the core is going to wait
//	take    Wait begins, and takes the connection to use it alone
//	keep    Wait has the signal, and returns the connection to the registry
//	hold    the server granted the lock
//	pass    the lock has been held for maxKeep, and the signal is to be given away
//	forget  Release, or the signal has been given away
type state uint8

const (
	absent  state = iota // it is not in the registry
	waiting              // it has no connection, or a Wait uses one
	first                // it is the first waiter: a connection with the signal is kept for it
	holding              // it has the lock, and still the connection with the signal
	passing              // it has the lock, and the connection is giving the signal away
)

// acquisition is what the driver keeps of one (Key, Owner). The mutex of the registry guards it.
type acquisition struct {
	state  state
	conn   *waitConn     // in the states first, holding and passing, else nil
	passed chan struct{} // in the state passing: closed when the signal has been given away
}

// acquisitions is the registry of the acquisitions that wait, or that hold a lock after they have
// waited. An owner belongs to one key, so it identifies the acquisition.
//
// A connection is used by one goroutine at a time: its user has taken it out of the registry (take,
// forget, forgetAll), or is the only one that may give the signal away (pass). mu must not be held
// while a request is sent.
type acquisitions struct {
	mu      sync.Mutex
	byOwner map[string]*acquisition
}

func newAcquisitions() *acquisitions {
	return &acquisitions{byOwner: make(map[string]*acquisition)}
}

// admit registers an acquisition that is going to wait. Other drivers register it before the
// request is sent. Here a refused request leaves nothing on the server, and only the connection of
// a Wait does. So it is early enough after the refusal.
func (r *acquisitions) admit(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byOwner[owner] == nil {
		r.byOwner[owner] = &acquisition{state: waiting}
	}
}

// isFirst reports whether owner is the first waiter, or was when it got the lock and still has the
// signal.
func (r *acquisitions) isFirst(owner string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byOwner[owner]
	return a != nil && (a.state == first || a.state == holding)
}

// has reports whether owner waits, or has waited and still has the signal.
func (r *acquisitions) has(owner string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byOwner[owner] != nil
}

// take returns the connection that is kept for owner, for the use of Wait alone. It returns nil if
// there is none. The caller has to keep, give back or discard the connection.
func (r *acquisitions) take(owner string) *waitConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byOwner[owner]
	if a == nil || a.state != first && a.state != holding {
		return nil
	}
	r.byOwner[owner] = &acquisition{state: waiting}
	return a.conn
}

// keep makes owner the first waiter: w has the signal, and Wait does not use it any more.
func (r *acquisitions) keep(owner string, w *waitConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byOwner[owner] = &acquisition{state: first, conn: w}
}

// hold records that owner has the lock, and reports whether the first waiter has become a holder.
// The caller must then pass the signal later. An acquisition without the signal is forgotten. The
// same owner can be granted the lock twice, if a late request of its own was faster: only the
// first call returns true, so that the connection is given back once.
func (r *acquisitions) hold(owner string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byOwner[owner]
	switch {
	case a == nil || a.state == waiting:
		delete(r.byOwner, owner)
		return false
	case a.state != first:
		return false
	}
	a.state = holding
	return true
}

// pass records that the caller is going to give the signal of owner away, and returns the
// acquisition. The caller must close passed afterwards. It returns nil if the lock was released.
func (r *acquisitions) pass(owner string) *acquisition {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byOwner[owner]
	if a == nil || a.state != holding {
		return nil
	}
	a.state, a.passed = passing, make(chan struct{})
	return a
}

// endPassing removes a, whose signal the caller has given away, unless the owner has another
// acquisition meanwhile.
func (r *acquisitions) endPassing(owner string, a *acquisition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byOwner[owner] == a {
		delete(r.byOwner, owner)
	}
}

// forget removes the acquisition of owner and returns it. Its state is absent if there was none. In
// the states first and holding the caller must give back or discard the connection. A release calls
// it before anything else, so that passSignal does not use the connection at the same time.
func (r *acquisitions) forget(owner string) acquisition {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byOwner[owner]
	if a == nil {
		return acquisition{}
	}
	delete(r.byOwner, owner)
	return *a
}

// forgetAll removes all acquisitions and returns their connections.
func (r *acquisitions) forgetAll() (conns []*waitConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.byOwner {
		if a.conn != nil {
			conns = append(conns, a.conn)
		}
	}
	clear(r.byOwner)
	return conns
}
