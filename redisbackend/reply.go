package redisbackend

import (
	"bytes"
	"net"
	"syscall"
)

const (
	// maxReply exceeds the replies to the driver's requests, such as a page of keys, or the slots
	// of a cluster. Only a lock with some 70,000 holders cannot be inspected. It counts bytes, and
	// elementCost for each element.
	maxReply = 16 << 20
	// elementCost is about the number of bytes that go-redis allocates for an element before it
	// reads the element.
	elementCost = 32
	// maxReplyLine limits simple strings and errors, in bytes.
	maxReplyLine = 64 << 10
	// maxReplyDepth limits the recursion of go-redis. Descriptions of a cluster and of modules have
	// 5 levels.
	maxReplyDepth = 16
)

// boundedConn refuses replies that would cost too much memory. go-redis allocates the size that a
// server announces, and panics if that size is impossible. It reads above TLS, and so checks what
// go-redis gets to read.
type boundedConn struct {
	net.Conn
	replies replyScanner
}

// boundedSyscallConn is also a syscall.Conn, because go-redis uses that to check whether the peer
// has closed the connection.
type boundedSyscallConn struct {
	boundedConn
	syscall.Conn
}

// newBoundedConn returns conn with a limit for each reply. A connection with TLS is no
// syscall.Conn.
func newBoundedConn(conn net.Conn) net.Conn {
	if direct, ok := conn.(syscall.Conn); ok {
		return &boundedSyscallConn{boundedConn{Conn: conn}, direct}
	}
	return &boundedConn{Conn: conn}
}

// Read implements net.Conn. If it refuses a reply, it returns none of the bytes that it has read.
func (c *boundedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if refused := c.replies.scan(p[:n]); refused != nil {
		return 0, refused
	}
	return n, err
}

// replyScanner follows the replies of a server, in RESP2 and RESP3. It stores only the beginning of
// the present line.
type replyScanner struct {
	cost  int                // of the present reply so far
	skip  int                // remaining bytes of a string with its line end
	left  [maxReplyDepth]int // remaining elements at each depth
	depth int
	line  [24]byte // the beginning of the present line: a type and a number
	read  int      // length of the present line so far
}

// scan reads the next bytes of the connection. It returns an error if a reply exceeds a limit, or
// is not Redis's protocol.
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

// header handles a whole line, which is a value or the size of a value.
func (s *replyScanner) header(line []byte) error {
	switch line[0] {
	case '$', '=', '!': // strings with a length
		n, err := size(line)
		if err == nil && n >= 0 {
			s.skip = n + len("\r\n")
			return s.charge(n)
		}
		s.complete() // nil
		return err
	case '*', '~', '>', '%', '|': // values with elements
		n, err := size(line)
		if err != nil {
			return err
		}
		switch line[0] {
		case '%': // a map has keys and values
			n *= 2
		case '|': // attributes precede the value that they describe
			n = 2*max(n, 0) + 1
		}
		return s.begin(n)
	}
	s.complete()
	return nil
}

// begin handles the beginning of a value with n elements.
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

// complete handles the end of a value, and of each value whose last element it is. The cost begins
// with 0 for the next reply.
func (s *replyScanner) complete() {
	for s.depth > 0 {
		if s.left[s.depth-1]--; s.left[s.depth-1] > 0 {
			return
		}
		s.depth--
	}
	s.cost = 0
}

// charge adds to the cost of the present reply.
func (s *replyScanner) charge(cost int) error {
	if s.cost += cost; s.cost > maxReply {
		return errLongReply
	}
	return nil
}

// size returns the number in a line, which is at most maxReply. -1 means nil.
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
