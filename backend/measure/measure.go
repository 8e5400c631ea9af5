// Package measure has what a driver can do for benchmarks. No lock needs any of it.
package measure

import "context"

// Floor is implemented by drivers that can measure the minimum cost of a lock.
// Users of the package bench gain a baseline for each backend.
type Floor interface {
	// Floor locks and unlocks once with the fewest requests that the client
	// library and the server allow, over the driver's own connections: without
	// fence, queue, wake-ups and renewal. It is for benchmarks only, with a (key,
	// owner) that is not used otherwise. Two concurrent calls have different
	// keys.
	Floor(ctx context.Context, key, owner string) error
}

// Counters is implemented by drivers with a server that counts requests and
// connections. Users of the package bench gain the server's side of a
// measurement.
type Counters interface {
	// Counters reads the counters of the server, or of each of several servers.
	// The read itself is counted, too.
	Counters(ctx context.Context) (Counts, error)
}

// Sweeper is implemented by drivers with a server that keeps a part of a free
// lock, such as its last fence. Benchmarks use it to leave nothing on the server.
type Sweeper interface {
	// Sweep removes the remains of keys that are free. It must not be used for a
	// name that may be locked again, because its fences may then repeat.
	Sweep(ctx context.Context, keys []string) error
}

// Counts are the counters of a server, over all its clients. -1 means unknown.
type Counts struct {
	Commands    int64 // handled since it was started
	Connections int64 // open now
}
