package zkbackend

import (
	"encoding/binary"
	"slices"
)

// A request is its length without this number, its own number, its kind, and its content. The first
// three have four bytes each. The connect request has another format.
const (
	numberAt  = 4
	kindAt    = 8
	contentAt = 12
)

// The kinds of requests.
const (
	opCreate     = 1
	opDelete     = 2
	opGetData    = 4
	opSetData    = 5
	opPing       = 11
	opChildren   = 12
	opMulti      = 14
	opContainer  = 19
	opSetAuth    = 100
	opSetWatches = 101
	opError      = 1<<32 - 1 // of a result only
)

// The numbers of requests that the driver sends itself.
const (
	xidPing = -2 // the library ignores the answer
	xidAuth = -4
)

// operation returns the kind of a request, or 0 if p is too short.
func operation(p []byte) uint32 {
	if len(p) < contentAt {
		return 0
	}
	return binary.BigEndian.Uint32(p[kindAt:])
}

// action is what a request does, and the node to which it does it.
type action struct {
	operation uint32
	node      string
}

// actionOf returns the action of a request that deletes a node or creates a container. The content
// of such a request begins with the length of a path in four bytes, and the path.
func actionOf(p []byte) (a action, ok bool) {
	const pathAt = contentAt + 4
	op := operation(p)
	if len(p) < pathAt || op != opDelete && op != opContainer {
		return action{}, false
	}
	size, path := binary.BigEndian.Uint32(p[contentAt:]), p[pathAt:]
	if uint64(size) > uint64(len(path)) {
		return action{}, false
	}
	return action{op, string(path[:size])}, true
}

// newRequest returns a request without content and with a length of 0.
func newRequest(number, kind int32) []byte {
	p := binary.BigEndian.AppendUint32(nil, 0)
	p = binary.BigEndian.AppendUint32(p, uint32(number))
	return binary.BigEndian.AppendUint32(p, uint32(kind))
}

// withLength sets the length of a complete request.
func withLength(p []byte) []byte {
	binary.BigEndian.PutUint32(p, uint32(len(p)-sizeField))
	return p
}

// pingRequest returns a ping.
func pingRequest() []byte { return withLength(newRequest(xidPing, opPing)) }

// credentials returns the request that authenticates a connection by the scheme digest. Its content
// is a type, which is 0, the scheme, and the user with the password.
func (s *settings) credentials() []byte {
	p := binary.BigEndian.AppendUint32(newRequest(xidAuth, opSetAuth), 0)
	for _, text := range []string{"digest", s.User + ":" + s.Password} {
		p = append(binary.BigEndian.AppendUint32(p, uint32(len(text))), text...)
	}
	return withLength(p)
}

// withoutHistory returns a copy of a connect request without the number of the last transaction
// that the client has seen. A server that has made fewer transactions closes the connection without
// an answer. If the server has lost its data, it may never make as many, and the library would
// connect for ever. Without the number, the server decides whether the session lives.
func withoutHistory(connect []byte) []byte {
	const begin, end = 8, 16 // after the length and the version of the protocol
	if len(connect) < end {
		return connect
	}
	connect = slices.Clone(connect) // the original belongs to the library
	clear(connect[begin:end])
	return connect
}
