package memcachedbackend

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
)

const (
	// maxValue is the maximum size of a value in bytes. The records of locks are smaller, because a
	// name and a meta have key.MaxName bytes at most.
	maxValue = 4 << 10
	// maxAnswer is the maximum size of an answer in bytes. The longest one has maxBatch values.
	maxAnswer = maxBatch * (maxValue + 1<<10)
)

var valuePrefix, space, crlf = []byte("VALUE "), []byte(" "), []byte("\r\n")

var (
	errEndless = errors.New("the server's answer does not end")
	errLine    = errors.New("a line of the server's answer does not end with CRLF")
)

// answerReader limits what a server can send. gomemcache allocates as much for a value as the
// server announces, up to 4 GB, and accepts any number of values.
type answerReader struct {
	r     *bufio.Reader
	line  []byte // read from r, but not returned by Read yet
	value int    // bytes of the value that follow the line
	left  int    // of maxAnswer
}

func newAnswerReader(r io.Reader) *answerReader { return &answerReader{r: bufio.NewReader(r)} }

// reset allows another answer of maxAnswer bytes. It must be called before a request is sent.
func (a *answerReader) reset() { a.left = maxAnswer }

// Read returns a part of a line or of a value. It returns errEndless beyond maxAnswer bytes.
func (a *answerReader) Read(b []byte) (n int, err error) {
	if len(a.line)+a.value == 0 {
		if err := a.readLine(); err != nil {
			return 0, err
		}
	}
	if len(a.line) > 0 {
		n = copy(b, a.line)
		a.line = a.line[n:]
	} else {
		n, err = a.r.Read(b[:min(len(b), a.value)])
		a.value -= n
	}
	if a.left -= n; a.left < 0 {
		return 0, errEndless
	}
	return n, err
}

// readLine reads a line, and from it the size of the value that follows. It replaces a value that
// is too large by an empty one. Both are foreign values, and the connection stays usable.
func (a *answerReader) readLine() error {
	line, err := a.r.ReadSlice('\n') // fails if the line is longer than the buffer
	if err != nil {
		return err
	}
	if !bytes.HasSuffix(line, crlf) { // gomemcache would slice beyond the line
		return errLine
	}
	a.line = line
	if !bytes.HasPrefix(line, valuePrefix) { // most answers; Split allocates
		return nil
	}
	fields := bytes.Split(bytes.TrimSuffix(line, crlf), space) // VALUE key flags bytes casid
	if len(fields) < 4 {
		return nil // gomemcache refuses it
	}
	size, err := strconv.ParseUint(string(fields[3]), 10, 31)
	switch {
	case err != nil:
		return err
	case size <= maxValue:
		a.value = int(size) + len(crlf)
		return nil
	}
	fields[3] = []byte("0")
	a.line, a.value = append(bytes.Join(fields, space), crlf...), len(crlf)
	_, err = a.r.Discard(int(size))
	return err
}
