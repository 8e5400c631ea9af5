package session

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// pair returns a Link, and the other side of its connection.
func pair(t *testing.T) (*Link, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	l := NewLink(near, time.Hour)
	t.Cleanup(func() { _, _ = l.Close(), far.Close() })
	return l, far
}

// TestLinkNoticesItsEnd closes the other side without a reader. What came before is still read.
func TestLinkNoticesItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, far := pair(t)
		if _, err := far.Write([]byte("bye")); err != nil {
			t.Fatal(err)
		}
		select {
		case <-l.Ended():
			t.Fatal("ended while the other side is open")
		case <-time.After(time.Hour):
		}
		_ = far.Close()
		<-l.Ended()
		text, err := io.ReadAll(l)
		if string(text) != "bye" || err != nil {
			t.Errorf("read %q, %v", text, err)
		}
	})
}

// TestLinkHasDeadlines sets the deadline before a read and during one, and removes it.
func TestLinkHasDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, far := pair(t)
		read := func() error { _, err := l.Read(make([]byte, 1)); return err }
		for _, early := range []bool{true, false} {
			begun := time.Now()
			set := func() { _ = l.SetReadDeadline(begun.Add(2 * time.Second)) }
			if early {
				set()
			} else {
				time.AfterFunc(time.Second, set)
			}
			err := read()
			if took := time.Since(begun); !errors.Is(err, os.ErrDeadlineExceeded) ||
				took != 2*time.Second {
				t.Errorf("early %v: %v after %v", early, err, took)
			}
			_ = l.SetReadDeadline(time.Time{})
		}
		time.AfterFunc(time.Hour, func() { _, _ = far.Write([]byte("x")) })
		if err := read(); err != nil {
			t.Errorf("without a deadline: %v", err)
		}
	})
}

// TestLinkLimitsWhatIsUnread has a server that sends without end.
func TestLinkLimitsWhatIsUnread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, far := pair(t)
		go func() {
			for part := make([]byte, 1000); ; {
				if _, err := far.Write(part); err != nil {
					return
				}
			}
		}()
		<-l.Ended()
		n, err := io.Copy(io.Discard, l)
		if n > 2<<20 || !errors.Is(err, errUnread) {
			t.Errorf("read %d bytes, %v", n, err)
		}
	})
}
