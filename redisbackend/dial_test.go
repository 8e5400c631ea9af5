package redisbackend

import (
	"net"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestClosedConnectionSendsNothing checks Capabilities.Late.
func TestClosedConnectionSendsNothing(t *testing.T) {
	t.Parallel()
	raw.Discards(t, true, func(addr string) (net.Conn, error) {
		d := dialer{dial: new(net.Dialer).DialContext, timeout: time.Minute}
		return d.connect(t.Context(), "tcp", addr)
	})
}
