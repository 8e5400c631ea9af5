package redisbackend

import (
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	testenv.TLSTest{Upstream: testenv.Redis(t).Addr, URL: "rediss://%s?%s"}.Run(t)
}
