package raw

import (
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// patience limits an event that happens at once on a machine that is not busy.
const patience = 30 * time.Second

// batcher is a batcher of package batch.
type batcher interface {
	Hold() (release func())
	Len() int
}

// Together makes n requests in one batch.
func Together(tb testenv.TB, b batcher, n int, request func(i int)) {
	tb.Helper()
	release := b.Hold()
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { request(i) })
	}
	AwaitQueue(tb, b, n)
	release()
	running.Wait()
}

// AwaitQueue waits until n requests are in the queue.
func AwaitQueue(tb testenv.TB, b batcher, n int) {
	tb.Helper()
	for end := time.Now().Add(patience); b.Len() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("the queue has %d requests, want %d", b.Len(), n)
		}
	}
}
