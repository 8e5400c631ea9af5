package mysqlbackend

import (
	"bytes"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

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

const (
	aColumn = "\x03def\x00\x00\x00\x01a\x00\x0c\x3f\x00\x00\x00\x00\x00\xfd\x00\x00\x00\x00\x00"
	// millions is the number of columns of an answer.
	millions = "\xfd\xff\xff\xff"
)

// hostility is what a server sends. Without a greeting it sends the usual one.
type hostility struct {
	greeting func(io.Writer)
	login    string          // the answer to the password; "": a success
	answer   func(io.Writer) // to the first request that is no SET
	// ownOnly means that a lent database does not detect it.
	ownOnly bool
}

func send(packets ...string) func(io.Writer) {
	return func(w io.Writer) { _, _ = io.WriteString(w, strings.Join(packets, "")) }
}

// serve serves a connection until the client disconnects.
func (h hostility) serve(conn net.Conn) {
	request := make([]byte, 1<<12)
	if h.greeting != nil {
		h.greeting(conn)
	} else {
		login := h.login
		if login == "" {
			login = packet(2, okPacket)
		}
		send(packet(0, greeting))(conn)
		_, _ = conn.Read(request)
		send(login)(conn)
	}
	for {
		n, err := conn.Read(request)
		switch {
		case err != nil:
			return
		case strings.HasPrefix(string(request[min(n, 5):n]), "SET "):
			send(packet(1, okPacket))(conn)
		case h.answer != nil:
			h.answer(conn)
		}
	}
}

var hostilities = map[string]hostility{
	"an endless greeting": {ownOnly: true, greeting: func(w io.Writer) { endless(w, 0, whole) }},
	"an endless answer":   {ownOnly: true, answer: func(w io.Writer) { endless(w, 1, whole) }},
	"endless rows": {ownOnly: true, answer: func(w io.Writer) {
		send(packet(1, "\x01"), packet(2, aColumn))(w)
		endless(w, 3, append([]byte("\xfd\x00\x00\x01"), whole[:1<<16]...))
	}},
	"no rows": {answer: send(packet(1, okPacket))},
	"nothing": {greeting: send()},
	// The client library panics after these.
	"a short greeting":           {ownOnly: true, greeting: send(packet(0, "\x0a\x00"))},
	"an old greeting":            {ownOnly: true, greeting: send(packet(0, greeting[:22]))},
	"no login":                   {ownOnly: true, login: packet(2, "\x00")},
	"a short refusal":            {ownOnly: true, login: packet(2, "\xff")},
	"a short change":             {ownOnly: true, login: packet(2, nativePassword+"salt")},
	"a short success":            {answer: send(packet(1, "\x00"))},
	"a success without a status": {answer: send(packet(1, "\x00\x00\xfc\x00\x00"))},
	"a short error":              {answer: send(packet(1, "\xff"))},
	"an error without a number":  {answer: send(packet(1, "\xff\x01\x00#"))},
	"a short number of columns":  {answer: send(packet(1, "\xfe\x01"))},
	"a negative number":          {answer: send(packet(1, "\xfe"+strings.Repeat("\xff", 8)))},
	"a short column":             {answer: send(packet(1, "\x01"), packet(2, aColumn[:11]))},
	"a short row": {answer: send(
		packet(1, "\x01"), packet(2, aColumn), packet(3, "\xfc"))},
	"a short end": {answer: send(packet(1, "\x01"), packet(2, aColumn), packet(3, "\xfe"))},
	// The client library allocates memory for the columns.
	"millions of columns": {ownOnly: true, answer: send(packet(1, millions))},
	"millions of columns later": {ownOnly: true, answer: send(
		packet(1, "\x00\x00\x00\x0a\x00\x00\x00"), packet(2, millions))},
}

// whole is a packet's content that the next packet continues.
var whole = bytes.Repeat([]byte("x"), 1<<24-1)

// TestHostileServer checks that a server with another protocol costs little memory, no more time
// than the caller has, and not the process.
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
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				d, err := open(ctx, addr)
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
}

func openAt(params string) func(context.Context, string) (backend.Driver, error) {
	return func(ctx context.Context, addr string) (backend.Driver, error) {
		return testenv.Open(ctx, "mysql://root@"+addr+"/dlock?timeout=10m"+params)
	}
}

