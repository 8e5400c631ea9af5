package zkbackend

import (
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// proof is how long an answer of the leader proves the session, counted from the request.
//
// Only the leader ends sessions. A request to another server reaches the leader in time for the
// answer. But the leader learns from that server's next heartbeat, within half a tick, that the
// session lives. If the server fails before that, the session's timeout counts from an earlier
// request.
//
// So a proof counts from a touch that the leader has certainly received: the last ping whose answer
// came early enough before the answered request. The time of the answer counts, because the network
// or a stopped server may delay a request. The connect request is early enough at any time: the
// leader itself handles it.
type proof struct {
	sync.Mutex
	timeout time.Duration // as negotiated last
	sent    time.Time     // when the newest answered request was sent
	ttl     time.Duration // of the session, counted from sent
}

// moment is when a request was begun, and the last touch that its answer proves.
type moment struct{ sent, touched time.Time }

// negotiated takes the timeout that the server has granted. It is 0 for an expired session, and
// then ignored.
func (p *proof) negotiated(timeout time.Duration) {
	p.Lock()
	defer p.Unlock()
	if timeout > 0 {
		p.timeout = timeout
	}
}

// granted returns the timeout that the server granted last, or 0 before the first connection.
func (p *proof) granted() time.Duration {
	p.Lock()
	defer p.Unlock()
	return p.timeout
}

// add takes the answer to a request that was begun at m. Answers may arrive in another order.
func (p *proof) add(m moment) {
	p.Lock()
	defer p.Unlock()
	if m.sent.After(p.sent) {
		p.sent, p.ttl = m.sent, p.timeout-elapsed(m.touched, m.sent)
	}
}

// get returns the newest proof.
func (p *proof) get() backend.Term {
	p.Lock()
	defer p.Unlock()
	return backend.Term{Sent: p.sent, TTL: p.ttl}
}

// prove returns nil if there is a proof of the session that is younger than age; otherwise it
// requests one. The request is a write, although it changes nothing: a majority of the servers
// takes part in the answer. A sync goes to the leader alone. A leader without followers answers it
// for some ticks, while another leader already counts the session's timeout from its own election.
func (s *session) prove(age time.Duration) error {
	m := s.beginRequest()
	if elapsed(s.proof.get().Sent, m.sent) < age {
		return nil
	}
	err := s.conn.Delete(s.settings.root+noNode, -1)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	s.proof.add(m)
	return nil
}

// elapsed returns the larger of the monotonic and the wall-clock time between two readings: the
// monotonic clock stands still during a suspend, but the servers count on.
func elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// beginRequest returns the present moment, for a request that begins now.
func (s *session) beginRequest() moment {
	w, now := s.connection(), time.Now()
	if w == nil {
		return moment{sent: now, touched: now} // the connect request will be later
	}
	return moment{sent: now, touched: w.touches.before(now, s.settings.report())}
}

// term returns the term of a lock with that TTL by the newest proof.
func (s *session) term(ttl time.Duration) backend.Term {
	term := s.proof.get()
	term.TTL = min(term.TTL, ttl)
	return term
}

// touches are the requests on one connection that prolong the session, but only after the server's
// report to the leader: see [proof]. They are the connect request and the answered pings.
type touches struct {
	sync.Mutex
	times   []touch     // in their order, the connect request first; old ones are dropped
	pending []time.Time // when the unanswered pings were sent
}

// touch is when a request was sent, and when the server has certainly read it.
type touch struct{ sent, read time.Time }

// send takes a request that is written now. It reports whether it is the first on the connection,
// which is the connect request.
func (t *touches) send(now time.Time, ping bool) (first bool) {
	t.Lock()
	defer t.Unlock()
	first = len(t.times) == 0
	switch {
	case first:
		t.times = append(t.times, touch{sent: now})
	case ping:
		t.pending = append(t.pending, now)
	}
	return first
}

// heard takes the answers to n pings, which arrive in the order of the pings. It drops a touch once
// the leader has the next one.
func (t *touches) heard(n int, now time.Time, report time.Duration) {
	if n == 0 {
		return
	}
	t.Lock()
	defer t.Unlock()
	for len(t.times) > 1 && now.Sub(t.times[1].read) >= report {
		t.times = t.times[1:]
	}
	n = min(n, len(t.pending))
	for _, sent := range t.pending[:n] {
		t.times = append(t.times, touch{sent: sent, read: now})
	}
	t.pending = t.pending[n:]
}

// before returns when the last touch was sent that the leader has when it answers a request of now.
func (t *touches) before(now time.Time, report time.Duration) time.Time {
	t.Lock()
	defer t.Unlock()
	last := now // if the connect request was not sent yet
	for i, touch := range t.times {
		if i == 0 || now.Sub(touch.read) >= report {
			last = touch.sent
		}
	}
	return last
}
