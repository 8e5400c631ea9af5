package lag

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"time"
)

const (
	// crowd is the number of ready threads per processor up to which a machine is calm.
	crowd = 4
	// patience limits Calm: another job can keep a machine busy for hours.
	patience = 5 * time.Second
)

// Calm blocks until the machine is calm, until ctx ends, or for 5 s. A test calls it before it
// begins, so that the number of tests that run at a time does not exceed the number of processors.
// Calm returns at once on a system that does not report its number of ready threads.
func Calm(ctx context.Context) { calm(ctx, ready) }

// calm is Calm with a function that returns the number of ready threads.
func calm(ctx context.Context, ready func() int) {
	end := time.Now().Add(patience)
	for ready() > crowd*runtime.NumCPU() && time.Now().Before(end) {
		select {
		// The pause is random, so that tests do not start together.
		case <-time.After(20*time.Millisecond + rand.N(100*time.Millisecond)):
		case <-ctx.Done():
			return
		}
	}
}

// ready returns the number of threads of the machine that run or are ready to run. It returns 0 if
// the number is not available.
func ready() int {
	text, err := os.ReadFile("/proc/loadavg") // "0.20 0.18 0.12 1/80 11206"
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 4 {
		return 0
	}
	running, _, _ := bytes.Cut(fields[3], []byte("/"))
	n, _ := strconv.Atoi(string(running))
	return n
}
