// Package bench compares ways to lock: the backends of dlock, and other libraries
// beside them.
//
// A [Subject] is one way to lock, a [Workload] one thing to measure. The subjects of a
// run take turns in short slices of time, so that a machine that gets busy slows down all of
// them: ratios between them last, absolute times are of one machine. Where a subject has a
// floor, the fewest requests that can lock and unlock through the same client library, the floor
// takes its turns beside it.
//
//	redis, err := bench.URL("redis://localhost")
//	…
//	results := bench.Run(ctx, bench.Config{}, bench.Workloads(), redis, mine)
//	err = bench.WriteTable(os.Stdout, results)
//
// # Another library
//
// A library is measured by a [Subject] whose Open connects as a process of its own would.
// [Process], [Mutex] and [Lease] have a method or two each.
//
// # Processes
//
// Where the subject tells how to start one ([Subject.Command]), the processes of a workload are
// operating-system processes, of which each calls [Serve]. Elsewhere several connections in
// this process stand for them, and the results say so.
//
// # What is counted
//
// Bytes are those of the heap and of stacks, after two collections; goroutines are those of the
// whole process. A goroutine that waits in Lock counts as part of what a waiter costs. Commands
// are the server's own count, less what asking for it costs, so nobody else should use the
// server meanwhile. What cannot be known is left out of a [Result], and "–" in a table.
package bench
