package etcdbackend

import (
	"context"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

func BenchmarkPairOverFloor(b *testing.B) { raw.PairOverFloor(b, testenv.Etcd(b).DirectURL()) }

// wait repeats Wait and Acquire as the core does. answer is the answer to an earlier attempt.
func wait(d *driver, req *backend.Request, answer *backend.Busy) (*backend.Grant, error) {
	return raw.Lock(context.Background(), d, req, answer, raw.ByServer)
}
