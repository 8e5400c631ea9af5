package redisbackend

import (
	"bytes"
	"errors"
	"net"
	"syscall"
)

const (
	// maxReply is more than any reply that the driver asks for, in bytes and elementCost for each element: a page of
	// keys, or the slots of a cluster.
	maxReply = 16 << 20
	// elementCost is about what go-redis allocates for an element before it has read it.
	elementCost = 32
	// maxReplyLine bounds simple strings and errors.
	maxReplyLine = 64 << 10
	// maxReplyDepth bounds the recursion of go-redis. Nodes describe their cluster and modules in 5 levels.
	maxReplyDepth = 16
)

var (
	errNotReply  = errors.New("the server's answer is not Redis's protocol")
	errLongReply = errors.New("the server's answer is too long")
)

// boundedConn refuses replies that would cost too much. go-redis allocates what a server announces, and panics
// where that is beyond what there can be.
type boundedConn struct {
	net.Conn
	replies replyScanner
}

// boundedSyscallConn is a syscall.Conn, because go-redis uses that to check whether the peer has
// closed the connection.
type boundedSyscallConn struct {
	boundedConn
	syscall.Conn
}

func bounded(conn net.Conn) net.Conn {
	if direct, ok := conn.(syscall.Conn); ok {
		return &boundedSyscallConn{boundedConn{Conn: conn}, direct}
	}
	return &boundedConn{Conn: conn}
}

// Read implements net.Conn. It returns nothing of what has a reply that is refused.
func (c *boundedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if refused := c.replies.scan(p[:n]); refused != nil {
		return 0, refused
	}
	return n, err
}

// replyScanner follows the replies of a server. It keeps nothing of them but the beginning of a line.
type replyScanner struct {
	cost  int                // of the present reply, so far
	skip  int                // what is left of a string, and its line's end
	left  [maxReplyDepth]int // elements that are yet to come, by depth
	depth int
	line  [24]byte // the beginning of the present line: a type and a number
	read  int      // how long the line is, so far
}

// scan reads the next bytes.
func (s *replyScanner) scan(p []byte) error {
	for len(p) > 0 {
		if s.skip > 0 {
			n := min(s.skip, len(p))
			p = p[n:]
			if s.skip -= n; s.skip == 0 {
				s.complete()
			}
			continue
		}
		end := bytes.IndexByte(p, '\n')
		part := p[:end+1]
		if end < 0 {
			part = p
		}
		if s.read < len(s.line) {
			copy(s.line[s.read:], part)
		}
		s.read, s.cost = s.read+len(part), s.cost+len(part)
		switch {
		case s.read > maxReplyLine || s.cost > maxReply:
			return errLongReply
		case end >= 0:
			if err := s.header(s.line[:min(s.read, len(s.line))]); err != nil {
				return err
			}
			s.read = 0
		}
		p = p[len(part):]
	}
	return nil
}

// header reads a whole line: a value, or the size of one.
func (s *replyScanner) header(line []byte) error {
	switch line[0] {
	case '$', '=', '!':
		n, err := size(line)
		if err == nil && n >= 0 {
			s.skip = n + len("\r\n")
			return s.charge(n)
		}
		s.complete() // nil
		return err
	case '*', '~', '>', '%', '|':
		n, err := size(line)
		if err != nil {
			return err
		}
		switch line[0] {
		case '%':
			n *= 2
		case '|': // attributes stand before the value that they are about
			n = 2*max(n, 0) + 1
		}
		return s.begin(n)
	}
	s.complete()
	return nil
}

// begin is the beginning of a reply with n elements.
func (s *replyScanner) begin(n int) error {
	if n <= 0 {
		s.complete()
		return nil
	}
	if s.depth == maxReplyDepth {
		return errLongReply
	}
	s.left[s.depth] = n
	s.depth++
	return s.charge(n * elementCost)
}

// complete is the end of a value, and of what it is the last element of.
func (s *replyScanner) complete() {
	for s.depth > 0 {
		if s.left[s.depth-1]--; s.left[s.depth-1] > 0 {
			return
		}
		s.depth--
	}
	s.cost = 0
}

func (s *replyScanner) charge(cost int) error {
	if s.cost += cost; s.cost > maxReply {
		return errLongReply
	}
	return nil
}

// size reads the number of a line, of which -1 is nil. It is no more than maxReply.
func size(line []byte) (int, error) {
	digits := bytes.TrimSuffix(line[1:], []byte("\r\n"))
	if string(digits) == "-1" {
		return -1, nil
	}
	if len(digits) == 0 || len(digits) == len(line)-1 {
		return 0, errNotReply
	}
	n := 0
	for _, digit := range digits {
		if digit < '0' || digit > '9' {
			return 0, errNotReply
		}
		if n = 10*n + int(digit-'0'); n > maxReply {
			return 0, errLongReply
		}
	}
	return n, nil
}
