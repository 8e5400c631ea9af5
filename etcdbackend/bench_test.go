package etcdbackend

import (
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

func BenchmarkPairOverFloor(b *testing.B) { raw.PairOverFloor(b, testenv.Etcd(b).DirectURL()) }
