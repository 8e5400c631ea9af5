package memcachedbackend

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
)

const (
	// maxValue is more than any lock has: its name and its meta have key.MaxName bytes at most.
	maxValue = 4 << 10
	// maxAnswer is more than the longest answer, which has renewBatch values.
	maxAnswer = renewBatch * (maxValue + 1<<10)
)

var value, space, crlf = []byte("VALUE "), []byte(" "), []byte("\r\n")

var errEndless = errors.New("the server's answer does not end")

// answers reads what a server sends. gomemcache allocates as much for a value as the
// server announces, up to 4 GB, and takes as many values as come.
type answers struct {
	r     *bufio.Reader
	line  []byte // read, and not handed on yet
	value int    // bytes of a value that follow the line
	left  int    // of maxAnswer
}

func newAnswers(r io.Reader) *answers { return &answers{r: bufio.NewReader(r)} }

// next is called before a request is sent.
func (a *answers) next() { a.left = maxAnswer }

// Read hands on lines and values.
func (a *answers) Read(b []byte) (n int, err error) {
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

// readLine reads a line, and from it the size of the value that follows. In place of a value that is
// too large it hands on an empty one: that is foreign, too, and the connection stays usable.
func (a *answers) readLine() error {
	line, err := a.r.ReadSlice('\n')
	if err != nil {
		return err
	}
	a.line = line
	if !bytes.HasPrefix(line, value) { // most answers; Split allocates
		return nil
	}
	fields := bytes.Split(bytes.TrimSuffix(line, crlf), space)
	if len(fields) < 4 {
		return nil
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
