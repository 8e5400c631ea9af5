package bench_test

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend/measure"
)

// countingServer has a floor that sleeps. Its counters grow only when they are read.
type countingServer struct{ asked atomic.Int64 }

func newCountingServer(context.Context) (io.Closer, error) { return &countingServer{}, nil }

func (s *countingServer) Close() error { return nil }

func (s *countingServer) Floor(context.Context, string, string) error {
	time.Sleep(10 * time.Microsecond)
	return nil
}

// Counters reports two commands for each reading, and one connection for each of the first six.
func (s *countingServer) Counters(context.Context) (measure.Counts, error) {
	n := s.asked.Add(1)
	return measure.Counts{Commands: 2 * n, Connections: min(n, 6)}, nil
}
