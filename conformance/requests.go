package conformance

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// kept is how many of the last requests a failed case prints.
const kept = 20

// requests are the last ones that the drivers of a case have sent.
type requests struct {
	mu   sync.Mutex
	last []*sentRequest
}

// sentRequest is a request and its answer.
type sentRequest struct {
	connection int
	op         op
	owner      string
	at         time.Time
	answered   time.Time // zero: not yet
	err        error
}

// send notes a request. answered notes its answer, or that it was given up.
func (o *observation) send(connection int, what op, owner string) (answered func(error)) {
	r := &sentRequest{connection: connection, op: what, owner: owner, at: time.Now()}
	o.requests.add(r)
	return func(err error) {
		o.requests.mu.Lock()
		defer o.requests.mu.Unlock()
		r.answered, r.err = time.Now(), err
	}
}

func (rs *requests) add(r *sentRequest) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.last) == kept {
		rs.last = append(rs.last[:0], rs.last[1:]...)
	}
	rs.last = append(rs.last, r)
}

// since describes the last requests; their times count from begun.
func (rs *requests) since(begun time.Time) string {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var b strings.Builder
	for _, r := range rs.last {
		fmt.Fprintf(&b, "\n%8.3fs  connection %d  %-7s  %.8s", r.at.Sub(begun).Seconds(), r.connection, r.op, r.owner)
		if r.answered.IsZero() {
			b.WriteString("  not answered")
			continue
		}
		fmt.Fprintf(&b, "  after %6.1f ms: %s", float64(r.answered.Sub(r.at))/1e6, result(r.err))
	}
	return b.String()
}

// result is what a request came to.
func result(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}

// isAnswer reports whether the server has answered definitely.
func isAnswer(err error) bool {
	for _, definite := range []error{nil, backend.ErrNotAcquired, backend.ErrNotHeld, backend.ErrLost} {
		if errors.Is(err, definite) {
			return true
		}
	}
	return false
}
