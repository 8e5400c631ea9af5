package raw

import (
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// patience is for what must happen at once, but for a busy machine.
const patience = 30 * time.Second

// batcher is one of package batch.
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

// AwaitQueue returns when n requests are in the queue.
func AwaitQueue(tb testenv.TB, b batcher, n int) {
	tb.Helper()
	for end := time.Now().Add(patience); b.Len() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("%d requests in the queue, want %d", b.Len(), n)
		}
	}
}
