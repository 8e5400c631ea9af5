package pgbackend

import (
	"testing"

	"github.com/dlock-go/dlock/bench"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// BenchmarkPairOverFloor compares a pair of Acquire and Release with the floor.
func BenchmarkPairOverFloor(b *testing.B) {
	raw.PairOverFloor(b, testenv.NewPostgres(b).DirectURL())
}

// BenchmarkSessionOverFloor compares a pair with the floor, for locks of a session.
func BenchmarkSessionOverFloor(b *testing.B) {
	raw.PairOverFloor(b, testenv.Postgres(b).DirectURL()+"?lock=session")
}

// BenchmarkRenewAll renews 10,000 grants.
func BenchmarkRenewAll(b *testing.B) {
	d := opened(b, testenv.Postgres(b).URL)
	raw.RenewAll(b, d, raw.Grants(b, d))
}

// BenchmarkTurns changes the owner among processes that contend for one name.
func BenchmarkTurns(b *testing.B) {
	url := testenv.NewPostgres(b).DirectURL()
	raw.Bench(b, "W4", bench.Config{Contenders: []int{16}}, raw.Subject("pg", url, raw.ByServer))
}
