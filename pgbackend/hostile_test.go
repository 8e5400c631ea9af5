package pgbackend

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// message returns a message of the server with a correct length.
func message(kind byte, body string) string { return head(kind, len(body)+4) + body }

// head returns the type of a message and its length, which counts its own 4 bytes.
func head(kind byte, length int) string {
	return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(length)))
}

const zero = "\x00\x00\x00\x00"

// login accepts every user, as process 1 of the server.
var login = message('R', zero) + message('K', "\x00\x00\x00\x01"+zero) + message('Z', "I")

// aColumn is the description of the rows with one column.
var aColumn = message('T', "\x00\x01a\x00"+strings.Repeat("\x00", 18))

// send is an attack that sends the messages once.
func send(messages ...string) func(io.Writer) {
	return func(w io.Writer) { _, _ = io.WriteString(w, strings.Join(messages, "")) }
}

// unending is an attack that sends first once and then the rest, until the client leaves or has
// read thirty times the limit of a message. So a driver without a limit fails the test and does not
// hang.
func unending(first, then string) func(io.Writer) {
	rest := bytes.Repeat([]byte(then), 1<<16/len(then)+1)
	return func(w io.Writer) {
		_, err := io.WriteString(w, first)
		for sent := 0; err == nil && sent < 30*maxMessage; sent += len(rest) {
			_, err = w.Write(rest)
		}
		_ = w.(net.Conn).Close()
	}
}

// parameters is an attack that sends millions of parameters. The client library keeps each, because
// no two of them have one name. The buffer is this test's own memory, so it is used again.
func parameters(w io.Writer) {
	const first, each = 10_000_000, 1000 // names of 8 digits
	var some []byte
	var err error
	for n := int64(first); err == nil && n < 5*first; n += each {
		some = some[:0]
		for i := range int64(each) {
			some = append(some, head('S', 4+len("10000000\x00\x00"))...)
			some = append(strconv.AppendInt(some, n+i, 10), 0, 0)
		}
		_, err = w.Write(some)
	}
}

// hostility is what a server sends, as the answer to the first message or to the first statement.
type hostility struct {
	toStartup, toStatement func(io.Writer)
	ownOnly                bool  // without a lent pool, whose connections the driver does not limit
	isFlood                bool  // many messages, of which none is kept
	want                   error // of Open; nil means ErrUnavailable
}

// serve serves a connection until the client disconnects.
func (h hostility) serve(conn net.Conn) {
	request := make([]byte, 1<<12)
	if _, err := conn.Read(request); err != nil {
		return
	}
	if h.toStartup != nil {
		h.toStartup(conn)
	} else {
		send(login)(conn)
		if _, err := conn.Read(request); err != nil {
			return
		}
		h.toStatement(conn)
	}
	_, _ = io.Copy(io.Discard, conn)
}

var hostilities = map[string]hostility{
	"an endless greeting": {
		toStartup: unending(head('R', 1<<30), "x"), ownOnly: true,
	},
	"an endless error":  {toStartup: unending(head('E', 1<<30), "x"), ownOnly: true},
	"an endless answer": {toStatement: unending(head('T', 1<<30), "x"), ownOnly: true},
	"an endless row": {
		toStatement: unending(aColumn+head('D', 1<<30), "x"), ownOnly: true,
	},
	"an endless notice": {toStatement: unending(head('N', 1<<30), "x"), ownOnly: true},
	"a row of 128 MB":   {toStatement: unending(aColumn+head('D', 1<<27), "x"), ownOnly: true},
	"another protocol":  {toStartup: send("HTTP/1.1 400 Bad Request\r\n\r\n"), ownOnly: true},
	"notices without end": {isFlood: true, toStartup: unending(
		"", message('N', "SWARNING\x00\x00"))},
	"rows without end": {ownOnly: true, toStatement: unending(
		aColumn, message('D', "\x00\x01"+zero))},
	"parameters without end":  {ownOnly: true, toStartup: parameters},
	"no length":               {toStartup: send(head('R', 0))},
	"a negative length":       {toStartup: send(head('R', -1))},
	"an unknown message":      {toStartup: send(message('?', "x"))},
	"an unknown login":        {toStartup: send(message('R', "\x00\x00\x00\xff"))},
	"a short login":           {toStartup: send(message('R', "\x00"))},
	"SASL without mechanisms": {toStartup: send(message('R', "\x00\x00\x00\x0a"))},
	"a short key":             {toStartup: send(message('R', zero), message('K', "\x00"))},
	"a short refusal":         {toStartup: send(message('E', "S"))},
	"a short answer":          {ownOnly: true, toStatement: send(message('T', "\x00"))},
	"65,535 columns":          {ownOnly: true, toStatement: send(message('T', "\xff\xff"))},
	"a short column": {ownOnly: true, toStatement: send(
		message('T', "\x00\x01a\x00\x00"))},
	"a row without columns": {toStatement: send(
		message('D', "\x00\x01"+zero), message('Z', "I"))},
	"65,535 values":   {ownOnly: true, toStatement: send(aColumn, message('D', "\xff\xff"))},
	"a value of 2 GB": {toStatement: send(aColumn, message('D', "\x00\x01\x7f\xff\xff\xff"))},
	"a negative value": {ownOnly: true, toStatement: send(
		aColumn, message('D', "\x00\x01\xff\xff\xff\xf0"))},
	"one value": {want: backend.ErrUnsupported, toStatement: send(
		aColumn, message('D', "\x00\x01"+zero), message('C', "SELECT 1\x00"), message('Z', "I"))},
	"no rows": {want: backend.ErrUnsupported, toStatement: send(
		message('C', "SELECT 0\x00"), message('Z', "I"))},
	"a copy": {ownOnly: true, toStatement: send(
		message('W', "\x00\x00\x01\x00\x00"), message('d', "x"))},
	"nothing": {toStartup: send()},
}

