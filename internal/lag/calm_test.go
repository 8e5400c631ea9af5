package lag

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestCalmWaitsForABusyMachine keeps the processors busy for a while.
func TestCalmWaitsForABusyMachine(t *testing.T) {
	if ready() == 0 {
		t.Skip("the system does not report how many threads are ready to run")
	}
	busy, stop := context.WithCancel(t.Context())
	var burners sync.WaitGroup
	for range (crowd + 2) * runtime.NumCPU() {
		burners.Go(func() {
			runtime.LockOSThread()
			for busy.Err() == nil { //nolint:revive // it keeps a processor busy
			}
		})
	}
	procs := runtime.GOMAXPROCS((crowd + 4) * runtime.NumCPU())
	defer runtime.GOMAXPROCS(procs)
	for ready() <= crowd*runtime.NumCPU() {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	Calm(ctx)
	if ctx.Err() == nil {
		t.Error("Calm returned while the machine was busy")
	}
	stop()
	burners.Wait()
}

func TestCalmEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	Calm(ctx)
	if took := time.Since(start); took >= patience {
		t.Errorf("Calm took %v", took)
	}
}
