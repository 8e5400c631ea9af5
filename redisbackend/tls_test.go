package redisbackend

import (
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/tlstest"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	tlstest.Suite{Upstream: testenv.Redis(t).Addr, URL: "rediss://%s?%s"}.Run(t)
}