// lendAt lends New a database.
func lendAt(_ context.Context, addr string) (backend.Driver, error) {
	db, err := sql.Open("mysql", "root@tcp("+addr+")/dlock?readTimeout=1s")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return New(db, nil)
}

// TestGarbledAnswerEndsItsConnection garbles the answers to further requests, some of them by a
// prepared statement. Each is an error, and the connection is closed.
func TestGarbledAnswerEndsItsConnection(t *testing.T) {
	selected := func(c *conn) error {
		made, err := c.QueryContext(t.Context(), "SELECT", nil)
		return next(made, err)
	}
	for name, tt := range map[string]struct {
		answers []string
		request func(*conn) error
	}{
		"exec": {[]string{
			packet(1, "\x01") + packet(2, aColumn) + packet(3, "\xff"),
		}, func(c *conn) error {
			_, err := c.ExecContext(t.Context(), "DO", nil)
			return err
		}},
		"query": {[]string{packet(1, "\x01") + packet(2, aColumn[:11])}, selected},
		"row":   {[]string{packet(1, "\x01") + packet(2, aColumn) + packet(3, "\xfc")}, selected},
		"rest": {[]string{
			packet(1, "\x01") + packet(2, aColumn) + packet(3, "\x01a") + packet(4, "\xfe"),
		}, selected},
		"prepare": {[]string{packet(1, "\x00")}, prepared},
		"prepared": {[]string{
			packet(1, "\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
			packet(1, "\x01") + packet(2, aColumn) + packet(3, "\x00"),
		}, prepared},
	} {
		t.Run(name, func(t *testing.T) {
			answers := tt.answers
			c := meet(t, hostility{answer: func(w io.Writer) {
				if len(answers) > 0 {
					send(answers[0])(w)
					answers = answers[1:]
				}
			}})
			if err := tt.request(c); err == nil {
				t.Error("the answer was accepted")
			}
			if c.IsValid() {
				t.Error("the connection is used again")
			}
		})
	}
}

// TestAnswerIsBounded reads the rows of an endless answer.
func TestAnswerIsBounded(t *testing.T) {
	c := meet(t, hostilities["endless rows"])
	rows, err := c.QueryContext(t.Context(), "SELECT", nil)
	read, row := 0, make([]sqldriver.Value, 1)
	for err == nil && read <= maxAnswer {
		if err = rows.Next(row); err == nil {
			read += len(row[0].([]byte))
		}
	}
	if read == 0 || read > maxAnswer {
		t.Errorf("the client read %d bytes, and then %v; the limit is %d", read, err, maxAnswer)
	}
}

// meet returns a connection to an impostor.
func meet(t *testing.T, h hostility) *conn {
	t.Helper()
	config := mysql.NewConfig()
	config.Net, config.Addr = "tcp", testenv.NewImpostor(t, h.serve).Addr()
	config.Timeout = patience
	made, err := (&connector{config: config}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.Close() })
	return made.(*conn)
}

// prepared makes a query by a prepared statement.
func prepared(c *conn) error {
	s, err := c.PrepareContext(context.Background(), "SELECT")
	if err != nil {
		return err
	}
	made, err := s.(sqldriver.StmtQueryContext).QueryContext(context.Background(), nil)
	return next(made, err)
}

// next reads a row and skips the others.
func next(rows sqldriver.Rows, err error) error {
	if err != nil {
		return err
	}
	return errors.Join(rows.Next(make([]sqldriver.Value, 1)), rows.Close())
}

// TestClosedConnectionSendsNothing checks Capabilities.Late. Only an orderly end sends the rest,
// and so does the end of a session, which frees its locks.
func TestClosedConnectionSendsNothing(t *testing.T) {
	t.Parallel()
	orderly := new(socket)
	orderly.orderly.Store(true)
	for want, sockets := range map[bool][]*socket{
		true: {{}}, false: {orderly, {silence: time.Minute}},
	} {
		for _, s := range sockets {
			raw.Discards(t, want, func(addr string) (net.Conn, error) {
				return s.dial(t.Context(), "tcp", addr)
			})
		}
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
