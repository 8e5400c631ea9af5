package lag

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestCalmWaitsForABusyMachine keeps the processors busy for a while.
func TestCalmWaitsForABusyMachine(t *testing.T) {
	if ready() == 0 {
		t.Skip("does not apply: this system does not count the threads that are ready to run")
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

// TestCalmEnds checks how long Calm waits on a machine that stays busy.
func TestCalmEnds(t *testing.T) {
	t.Parallel()
	busy := func() int { return crowd*runtime.NumCPU() + 1 }
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		calm(t.Context(), busy)
		if took := time.Since(start); took < patience || took > patience+time.Second/8 {
			t.Errorf("Calm took %v, want %v and a pause at most", took, patience)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start = time.Now()
		calm(ctx, busy)
		if took := time.Since(start); took > 0 {
			t.Errorf("with a context that has ended, Calm took %v", took)
		}
	})
}
