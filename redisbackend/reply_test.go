package redisbackend

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestHostileServer checks that a wrong server neither crashes the process nor costs much memory.
// Open ends with the caller's context.
func TestHostileServer(t *testing.T) {
	for name, attack := range map[string]func(conn net.Conn){
		"a string of 1 GB":          endless("$1000000000\r\n", strings.Repeat("x", 1<<16)),
		"a string of 128 MB":        endless("$134217728\r\n", strings.Repeat("x", 1<<16)),
		"a string beyond integers":  endless("$9223372036854775807\r\n", "x"),
		"an error of 1 GB":          endless("!1000000000\r\n", strings.Repeat("x", 1<<16)),
		"an array of 1,000,000,000": endless("*1000000000\r\n", "+\r\n"),
		"a map of 1,000,000,000":    endless("%1000000000\r\n", "+\r\n"),
		"nested arrays":             endless("", strings.Repeat("*1\r\n", 1<<14)),
		"nested attributes":         endless("", strings.Repeat("|0\r\n", 1<<14)),
		"an endless line":           endless("+", strings.Repeat("x", 1<<16)),
		"a negative string":         endless("$-9\r\n", "x"),
		"a sum of strings": endless("*100000\r\n",
			"$1000000\r\n"+strings.Repeat("x", 1e6)+"\r\n"),
		"one byte now and then": func(c net.Conn) {
			for _, err := io.WriteString(c, "+"); err == nil; _, err = io.WriteString(c, "x") {
				time.Sleep(100 * time.Millisecond)
			}
		},
	} {
		for _, scheme := range []string{"redis", "redis+cluster"} {
			t.Run(scheme+"/"+name, func(t *testing.T) {
				s := newImpostor(t, func(conn net.Conn, read func() ([]string, error)) {
					if _, err := read(); err == nil {
						attack(conn)
					}
				})
				wantBoundedOpen(t, scheme+"://"+s.addr+"?timeout=10m")
			})
		}
	}
}

// wantBoundedOpen opens a URL that cannot be opened. It checks the error, the time and the memory.
func wantBoundedOpen(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	d, err := testenv.Open(ctx, url)
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if err == nil {
		_ = d.Close()
	}
	raw.WantIs(t, "Open", err, backend.ErrUnavailable)
	if took > patience {
		t.Errorf("Open took %v with a context of a second", took)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("Open allocated %d MB", used>>20)
	}
}

// TestHostileRepliesAreRefused checks that a reply which would cost too much is refused before its
// end.
func TestHostileRepliesAreRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reply string
		want  error
	}{
		"a long string":   {fmt.Sprintf("$%d\r\n", maxReply), errLongReply},
		"beyond integers": {"$9223372036854775807\r\n", errLongReply},
		"a long array":    {fmt.Sprintf("*%d\r\n", maxReply/elementCost), errLongReply},
		"long arrays together": {
			"*9\r\n" + strings.Repeat(fmt.Sprintf("*%d\r\n", maxReply/elementCost/3), 3),
			errLongReply,
		},
		"a long line":       {"+" + strings.Repeat("x", maxReplyLine), errLongReply},
		"nested arrays":     {strings.Repeat("*1\r\n", maxReplyDepth+1), errLongReply},
		"nested attributes": {strings.Repeat("|0\r\n", maxReplyDepth+1), errLongReply},
		"no number":         {"$\r\n", errNotReply},
		"a negative number": {"$-9\r\n", errNotReply},
		"a stream":          {"$?\r\n", errNotReply},
		"a line feed alone": {"*1\n", errNotReply},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := new(replyScanner).scan([]byte(tt.reply))
			raw.WantIs(t, tt.reply[:min(20, len(tt.reply))], err, tt.want)
		})
	}
}

// TestRepliesPass checks that each kind of reply passes, in pieces of any size, and that the number
// of replies is not limited.
func TestRepliesPass(t *testing.T) {
	t.Parallel()
	replies := strings.Join([]string{
		"+OK", "-ERR " + strings.Repeat("x", 1000), ":-1", "_", "#t", ",1.5",
		"(12345678901234567890123456789",
		"$5", "a\r\nbc", "$0", "", "$-1", "=7", "txt:a\nb", "!3", "ERR", "*-1", "*0", "%0",
		"*3", ":1", "*2", "$-1", "+x", "$1", "*", "%2", "+k", "*1", "+v", "+k", "_", "~1", ":1",
		">2", "+message", "$3", "abc", "|1", "+k", "+v", ":7", "",
	}, "\r\n")
	for size := 1; size < 20; size++ {
		var s replyScanner
		for range 1000 {
			for rest := replies; rest != ""; rest = rest[min(size, len(rest)):] {
				if err := s.scan([]byte(rest[:min(size, len(rest))])); err != nil {
					t.Fatalf("cut into %d bytes: %v", size, err)
				}
			}
			if s.depth != 0 || s.cost != 0 || s.skip != 0 || s.read != 0 {
				t.Fatalf("cut into %d bytes: the scanner is still inside a reply: %+v", size, s)
			}
		}
	}
	var s replyScanner
	for range 3 { // each reply has the same limits
		large := fmt.Sprintf("$%d\r\n%s\r\n", maxReply/2, strings.Repeat("x", maxReply/2))
		if err := s.scan([]byte(large)); err != nil {
			t.Fatal(err)
		}
	}
}
