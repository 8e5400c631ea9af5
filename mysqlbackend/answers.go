package mysqlbackend

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// The client library trusts the server. A packet that ends too early makes it panic, in whatever
// goroutine has sent the request, and for the columns of an answer it allocates as much memory as
// their number demands. So the driver checks the first packets of each answer before the library
// reads them, and turns the remaining panics into errors. Under TLS it can check the greeting only;
// what follows comes from the server of the certificate.

const (
	// success and failure begin packets that end a request without rows. Any other first packet of
	// an answer begins with the number of its columns, which is a single byte up to maxColumns.
	success, failure, maxColumns = 0x00, 0xff, 250
	// A failure has at least a number and a state. After the version and its 0, a greeting has 44
	// bytes.
	minFailure, afterVersion = len("\xff\x00\x00#HY000"), 45
	// nativePassword asks for a hash of the password and saltSize bytes.
	nativePassword, saltSize = "\xfemysql_native_password\x00", 20
	// packetHeader is the length of a packet's header: the length of its content, and a number. Of
	// the content no more than maxChecked bytes are checked.
	packetHeader, maxChecked = 4, 256
	// prepare is the command of a request whose answer looks different; no answer to it is long.
	prepare = 0x16
)

// errGarbled means that the outcome of a request is unknown, because its answer makes no sense.
var errGarbled = errors.New("the answer cannot be read")

// rescue is deferred. It turns a panic of the client library, or of database/sql, into *err, and
// calls end, which closes the connection. A nil end is for a lent database, whose connections are
// out of reach, and for a session, which ends after such an error.
func rescue(err *error, end func()) {
	value := recover()
	if value == nil {
		return
	}
	if end != nil {
		end()
	}
	*err = fmt.Errorf("%w: %v", errGarbled, value)
}

// phase is the part of a conversation that is being read.
//
//	phase           part                                  until
//	greetingPhase   the first packet of a connection      the first request
//	loginPhase      the rest of the login                 the connection is made
//	answerPhase     the first packets of an answer        the first that is no success
//	uncheckedPhase  the remaining packets of an answer    the next request
type phase uint8

const (
	greetingPhase phase = iota
	loginPhase
	answerPhase
	uncheckedPhase
)

// head divides what is read on a connection into packets, and checks some of them. The zero
// value expects a greeting.
type head struct {
	phase  phase
	packet []byte // the header and the content, up to maxChecked, as far as they were read
	rest   int    // number of bytes to skip
	number uint32 // of the connection, as the greeting has it
}

// begin is called before a request is written.
func (h *head) begin(request []byte, isReady, isEncrypted bool) {
	h.phase, h.packet, h.rest = loginPhase, h.packet[:0], 0
	switch {
	case isEncrypted || len(request) > packetHeader && request[packetHeader] == prepare:
		h.phase = uncheckedPhase
	case isReady:
		h.phase = answerPhase
	}
}

// check checks the next bytes of an answer. The parts of an answer may be of any length. After an
// error the connection must not be read any more.
func (h *head) check(p []byte) error {
	for len(p) > 0 && h.phase != uncheckedPhase {
		skipped := min(h.rest, len(p))
		h.rest, p = h.rest-skipped, p[skipped:]
		n := min(h.need()-len(h.packet), len(p))
		h.packet, p = append(h.packet, p[:n]...), p[n:]
		if len(h.packet) < packetHeader || len(h.packet) < h.need() {
			continue
		}
		content := h.packet[packetHeader:]
		if !h.isValid(content) {
			return errGarbled
		}
		if h.phase == greetingPhase && content[0] != failure {
			_, afterName, _ := bytes.Cut(content, []byte{0})
			h.number = binary.LittleEndian.Uint32(afterName)
		}
		if h.phase == answerPhase && content[0] != success {
			h.phase = uncheckedPhase
		}
		h.rest, h.packet = h.length()-len(content), h.packet[:0]
	}
	return nil
}

// need returns how much of the present packet is collected.
func (h *head) need() int {
	if len(h.packet) < packetHeader {
		return packetHeader
	}
	return packetHeader + min(h.length(), maxChecked)
}

// length returns the length of the present packet's content. The header must be complete.
func (h *head) length() int {
	return int(h.packet[0]) | int(h.packet[1])<<8 | int(h.packet[2])<<16
}

// isValid reports whether the client library can read the present packet, which begins with
// content.
func (h *head) isValid(content []byte) bool {
	switch {
	case len(content) == 0 || h.length() > maxAnswer:
		return false
	case content[0] == failure:
		return len(content) >= minFailure
	case h.phase == greetingPhase:
		version := bytes.IndexByte(content, 0)
		return version >= 0 && len(content) >= version+afterVersion
	case content[0] == success:
		return isSuccess(content[1:])
	case h.phase == answerPhase:
		return content[0] <= maxColumns
	}
	return !bytes.HasPrefix(content, []byte(nativePassword)) ||
		len(content) >= len(nativePassword)+saltSize
}

// isSuccess reports whether the rest of a success has its two numbers and the server's status.
func isSuccess(rest []byte) bool {
	for range 2 {
		if len(rest) > 0 {
			rest = rest[min(numberSize(rest[0]), len(rest)):]
		}
	}
	return len(rest) >= 2
}

// numberSize returns the length of a number with that first byte.
func numberSize(first byte) int {
	switch first {
	case 0xfc:
		return 3
	case 0xfd:
		return 4
	case 0xfe:
		return 9
	}
	return 1
}
