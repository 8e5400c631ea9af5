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
	// crowd is how many threads for each processor may be ready to run on a calm machine.
	crowd = 4
	// patience bounds Calm: a machine may be busy with something else for hours.
	patience = 5 * time.Second
)

// Calm returns when the machine is calm, when ctx ends, or after 5 s. A test calls it before it begins, so that
// no more tests run at a time than the machine has processors for. It returns at once where the system does not
// report how many threads are ready to run.
func Calm(ctx context.Context) {
	for end := time.Now().Add(patience); ready() > crowd*runtime.NumCPU() && time.Now().Before(end); {
		select {
		case <-time.After(20*time.Millisecond + rand.N(100*time.Millisecond)): // not all at once
		case <-ctx.Done():
			return
		}
	}
}

// ready returns how many threads of the machine run or are ready to, 0 if that is not known.
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
