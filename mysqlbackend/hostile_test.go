package mysqlbackend

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// greeting is the first packet of a server that accepts every user.
const greeting = "\x0a9.9.9\x00\x01\x00\x00\x00saltsalt\x00" +
	"\xff\xf7\xff\x02\x00\xff\xdf\x15\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"saltsaltsalt\x00mysql_native_password\x00"

const okPacket = "\x00\x00\x00\x02\x00\x00\x00"

func packet(number byte, body string) string { return header(number, len(body)) + body }

func header(number byte, n int) string {
	return string([]byte{byte(n), byte(n >> 8), byte(n >> 16), number})
}

// endless sends packets until the client disconnects, or has read thirty times the limit of a
// driver. So a driver without a limit fails the test and does not hang. The packets have the
// numbers that the client expects. endless allocates little memory, because the tests measure the
// memory of the process.
func endless(w io.Writer, number byte, body []byte) {
	for sent := 0; sent < 30*maxAnswer; sent += len(body) {
		if _, err := io.WriteString(w, header(number, len(body))); err != nil {
			return
		}
		if _, err := w.Write(body); err != nil {
			return
		}
		number++
	}
	_ = w.(net.Conn).Close()
}

// TestHostileServer checks that a server with another protocol costs little memory, and no more
// time than the caller has.
func TestHostileServer(t *testing.T) {
	whole := bytes.Repeat([]byte("x"), 1<<24-1) // the next packet continues a packet of this size
	row := append([]byte("\xfd\x00\x00\x01"), whole[:1<<16]...)
	column := "\x03def\x00\x00\x00\x01a\x00\x0c\x3f\x00\x00\x00\x00\x00\xfd\x00\x00\x00\x00\x00"
	for name, tt := range map[string]struct{ first, second func(io.Writer) }{
		"an endless greeting": {first: func(w io.Writer) { endless(w, 0, whole) }},
		"an endless answer":   {second: func(w io.Writer) { endless(w, 1, whole) }},
		"endless rows": {second: func(w io.Writer) {
			_, _ = io.WriteString(w, packet(1, "\x01")+packet(2, column))
			endless(w, 3, row)
		}},
		"no rows": {second: func(w io.Writer) { _, _ = io.WriteString(w, packet(1, okPacket)) }},
		"nothing": {first: func(io.Writer) {}},
	} {
		t.Run(name, func(t *testing.T) {
			addr := impostor(t, func(conn net.Conn) {
				if tt.first != nil {
					tt.first(conn)
				} else {
					_, _ = io.WriteString(conn, packet(0, greeting))
					_, _ = conn.Read(make([]byte, 1<<12))
					_, _ = io.WriteString(conn, packet(2, okPacket))
					_, _ = conn.Read(make([]byte, 1<<12)) // SET
					_, _ = io.WriteString(conn, packet(1, okPacket))
					_, _ = conn.Read(make([]byte, 1<<12))
					tt.second(conn)
				}
				_, _ = conn.Read(make([]byte, 1)) // until the client disconnects
			})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			d, err := testenv.Open(ctx, "mysql://root@"+addr+"/dlock?timeout=10m")
			runtime.ReadMemStats(&after)
			if err == nil {
				_ = d.Close()
			}
			raw.WantIs(t, "Open", err, backend.ErrUnavailable)
			if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
				t.Errorf("Open allocated %d MB", used>>20)
			}
		})
	}
}

// impostor starts a server that calls serve for each connection.
func impostor(tb testing.TB, serve func(net.Conn)) (addr string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// TestClosedConnectionSendsNothing checks Capabilities.Late. Only an orderly end sends the rest.
func TestClosedConnectionSendsNothing(t *testing.T) {
	t.Parallel()
	for _, orderly := range []bool{false, true} {
		raw.Discards(t, !orderly, func(addr string) (net.Conn, error) {
			s := new(socket)
			s.orderly.Store(orderly)
			return s.dial(t.Context(), "tcp", addr)
		})
	}
}

// TestIdleConnectionsEnd checks that the server ends the connections of a host that has left the
// network.
func TestIdleConnectionsEnd(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openURL(t, server(t).URL)
			got := ask(t, d.pools.main.DB, "SELECT @@wait_timeout")
			if want := fmt.Sprint((3 * idleTime).Seconds()); got != want {
				t.Errorf("wait_timeout is %s, want %s", got, want)
			}
		})
	}
}
