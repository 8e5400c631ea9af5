// Package gate keeps, per name, the queue of those in one process who want
// the same thing, so that only its head has to ask elsewhere.
package gate

import "sync"

// Gate is a set of queues, one per name; a queue exists while somebody stands in
// it. W is what the places stand for, T is what the head passes on when it
// leaves. The zero Gate is ready. Safe for concurrent use.
type Gate[W, T any] struct {
	mu     sync.Mutex
	queues map[string]queue[W, T]
}

type queue[W, T any] struct{ head, tail *Place[W, T] }

// Place is a place in a queue. It is made for one stay and not used again.
type Place[W, T any] struct {
	name       string
	waiter     W
	queued     bool
	turn       chan T // of one element; nil for who came first
	prev, next *Place[W, T]
}

// Join puts p at the end of the queue of name and tells whether it is the head.
// If it is not, Turn will tell.
func (g *Gate[W, T]) Join(name string, p *Place[W, T], waiter W) (head bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.queues[name]
	if q.tail != nil {
		p.turn = make(chan T, 1)
	}
	g.append(name, q, p, waiter)
	return p.turn == nil
}

// TryJoin is Join if the queue is empty; otherwise it does nothing.
func (g *Gate[W, T]) TryJoin(name string, p *Place[W, T], waiter W) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	q, taken := g.queues[name]
	if !taken {
		g.append(name, q, p, waiter)
	}
	return !taken
}

// append makes p the tail of q; the caller holds the lock.
func (g *Gate[W, T]) append(name string, q queue[W, T], p *Place[W, T], waiter W) {
	p.name, p.waiter, p.queued, p.prev = name, waiter, true, q.tail
	if q.tail == nil {
		q.head = p
	} else {
		q.tail.next = p
	}
	q.tail = p
	if g.queues == nil {
		g.queues = make(map[string]queue[W, T])
	}
	g.queues[name] = q
}

// Turn receives, once, what the head before p passed on.
func (p *Place[W, T]) Turn() <-chan T { return p.turn }

// Leave takes the head p out of its queue; who stands behind it receives turn
// and is the head. A place that is in no queue leaves without effect.
func (g *Gate[W, T]) Leave(p *Place[W, T], turn T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if next := p.next; p.queued {
		g.remove(p)
		next.serve(turn)
	}
}

// Pass is Leave if offer accepts the waiter behind the head p: then that waiter
// receives turn, and Pass is true. Otherwise, and where nobody waits, p
// remains. offer is called while the queues are locked.
func (g *Gate[W, T]) Pass(p *Place[W, T], turn T, offer func(next W) bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := p.next
	if next == nil || !offer(next.waiter) {
		return false
	}
	g.remove(p)
	next.serve(turn)
	return true
}

func (p *Place[W, T]) serve(turn T) {
	if p != nil {
		p.turn <- turn
	}
}

// Abandon takes p out of the middle of its queue. If p has become the head in
// the meantime it stays, and Abandon returns what was passed to it and true: the
// caller then has to Leave.
func (g *Gate[W, T]) Abandon(p *Place[W, T]) (turn T, head bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case turn = <-p.turn:
		return turn, true
	default:
		g.remove(p)
		return turn, false
	}
}

// remove unlinks p; the caller holds the lock.
func (g *Gate[W, T]) remove(p *Place[W, T]) {
	q := g.queues[p.name]
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		q.head = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		q.tail = p.prev
	}
	p.queued, p.prev, p.next = false, nil, nil
	if q.head == nil {
		delete(g.queues, p.name)
		return
	}
	g.queues[p.name] = q
}