// TestHostileServer checks that a server with another protocol costs little memory, no more time
// than the caller has, and not the process. The protocol has no messages inside messages.
func TestHostileServer(t *testing.T) {
	for name, h := range hostilities {
		for way, open := range map[string]func(context.Context, string) (backend.Driver, error){
			"row":     openAt("&lock=row"),
			"session": openAt("&lock=session"),
			"lent":    lendAt,
		} {
			if way == "lent" && h.ownOnly {
				continue
			}
			t.Run(name+"/"+way, func(t *testing.T) {
				addr := testenv.NewImpostor(t, h.serve).Addr()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				d, err := open(ctx, addr)
				runtime.ReadMemStats(&after)
				if err == nil {
					_ = d.Close()
				}
				raw.WantIs(t, "Open", err, cmp.Or(h.want, backend.ErrUnavailable))
				used := after.TotalAlloc - before.TotalAlloc
				if h.isFlood {
					used = after.Sys - before.Sys
				}
				if used > maxMessage {
					t.Errorf("Open used %d MB", used>>20)
				}
			})
		}
	}
}

func openAt(params string) func(context.Context, string) (backend.Driver, error) {
	return func(ctx context.Context, addr string) (backend.Driver, error) {
		return testenv.Open(ctx, "postgres://u@"+addr+"/dlock?timeout=10m"+params)
	}
}

// lendAt lends New a pool.
func lendAt(ctx context.Context, addr string) (backend.Driver, error) {
	pool, err := pgxpool.New(ctx, "postgres://u@"+addr+"/dlock?sslmode=disable&connect_timeout=1")
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return New(pool, nil)
}

// TestAnswerIsLimited reads what a server sends without end, before and after the driver has
// checked the server, and after each request.
func TestAnswerIsLimited(t *testing.T) {
	t.Parallel()
	flood := unending("", "x")
	addr := testenv.NewImpostor(t, func(conn net.Conn) { flood(conn) }).Addr()
	dials := newDialer(new(net.Dialer).DialContext, maxUnchecked)
	defer dials.close()
	conn, err := dials.dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	request := []byte("request")
	for _, limit := range []int64{maxUnchecked, maxUnchecked, maxAnswer} {
		if limit == maxAnswer {
			trust(tls.Client(conn, nil))
		}
		if _, err := conn.Write(request); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, conn, limit); err != nil {
			t.Errorf("reading %d bytes: %v", limit, err)
		}
	}
	consumed(tls.Client(conn, nil)) // a notification
	if _, err := io.CopyN(io.Discard, conn, maxAnswer); err != nil {
		t.Errorf("reading after a notification: %v", err)
	}
	_, err = io.CopyN(io.Discard, conn, maxUnchecked)
	raw.WantIs(t, "reading more", err, errFlood)
	_, err = conn.Write(request)
	raw.WantIs(t, "the next request", err, errFlood)
}
