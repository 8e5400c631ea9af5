package zkbackend

import (
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

func BenchmarkPairOverFloor(b *testing.B) { raw.PairOverFloor(b, testenv.ZooKeeper(b).DirectURL()) }
