package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// kept is the number of last requests that a failed case prints.
const kept = 20

// requests records the last requests of the drivers of a case.
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
	answered   time.Time // zero if not answered yet
	err        error
}

// send records a request. answered records its answer, or the error with which it was given up.
func (o *observation) send(connection int, what op, owner string) (answered func(error)) {
	r := &sentRequest{connection: connection, op: what, owner: owner, at: time.Now()}
	o.requests.add(r)
	return func(err error) {
		if !isAnswer(err) && !errors.Is(err, context.Canceled) &&
			!errors.Is(err, context.DeadlineExceeded) {
			o.noteUnanswered(r.at)
		}
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

// since describes the last requests, with times relative to begun.
func (rs *requests) since(begun time.Time) string {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var b strings.Builder
	for _, r := range rs.last {
		fmt.Fprintf(&b, "\n%8.3fs  connection %d  %-7s  %.8s",
			r.at.Sub(begun).Seconds(), r.connection, r.op, r.owner)
		if r.answered.IsZero() {
			b.WriteString("  not answered")
			continue
		}
		fmt.Fprintf(&b, "  after %6.1f ms: %s", float64(r.answered.Sub(r.at))/1e6, result(r.err))
	}
	return b.String()
}

// result describes the result of a request.
func result(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}

// ofBatch returns the error to record for a batch: one that is no answer, otherwise the first one.
func ofBatch(errs []error) error {
	for _, err := range errs {
		if !isAnswer(err) {
			return err
		}
	}
	return cmp.Or(errs...)
}

// isAnswer reports whether err is a definite answer of the server.
func isAnswer(err error) bool {
	for _, definite := range []error{
		nil, backend.ErrNotAcquired, backend.ErrNotHeld, backend.ErrLost,
	} {
		if errors.Is(err, definite) {
			return true
		}
	}
	return false
}
