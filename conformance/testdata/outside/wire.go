// Package outside is a driver in another module, with a TCP server that has the locks
// of membackend.
package outside

import (
	"context"
	"encoding/gob"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/membackend"
)

// message is a request or its answer.
type message struct {
	Op    string // the method
	Req   backend.Request
	Key   string
	Owner string
	Grant *backend.Grant
	Busy  *backend.Busy
	Term  backend.Term
	Infos []backend.Info
	Err   string // the text of a sentinel or of any other error
}

// sentinels are the errors that keep their identity on the wire.
var sentinels = []error{
	backend.ErrNotAcquired, backend.ErrLost, backend.ErrNotHeld,
	backend.ErrUnsupported, backend.ErrUnavailable, backend.ErrConflict,
}

func encode(err error) string {
	if err == nil {
		return ""
	}
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			return sentinel.Error()
		}
	}
	return err.Error()
}

func decode(text string) error {
	if text == "" {
		return nil
	}
	for _, sentinel := range sentinels {
		if sentinel.Error() == text {
			return sentinel
		}
	}
	return errors.New(text)
}

// server is a lock server.
type server struct {
	listener net.Listener
	space    string
	gate     sync.RWMutex // held while the server is paused

	mu    sync.Mutex
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func newServer(space string) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{listener: l, space: space, conns: map[net.Conn]bool{}}
	s.wg.Go(s.accept)
	return s, nil
}

func (s *server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.wg.Go(func() { s.serve(c) })
	}
}

// restart closes all connections. The locks stay, as on a disk.
func (s *server) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
	clear(s.conns)
}

func (s *server) close() {
	_ = s.listener.Close()
	s.restart()
	s.wg.Wait()
}

// mem is the driver that executes the requests of a connection.
type mem interface {
	backend.Driver
	backend.Waiter
	backend.Inspector
	backend.Breaker
}

func (s *server) serve(c net.Conn) {
	defer c.Close()
	d := membackend.New(&membackend.Options{Space: s.space}).(mem)
	in, out := gob.NewDecoder(c), gob.NewEncoder(c)
	for {
		var m message
		if in.Decode(&m) != nil {
			return
		}
		s.gate.RLock()
		s.gate.RUnlock() //nolint:staticcheck // waits until the server is not paused
		answer := s.execute(d, &m)
		s.gate.RLock()
		s.gate.RUnlock() //nolint:staticcheck // as above
		if out.Encode(answer) != nil {
			return
		}
	}
}

func (s *server) execute(d mem, m *message) *message {
	ctx := context.Background()
	a := &message{}
	var err error
	switch m.Op {
	case "acquire":
		a.Grant, err = d.Acquire(ctx, &m.Req)
		if busy, ok := errors.AsType[*backend.Busy](err); ok {
			a.Busy = &backend.Busy{
				Holder: busy.Holder, RetryAfter: busy.RetryAfter, Queued: busy.Queued,
			}
		}
	case "renew":
		a.Term, err = d.Renew(ctx, m.Grant)
	case "release":
		err = d.Release(ctx, m.Grant)
	case "break":
		err = d.Break(ctx, m.Key, m.Owner)
	case "inspect":
		var info *backend.Info
		if info, err = d.Inspect(ctx, m.Key); err == nil {
			a.Infos = []backend.Info{*info}
		}
	case "list":
		for info, failed := range d.List(ctx, m.Key) {
			if err = failed; failed == nil {
				a.Infos = append(a.Infos, *info)
			}
		}
	}
	a.Err = encode(err)
	if a.Grant != nil {
		a.Grant.Lost = nil
	}
	return a
}

// timeout is how long an answer may take.
const timeout = 2 * time.Second
