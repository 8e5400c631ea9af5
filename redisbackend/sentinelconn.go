package redisbackend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxSentinelReply limits a whole reply of a server at the address of a sentinel, in bytes.
const maxSentinelReply = 64 << 10

// sentinelConn is a connection to a sentinel. It implements the part of the protocol that the
// driver needs. One goroutine uses it at a time.
type sentinelConn struct {
	conn    net.Conn
	reader  *bufio.Reader
	timeout time.Duration // of one command
	release func() bool   // stops watching the context of open
}

// open connects to a sentinel. The connection is closed when ctx ends.
func (s *sentinels) open(ctx context.Context, addr string) (*sentinelConn, error) {
	conn, err := s.dialer.handshake(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &sentinelConn{conn: conn, reader: bufio.NewReader(conn), timeout: s.dialer.timeout}
	c.release = context.AfterFunc(ctx, func() { _ = conn.Close() })
	if s.password != "" {
		isEmpty := func(word string) bool { return word == "" }
		auth := slices.DeleteFunc([]string{"AUTH", s.user, s.password}, isEmpty)
		if _, err := c.do(auth...); err != nil {
			c.close()
			return nil, fmt.Errorf("%s: %w", addr, err)
		}
	}
	return c, nil
}

func (c *sentinelConn) close() {
	c.release()
	_ = c.conn.Close()
}

// do sends a command and returns the strings of its reply. It blocks for c.timeout at most.
func (c *sentinelConn) do(words ...string) ([]string, error) {
	_ = c.conn.SetDeadline(time.Now().Add(c.timeout))
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(c.conn, b.String()); err != nil {
		return nil, err
	}
	return c.read()
}

// next waits for a message. After pingInterval without one it returns the answer to a PING instead.
// A sentinel that does not answer the PING either is an error, after c.timeout.
func (c *sentinelConn) next() ([]string, error) {
	_ = c.conn.SetDeadline(time.Now().Add(pingInterval))
	if _, err := c.reader.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
		return c.do("PING")
	}
	_ = c.conn.SetDeadline(time.Now().Add(c.timeout))
	return c.read()
}

// read returns the strings of a reply in their order, however they are nested. A nil string is
// omitted. It neither recurses nor allocates more than maxSentinelReply.
func (c *sentinelConn) read() ([]string, error) {
	var words []string
	budget := maxSentinelReply
	for open := 1; open > 0; open-- { // open is the number of values that are still to be read
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		n := 0
		switch line[0] {
		case '-':
			return nil, fmt.Errorf("it answers %q", cutArguments(line[1:]))
		case '+', ':':
			words = append(words, line[1:])
		case '*', '$':
			if n, err = strconv.Atoi(line[1:]); err != nil {
				return nil, errNotSentinelReply
			}
		default:
			return nil, errNotSentinelReply
		}
		if budget -= len(line) + max(n, 0); budget < 0 {
			return nil, errors.New("its answer is too long for a sentinel")
		}
		switch {
		case line[0] == '*' && n > 0:
			open += n
		case line[0] == '$' && n >= 0:
			text := make([]byte, n+len("\r\n"))
			if _, err := io.ReadFull(c.reader, text); err != nil {
				return nil, err
			}
			words = append(words, string(text[:n]))
		}
	}
	return words, nil
}

// line returns a line of at least one character. A line that exceeds the reader's buffer is an
// error.
func (c *sentinelConn) line() (string, error) {
	line, err := c.reader.ReadSlice('\n')
	text := strings.TrimSpace(string(line))
	if err == nil && text == "" {
		err = errors.New("it answers an empty line")
	}
	return text, err
}
