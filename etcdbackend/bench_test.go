package etcdbackend

import (
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

func BenchmarkPairOverFloor(b *testing.B) {
	raw.PairOverFloor(b, testenv.NewEtcd(b, "--unsafe-no-fsync=false").DirectURL())
}
