// Package bench compares ways to lock: the backends of dlock, and other libraries.
//
// A [Subject] is one way to lock, and a [Workload] is one thing to measure. The subjects of a run
// take turns in short slices of time, so that a machine that gets busy slows down all of them.
// Ratios between subjects are therefore stable, while absolute times depend on the machine. The
// load is a closed loop: a contender sends its next request after its Unlock. A floor is the fewest
// requests that can lock and unlock through the same client library. If a subject has a floor, the
// two take turns as well.
//
// The floor of readers, of a semaphore and of several locks at once (W7 to W9) is the plain mutex
// with the same contenders: [Result.Mutex]. The floor of an election (W10) is the TTL.
//
//	redis, err := bench.URL("redis://localhost")
//	…
//	results := bench.Run(ctx, bench.Config{}, bench.Workloads(), redis, mine)
//	err = bench.WriteTable(os.Stdout, results)
//
// # Another library
//
// To measure another library, write a [Subject] whose Open connects as a separate process would.
// [Process], [Mutex] and [Lease] have a method or two each. A library that has more than mutexes
// also implements [Kinds]. Otherwise its rows in W7 to W10 are [Result.Unsupported].
//
// # In go test
//
// [Benchmark] runs a workload as a benchmark of go test, in the same turns and with the same
// measures. The figures are metrics of the benchmark. [Driver] makes a Subject of a driver that has
// no URL.
//
//	func BenchmarkMine(b *testing.B) {
//		w, _ := bench.Find("W1")
//		bench.Benchmark(b, b.N, w, bench.Config{}, mine)
//	}
//
// # Processes
//
// If the subject can start processes ([Subject.Command]), the processes of a workload are
// operating-system processes, and each of them calls [Serve]. Otherwise several connections of this
// process take their place, and [Result.Separate] is false.
//
// # Figures
//
// Bytes are the memory of the heap and of stacks, after two garbage collections. Goroutines
// are all goroutines of the process: a goroutine that waits in Lock is part of the cost of a
// waiter. Commands are the server's own count, less the commands for reading the count, so
// no other program should use the server meanwhile. An unknown value is left out of a
// [Result], and is "–" in a table.
package bench
